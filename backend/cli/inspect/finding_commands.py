"""Commands that show what needs attention and who did what: findings, audit, readers; the rules for Prometheus."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated

import typer

from backend.cli.shared import tables, value_text
from backend.cli.shared.api_session import PAGE, Json
from backend.cli.shared.finding_groups import with_causes
from backend.cli.shared.open_findings import not_muted, open_findings
from backend.cli.shared.options import (
    DATA_DEFAULT,
    ApiOptions,
    DataOption,
    console,
    end,
    show_json,
    with_options,
)
from backend.cli.shared.verdict import blind_lines, conclusion, needs_attention


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
    cause: Annotated[
        str | None,
        typer.Option(metavar="RULE:OBJECT", help="Only what this finding explains, e.g. 'broker-away:broker 3'."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="The newest so many.")] = 100,
) -> None:
    """Findings: a problem, its evidence, and what to do; what a finding explains stands below it.

    Ends with 1, whatever is listed, when something open is critical and not muted, or when something is not seen."""
    given = None if severity is None else severity.value
    with options.connected() as opened:
        cluster = opened.get("/v1/cluster")
        response = opened.get("/v1/findings", state=state.value, severity=given, topic=topic, cause=cause, limit=limit)
        everything = open_findings(opened)
    if options.json_:
        show_json(response)
    else:
        for line in blind_lines(cluster):
            console().print(line)
        matching = [
            f
            for f in everything
            if given in (None, f["severity"]) and topic in (None, f["topic"]) and cause in (None, _cause(f))
        ]
        _print_findings(cluster, response, everything, len(matching) if state is FindingState.open else None)
    end(attention=needs_attention(cluster, not_muted(everything, cluster["now_ms"])))


def _cause(finding: Json) -> str:
    """The finding that explains it, as `--cause` names it."""
    return f"{finding['cause_slug']}:{finding['cause_object']}"


def _print_findings(cluster: Json, response: Json, everything: list[Json], matching: int | None) -> None:
    """`everything` is open; `matching`: the number of findings that the list is of, None: of closed ones, too."""
    items = response["items"]
    if items:
        listed = items if matching is None else with_causes(items, everything)
        console().print(tables.findings(listed, time.time_ns() // 1_000_000))
        if response["next_before_id"] is not None:
            more = "More" if matching is None else f"+{max(1, matching - len(items))} more"
            print(f"{more} with --limit; these are the newest {len(items)}.")
    elif matching is not None and not everything:
        print(conclusion(cluster, items))
    else:
        print("No such finding.")


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


def rules(data: DataOption = DATA_DEFAULT) -> None:
    """The rules file for Prometheus, one alert per incident. Asks nobody: `ebbline rules > ebbline.rules.yml`.

    Runbooks are links where the folder's `ebbline up` or EBBLINE_PUBLIC_URL says the dashboard's address.
    """
    # Only here: it takes a moment to import the rules.
    from backend.cli.local.local_settings import settings_beside_up
    from backend.control.alerts.prometheus_rules import rules_file

    sys.stdout.write(rules_file(settings_beside_up(data_dir=data).public_url))


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
        print(value_text.no_readers(response["groups_with_members"], response["groups_without_members"]))
    if response["left_out"]:
        print(value_text.printable_text(response["left_out"]), file=sys.stderr)
    if response["error"] or response["asked_ms"] is None:
        print(
            value_text.printable_text(response["error"] or "The groups were not asked yet; wait a moment."),
            file=sys.stderr,
        )
