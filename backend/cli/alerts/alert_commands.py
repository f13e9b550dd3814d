"""Commands that show who is notified and by what the rules judge: receivers, thresholds."""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

import typer

from backend.cli.alerts import alert_tables
from backend.cli.shared.api_session import Exit
from backend.cli.shared.options import ApiOptions, console, end, fail, show_json, with_options
from backend.cli.shared.value_text import printable_text


@with_options
def receivers(
    options: ApiOptions,
    test: Annotated[str | None, typer.Option(metavar="NAME", help="Send a test message to this receiver.")] = None,
) -> None:
    """Receivers and messages that wait for each. Ends with 1 when one takes nothing, or the file has a mistake."""
    with options.connected() as opened:
        if test is not None:
            response = opened.post(f"/v1/alerts/receivers/{quote(test, safe='')}/test", {})
        else:
            response = opened.get("/v1/alerts/receivers")
    if options.json_:
        show_json(response)
    elif test is not None:
        _print_test(response["receiver"], response["reason"], taken=response["taken"])
    elif response["items"]:
        console().print(alert_tables.receivers(response["items"], time.time_ns() // 1_000_000))
    else:
        print("Nobody is notified: docs/alerts.md says how.")
    if test is not None:
        end(attention=not response["taken"])
        return
    if response["mistake"]:
        print(f"{printable_text(response['mistake'])} The former content stays in force.", file=sys.stderr)
    end(attention=bool(response["mistake"]) or any(r["failing_since_ms"] is not None for r in response["items"]))


def _print_test(receiver: str, reason: str | None, *, taken: bool) -> None:
    name = printable_text(receiver)
    print(f"{name} took a test message." if taken else f"{name} took no test message: {printable_text(reason)}.")


@with_options
def thresholds(
    options: ApiOptions,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="RULE.NAME=VALUE", help="Set a threshold, for_s, severity or off of a rule."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="RULE.NAME", help="As the rule itself says, from now on.")
    ] = None,
    topics: Annotated[str | None, typer.Option(metavar="PATTERN", help="For these topics alone: logs-*")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it stands in the audit.")] = None,
) -> None:
    """Thresholds of the rules with the reason of each default, and the holds and severities that the file sets."""
    changes = _rule_changes(set_ or [], unset or [])
    if changes and not reason:
        fail("Give a reason: --reason TEXT.", Exit.USAGE)
    with options.connected() as opened:
        for slug, values in changes.items():
            opened.post(
                f"/v1/alerts/rules/{quote(slug, safe='')}", {"values": values, "topics": topics, "reason": reason}
            )
        response = opened.get("/v1/alerts/rules")
    if options.json_:
        show_json(response)
        return
    out = console()
    out.print(alert_tables.thresholds(response["thresholds"]))
    if response["rules"]:
        out.print()
        out.print(alert_tables.rule_settings(response["rules"]))


def _rule_changes(set_: list[str], unset: list[str]) -> dict[str, dict[str, float | bool | str | None]]:
    """New values by rule and name. Ends the command where a text is none."""
    changes: dict[str, dict[str, float | bool | str | None]] = {}
    for text in [*set_, *unset]:
        path, equals, value = text.partition("=")
        slug, dot, name = path.strip().partition(".")
        if not (slug and dot and name) or bool(equals) is not (text in set_):
            fail(f"{text!r} is not of the form RULE.NAME{'=VALUE' if text in set_ else ''}.", Exit.USAGE)
        changes.setdefault(slug, {})[name] = _value(value.strip()) if equals else None
    return changes


def _value(text: str) -> float | bool | str:
    if text in ("true", "false"):
        return text == "true"
    with suppress(ValueError):
        # No number of JSON is infinite: the text is refused with what is right.
        if math.isfinite(number := float(text)):
            return number
    return text
