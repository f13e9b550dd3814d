"""The command that switches where new, empty followers start: plan, look, confirm, execute, as in the dashboard."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

import typer

from backend.cli.api import Api, Exit, Json
from backend.cli.options import (
    DATA_DEFAULT,
    ApiOption,
    DataOption,
    JsonOption,
    TokenOption,
    calls,
    console,
    fail,
    show_json,
)
from backend.cli.words import plain

KIND: Final = "toggle_bootstrap"
# The same as the API's own limit for one effect; a plan goes on in the backend after that.
WAIT_S: Final = 60.0
UNFINISHED: Final = frozenset({"requested", "accepted", "running", "paused"})


class Switch(StrEnum):
    """The two ways."""

    on = "on"
    off = "off"


def toggle(
    switch: Annotated[Switch, typer.Argument(help="Whether new followers start at the tiered offset.")],
    broker: Annotated[int | None, typer.Option(help="Only on this broker; else the cluster default.")] = None,
    reason: Annotated[str | None, typer.Option(help="Stands in the audit.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the cluster's name; needs --reason.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would do; nothing is stored.")] = False,
    api: ApiOption = None,
    token_file: TokenOption = None,
    data: DataOption = DATA_DEFAULT,
    json_: JsonOption = False,
) -> None:
    """Switch follower.fetch.last.tiered.offset.enable (KIP-1023): plan, confirm, execute, verify."""
    if not dry_run:
        _check_way(yes=yes, reason=reason, json_=json_)
    inputs: Json = {"enable": switch is Switch.on}
    if broker is not None:
        inputs |= {"scope": "broker", "broker_id": broker}
    with calls(api, token_file, data) as opened:
        name = str(opened.get("/v1/cluster")["name"])
        if dry_run:
            draft = opened.post("/v1/plans", {"kind": KIND, "inputs": inputs, "dry_run": True})
            _show_draft(draft, json_=json_)
            return
        plan = opened.post("/v1/plans", {"kind": KIND, "inputs": inputs, "reason": reason})["plan"]
        if plan["state"] == "refused":
            if json_:
                show_json(plan)
            fail(f"Plan {plan['id']} is refused: {refusal(plan['checks'])} Nothing was changed.", Exit.REFUSED)
        if not json_:
            console().print("\n".join(plan_lines(plan)))
        confirmed = name if yes else _typed(name)
        given = reason or _asked_reason()
        ended = _execute(opened, plan["id"], confirmed, given)
    _show_end(ended, json_=json_)


def _check_way(*, yes: bool, reason: str | None, json_: bool) -> None:
    if yes and not (reason or "").strip():
        fail("Give a --reason with --yes: it stands in the audit.", Exit.USAGE)
    if not yes and (json_ or not sys.stdin.isatty()):
        fail("Nobody can be asked here: confirm with --yes and --reason.", Exit.USAGE)


def _typed(name: str) -> str:
    typed: str = typer.prompt(f"Type {plain(name)} to confirm", default="", show_default=False, err=True)
    if typed != name:
        fail("That is not the cluster's name: nothing was changed.", Exit.REFUSED)
    return typed


def _asked_reason() -> str:
    given: str = typer.prompt("Reason", default="", show_default=False, err=True)
    if not given.strip():
        fail("Without a reason nothing was changed: it stands in the audit.", Exit.REFUSED)
    return given


def _execute(opened: Api, plan_id: int, confirm: str, reason: str) -> Json:
    """Executes it once and waits for its end; after a minute it is given as it is."""
    headers = {"Idempotency-Key": f"cli-{uuid.uuid4()}"}
    body = {"confirm": confirm, "reason": reason}
    plan: Json = opened.post(f"/v1/plans/{plan_id}/execute", body, headers)["plan"]
    until_s = time.monotonic() + WAIT_S
    while plan["state"] in UNFINISHED and time.monotonic() < until_s:
        time.sleep(1)
        plan = opened.get(f"/v1/plans/{plan_id}")["plan"]
    return plan


def _show_draft(draft: Json, *, json_: bool) -> None:
    if json_:
        show_json(draft)
    else:
        console().print("\n".join(["Nothing has been changed.", *plan_lines(draft)]))
    if draft["refused"]:
        fail(f"Such a plan would be refused: {refusal(draft['checks'])}", Exit.REFUSED)


def _show_end(plan: Json, *, json_: bool) -> None:
    if json_:
        show_json(plan)
    else:
        print(ending(plan))
    if plan["state"] != "verified":
        raise typer.Exit(Exit.FAILED)


def plan_lines(plan: Json) -> list[str]:
    """What a plan does, in lines: difference, effect, checks, the same by Kafka's own tool."""
    told = plan["diff"]["words"]
    texts = [told.get("intro"), told.get("effect"), told.get("risk"), told.get("does_not_change")]
    lines = [told["title"], *(f"  {line}" for line in plan["diff"].get("lines", []))]
    lines += [text for text in texts if text]
    lines += [f"  {check['outcome']}: {check['sentence']}" for check in plan["checks"] if check["outcome"] != "ok"]
    lines += [f"  $ {command}" for command in plan["cli"]]
    return [plain(line) for line in lines]


def refusal(checks: Iterable[Json]) -> str:
    """The sentence of the first check that refuses."""
    return next((plain(check["sentence"]) for check in checks if check["outcome"] == "refused"), "see its checks.")


def ending(plan: Json) -> str:
    """One line of how a plan ended."""
    steps = (plan["result"] or {}).get("steps") or [{}]
    why = steps[-1].get("sentence") or (plan["result"] or {}).get("sentence") or ""
    return f"Plan {plan['id']} is {plan['state']}. {plain(why)}".strip()
