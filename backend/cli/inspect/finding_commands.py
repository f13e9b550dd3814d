"""Commands that show what needs attention and who did what: findings, audit, readers; the rules for Prometheus."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated

import typer

from backend.cli.shared import tables, value_text
from backend.cli.shared.api_session import PAGE
from backend.cli.shared.options import ApiOptions, console, end, show_json, with_options


class Severity(StrEnum):
    """How bad a finding is."""

    critical = "critical"
    warning = "warning"
    notice = "notice"


class FindingState(StrEnum):
    """The findings to list."""

    open = "open"
    closed = "closed"
    all = "all"


@with_options
def findings(
    options: ApiOptions,
    state: Annotated[FindingState, typer.Option(help="Which ones.")] = FindingState.open,
    severity: Annotated[Severity | None, typer.Option(help="Only this severity.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only of this topic.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="The newest so many.")] = 100,
) -> None:
    """What needs attention, why, and what to do. Ends with 1 when something open is critical."""
    given = None if severity is None else severity.value
    with options.connected() as opened:
        response = opened.get("/v1/findings", state=state.value, severity=given, topic=topic, limit=limit)
    items = response["items"]
    if options.json_:
        show_json(response)
    elif items:
        console().print(tables.findings(items, time.time_ns() // 1_000_000))
        if response["next_before_id"] is not None:
            print(f"These are the newest {limit}; more with --limit.")
    else:
        print("Nothing needs attention." if state is FindingState.open else "No such finding.")
    end(attention=any(f["severity"] == "critical" and f["closed_ms"] is None for f in items))


@with_options
def audit(
    options: ApiOptions,
    action: Annotated[str | None, typer.Option(help="Only this action, e.g. 'execute toggle_bootstrap'.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="The newest so many.")] = 30,
) -> None:
    """Who did what, and what was refused; the newest first."""
    with options.connected() as opened:
        response = opened.get("/v1/audit", action=action, limit=limit)
    if options.json_:
        show_json(response)
    elif response["items"]:
        console().print(tables.audit(response["items"]))
    else:
        print("Nobody has done anything yet.")


def rules() -> None:
    """The rules file for Prometheus, one alert per incident. Asks nobody: `ebbline rules > ebbline.rules.yml`."""
    # Only here: it takes a moment to import the rules.
    from backend.control.alerts.prometheus_rules import rules_file

    sys.stdout.write(rules_file())


@with_options
def readers(options: ApiOptions) -> None:
    """Which groups read from the remote tier next, and how much is left for them there."""
    with options.connected() as opened:
        response = opened.get("/v1/remote-readers")
    if options.json_:
        show_json(response)
        return
    if response["items"]:
        console().print(tables.readers(response["items"]))
    elif response["asked_ms"] is not None:
        print("No group is below the local log of a tiered partition.")
    if response["error"] or response["asked_ms"] is None:
        print(
            value_text.printable_text(response["error"] or "The groups were not asked yet; wait a moment."),
            file=sys.stderr,
        )
