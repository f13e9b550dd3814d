"""`ebbline maintenance`: windows in which findings are shown and nobody is notified."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from backend.cli.alerts import alert_tables
from backend.cli.alerts.silence_commands import ForOption, minutes_of
from backend.cli.alerts.times import parse_moment
from backend.cli.shared.api_session import Exit
from backend.cli.shared.options import ApiOptions, console, fail, show_json, with_options
from backend.cli.shared.value_text import moment

maintenance_app = typer.Typer(
    help="Windows of maintenance: what they cover is shown, and nobody is notified.", no_args_is_help=True
)


@maintenance_app.command()
@with_options
def add(
    options: ApiOptions,
    *,
    for_: ForOption,
    reason: Annotated[str, typer.Option(help="Why; it stands in the audit and beside the window.")],
    begin: Annotated[
        str | None, typer.Option(metavar="TIME", help="When, e.g. 2026-12-01T22:00, in UTC unless it names a zone.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Only findings of these topics, e.g. 'logs-*'.")
    ] = None,
    broker: Annotated[int | None, typer.Option(min=0, help="Only findings of this broker.")] = None,
    slug: Annotated[str | None, typer.Option(help="Only findings of this rule, e.g. copy-slow.")] = None,
) -> None:
    """Begin or plan a window. Without --topic, --broker and --slug it covers everything."""
    begins_ms = None if begin is None else parse_moment(begin)
    if begin is not None and begins_ms is None:
        fail(f"{begin!r} is no time: give one like 2026-12-01T22:00 or 2026-12-01T22:00+01:00.", Exit.USAGE)
    body = {
        "begins_ms": begins_ms,
        "minutes": minutes_of(for_),
        "slug": slug,
        "topic": topic,
        "broker_id": broker,
        "reason": reason,
    }
    with options.connected() as opened:
        response = opened.post("/v1/maintenance", body)
    if options.json_:
        show_json(response)
    else:
        window = response["window"]
        begins, ends = moment(window["begins_ms"]), moment(window["ends_ms"])
        print(f"Window {window['id']}: {begins} to {ends} UTC.")


@maintenance_app.command("list")
@with_options
def list_windows(options: ApiOptions) -> None:
    """Windows that hold, are planned, or have ended within seven days."""
    with options.connected() as opened:
        response = opened.get("/v1/maintenance")
    if options.json_:
        show_json(response)
    elif response["items"]:
        console().print(alert_tables.maintenance(response["items"], time.time_ns() // 1_000_000))
    else:
        print("There is no maintenance window.")


@maintenance_app.command("end")
@with_options
def end_window(
    options: ApiOptions, window: Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of a window.")]
) -> None:
    """End a window now; what it covers and is still open is sent then."""
    with options.connected() as opened:
        response = opened.delete(f"/v1/maintenance/{window}")
    if options.json_:
        show_json(response)
    else:
        print(f"Window {window} has ended.")
