"""Parts of every command that changes something: the plan in lines, the confirmation, the wait for the end."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterable
from typing import Final

import typer

from backend.cli.shared.api_session import ApiSession, Exit, Json
from backend.cli.shared.options import console, fail, show_json
from backend.cli.shared.value_text import printable_text

# The same as the API's own limit for one effect; a plan goes on in the backend after that.
WAIT_S: Final = 60.0
UNFINISHED: Final = frozenset({"requested", "accepted", "running", "paused"})


def check_way(*, yes: bool, reason: str | None, json_: bool) -> None:
    """Ends the command when nobody can be asked and nothing was said."""
    if yes and not (reason or "").strip():
        fail("Give a --reason with --yes: it stands in the audit.", Exit.USAGE)
    if not yes and (json_ or not sys.stdin.isatty()):
        fail("Nobody can be asked here: confirm with --yes and --reason.", Exit.USAGE)


def make_plan(opened: ApiSession, kind: str, inputs: Json, *, reason: str | None, json_: bool) -> Json:
    """A stored plan that its checks do not refuse; ends the command when they do."""
    plan: Json = opened.post("/v1/plans", {"kind": kind, "inputs": inputs, "reason": reason})["plan"]
    if plan["state"] == "refused":
        if json_:
            show_json(plan)
        fail(f"Plan {plan['id']} is refused: {refusal(plan['checks'])} Nothing was changed.", Exit.REFUSED)
    return plan


def show_draft(opened: ApiSession, kind: str, inputs: Json, *, json_: bool) -> None:
    """Shows the plan that inputs would make; nothing is stored."""
    draft = opened.post("/v1/plans", {"kind": kind, "inputs": inputs, "dry_run": True})
    if json_:
        show_json(draft)
    else:
        console().print("\n".join(["Nothing has been changed.", *plan_lines(draft)]))
    if draft["refused"]:
        fail(f"Such a plan would be refused: {refusal(draft['checks'])}", Exit.REFUSED)


def confirmed_execution(
    opened: ApiSession, plan: Json, *, yes: bool, reason: str | None, wait: bool, json_: bool
) -> Json:
    """Asks for the cluster's name and a reason unless both are given, executes once, waits for the end."""
    name = str(opened.get("/v1/cluster")["name"])
    if not json_:
        console().print("\n".join(plan_lines(plan)))
    confirm = name if yes else typed(name)
    given = reason or asked_reason()
    headers = {"Idempotency-Key": f"cli-{uuid.uuid4()}"}
    body = {"confirm": confirm, "reason": given, "wait_ms": 10_000 if wait else 0}
    execution: Json = opened.post(f"/v1/plans/{plan['id']}/execute", body, headers)["plan"]
    until_s = time.monotonic() + WAIT_S
    while wait and execution["state"] in UNFINISHED and execution["progress"] is None and time.monotonic() < until_s:
        time.sleep(1)
        execution = opened.get(f"/v1/plans/{plan['id']}")["plan"]
    return execution


def typed(name: str) -> str:
    """The cluster's name, typed by a person; ends the command at any other."""
    text: str = typer.prompt(f"Type {printable_text(name)} to confirm", default="", show_default=False, err=True)
    if text != name:
        fail("That is not the cluster's name: nothing was changed.", Exit.REFUSED)
    return text


def asked_reason() -> str:
    """The reason for the audit; ends the command without one."""
    given: str = typer.prompt("Reason", default="", show_default=False, err=True)
    if not given.strip():
        fail("Without a reason nothing was changed: it stands in the audit.", Exit.REFUSED)
    return given


def show_end(plan: Json, *, json_: bool) -> None:
    """How it ended, and the exit code that says so."""
    if json_:
        show_json(plan)
    else:
        print(ending(plan))
    if plan["state"] not in ("verified", *UNFINISHED):
        raise typer.Exit(Exit.REFUSED if plan["state"] == "refused" else Exit.FAILED)


def plan_lines(plan: Json) -> list[str]:
    """The lines of a plan: difference, effect, checks, the same by Kafka's own tool."""
    difference = plan["diff"]["words"]
    lines = [difference["title"], *(f"  {line}" for line in plan["diff"].get("lines", []))]
    lines += [difference[name] for name in ("intro", "effect") if difference.get(name)]
    # Labelled as in the dashboard's dialog.
    labels = (("Risk", "risk"), ("Does not change", "does_not_change"))
    lines += [f"{label}: {difference[name]}" for label, name in labels if difference.get(name)]
    lines += [f"  {check['outcome']}: {check['sentence']}" for check in plan["checks"] if check["outcome"] != "ok"]
    lines += [f"  $ {command}" for command in plan["cli"]]
    return [printable_text(line) for line in lines]


def refusal(checks: Iterable[Json]) -> str:
    """The sentence of the first check that refuses."""
    return next(
        (printable_text(check["sentence"]) for check in checks if check["outcome"] == "refused"), "see its checks."
    )


def ending(plan: Json) -> str:
    """One line of how a plan ended."""
    result = plan["result"] or {}
    steps = result.get("steps") or [{}]
    why = steps[-1].get("sentence") or result.get("sentence") or result.get("refused") or ""
    if plan["state"] == "refused" and not why:
        why = refusal(plan["checks"])
    return f"Plan {plan['id']} is {plan['state']}. {printable_text(why)}".strip()
