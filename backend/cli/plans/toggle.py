"""The command that switches where new, empty followers start: plan, look, confirm, execute, as in the dashboard."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from backend.cli.plans.confirm import check_way, confirmed_execution, make_plan, show_draft, show_end
from backend.cli.shared.api_session import Exit, Json
from backend.cli.shared.options import ApiOptions, with_options

KIND: Final = "toggle_bootstrap"


class Switch(StrEnum):
    """The two ways."""

    on = "on"
    off = "off"


@with_options
def toggle(
    options: ApiOptions,
    switch: Annotated[Switch, typer.Argument(help="Whether new followers start at the tiered offset.")],
    broker: Annotated[int | None, typer.Option(help="Only on this broker; else the cluster default.")] = None,
    reason: Annotated[str | None, typer.Option(help="Stands in the audit.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the cluster's name; needs --reason.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would do; nothing is stored.")] = False,
) -> None:
    """Switch follower.fetch.last.tiered.offset.enable (KIP-1023): plan, confirm, execute, verify."""
    if not dry_run:
        check_way(yes=yes, reason=reason, json_=options.json_)
    inputs: Json = {"enable": switch is Switch.on}
    if broker is not None:
        inputs |= {"scope": "broker", "broker_id": broker}
    with options.connected() as opened:
        if dry_run:
            show_draft(opened, KIND, inputs, json_=options.json_)
            return
        plan = make_plan(opened, KIND, inputs, reason=reason, json_=options.json_)
        ended = confirmed_execution(opened, plan, yes=yes, reason=reason, wait=True, json_=options.json_)
    show_end(ended, json_=options.json_)
    if ended["state"] != "verified":
        raise typer.Exit(Exit.FAILED)
