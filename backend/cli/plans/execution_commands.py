"""Done with a stored plan: `ebbline apply | watch | pause | resume | stop | limit | revert | export | plans`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from backend.cli.plans.confirm import UNFINISHED, check_way, confirmed_execution, ending, show_end
from backend.cli.plans.plan_commands import size
from backend.cli.shared.api_session import ApiSession, Exit, Json
from backend.cli.shared.options import ApiOptions, ConnectionOptions, console, fail, show_json, with_options
from backend.cli.shared.value_text import moment, printable_text
from backend.control.formatting import in_bytes

POLL_INTERVAL_S: Final = 1.0
Plan = Annotated[int, typer.Argument(help="Number of the plan.", min=1)]


@dataclass(frozen=True, kw_only=True)
class ConfirmOptions(ApiOptions):
    """The options of a command that carries out a plan."""

    reason: Annotated[str | None, typer.Option(help="Stands in the audit.")] = None
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the cluster's name; needs --reason.")] = False
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end: `ebbline watch` shows it.")] = False


@with_options
def apply(options: ConfirmOptions, plan: Plan) -> None:
    """Carry out a stored plan, and show how far it is until its end."""
    check_way(yes=options.yes, reason=options.reason, json_=options.json_)
    with options.connected() as opened:
        stored = opened.get(f"/v1/plans/{plan}")["plan"]
        stored = _executed(options, opened, stored)
    show_end(stored, json_=options.json_)


@with_options
def watch(options: ApiOptions, plan: Plan) -> None:
    """Show how far a plan is until it has ended."""
    with options.connected() as opened:
        stored = opened.get(f"/v1/plans/{plan}")["plan"]
        if stored["state"] == "checked":
            fail(f"Plan {plan} is not carried out yet: ebbline apply {plan}.", Exit.REFUSED)
        stored = _until_ended(opened, stored, json_=options.json_)
    show_end(stored, json_=options.json_)


@with_options
def revert(options: ConfirmOptions, plan: Plan) -> None:
    """Put back what a plan has changed: a new plan that is confirmed and carried out like any other."""
    check_way(yes=options.yes, reason=options.reason, json_=options.json_)
    with options.connected() as opened:
        back = opened.post(f"/v1/plans/{plan}/revert", {"reason": options.reason})["plan"]
        if back["state"] == "refused":
            sentence = next((c["sentence"] for c in back["checks"] if c["outcome"] == "refused"), "")
            fail(
                f"The way back of plan {plan} is refused: {printable_text(sentence)} Nothing was changed.", Exit.REFUSED
            )
        ended = _executed(options, opened, back)
    show_end(ended, json_=options.json_)


@with_options
def pause(options: ApiOptions, plan: Plan) -> None:
    """Begin no further partition of a running plan."""
    _steer(options, plan, "pause", {})


@with_options
def resume(options: ApiOptions, plan: Plan) -> None:
    """Go on with a paused plan."""
    _steer(options, plan, "resume", {})


@with_options
def stop(options: ApiOptions, plan: Plan) -> None:
    """Stop a running plan: finished partitions stay, those that move go back."""
    _steer(options, plan, "stop", {})


@with_options
def limit(
    options: ApiOptions,
    plan: Plan,
    throttle: Annotated[str, typer.Argument(help="Bytes a second on each broker, e.g. 50MB.")],
) -> None:
    """Give a running plan another limit."""
    _steer(options, plan, "limit", {"throttle_bytes_per_s": size(throttle)})


def _steer(options: ApiOptions, plan: int, verb: str, body: Json) -> None:
    with options.connected() as opened:
        steered = opened.post(f"/v1/plans/{plan}/{verb}", body)["plan"]
    if options.json_:
        show_json(steered)
    else:
        print({"stop": f"Plan {plan} is being stopped: ebbline watch {plan} shows how."}.get(verb, ending(steered)))


@with_options
def plans(
    options: ApiOptions,
    state: Annotated[str | None, typer.Option(help="Only plans in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only plans of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many, newest first.")] = 20,
) -> None:
    """The stored plans, newest first."""
    with options.connected() as opened:
        response = opened.get("/v1/plans", state=state, kind=kind, limit=limit)
    if options.json_:
        show_json(response)
        return
    if not response["items"]:
        print("There is no such plan." if state or kind else "There is no plan yet.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("plan", "made", "kind", "object", "state", "by", "result"):
        table.add_column(heading)
    for row in response["items"]:
        texts = [row["kind"], (row["diff"] or {}).get("object"), row["state"], row["author"]]
        result = (row["result"] or {}).get("sentence") or ""
        table.add_row(str(row["id"]), moment(row["created_ms"]), *map(printable_text, texts), printable_text(result))
    console().print(table)


@with_options
def export(
    options: ConnectionOptions,
    plan: Plan,
    before: Annotated[bool, typer.Option("--before", help="The replica lists as they were before the plan.")] = False,
) -> None:
    """A plan as JSON; a reassignment as the file that kafka-reassign-partitions.sh and `plan assign` read."""
    with options.connected() as opened:
        stored = opened.get(f"/v1/plans/{plan}")["plan"]
    print(json.dumps(reassignment_file(stored, before=before) or stored, indent=2, ensure_ascii=False))


def reassignment_file(plan: Json, *, before: bool) -> Json | None:
    """Kafka's file of a reassignment; None for any other plan."""
    if plan["kind"] != "reassign":
        return None
    parts: list[Json] = plan["inputs"]["assignments"]
    if before:
        parts = list(plan["snapshot"]["partitions"].values())
    names = ("topic", "partition", "replicas")
    return {"version": 1, "partitions": [{name: part[name] for name in names} for part in parts]}


def _executed(options: ConfirmOptions, opened: ApiSession, plan: Json) -> Json:
    """The plan once it is confirmed and begun, and has ended unless the command does not wait."""
    wait = not options.detach
    begun = confirmed_execution(opened, plan, yes=options.yes, reason=options.reason, wait=wait, json_=options.json_)
    return _until_ended(opened, begun, json_=options.json_) if wait else begun


def _until_ended(opened: ApiSession, plan: Json, *, json_: bool) -> Json:
    """The plan when it has ended; shows how far it is on the way."""
    if json_:
        while plan["state"] in UNFINISHED:
            time.sleep(POLL_INTERVAL_S)
            plan = opened.get(f"/v1/plans/{plan['id']}")["plan"]
        return plan
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[progress_text]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(), transient=True) as bars:
        bar = bars.add_task(f"plan {plan['id']}", total=None, progress_text="")
        while plan["state"] in UNFINISHED:
            total, done, text = progress_text(plan)
            bars.update(bar, total=total, completed=done, progress_text=text)
            time.sleep(POLL_INTERVAL_S)
            plan = opened.get(f"/v1/plans/{plan['id']}")["plan"]
    return plan


def progress_text(plan: Json) -> tuple[int | None, int, str]:
    """Total, done and the text of a progress bar: bytes where some are copied, else partitions."""
    progress: dict[str, Any] | None = plan["progress"]
    if progress is None:
        return None, 0, printable_text(plan["state"])
    counts = progress["counts"]
    total = (plan["estimate"] or {}).get("in_effect_bytes") or 0
    done = min(progress["copied_bytes"], total)
    partitions = f"{counts['done']} of {progress['partitions']} partitions"
    if progress.get("problem"):
        partitions += f", waiting: {printable_text(progress['problem'])}"
    if total:
        return total, done, f"{in_bytes(done)} of {in_bytes(total)}, {partitions}"
    return progress["partitions"], counts["done"], partitions
