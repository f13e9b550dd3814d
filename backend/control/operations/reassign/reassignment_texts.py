"""The sentences of a reassignment: dialog, lines of the difference, how far it is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from backend.control.formatting import grouped, in_bytes, in_time
from backend.control.operations.lifecycle.plan_draft import DialogTexts, JsonObject
from backend.control.operations.reassign.partition_moves import MoveState, PlannedMove
from backend.control.operations.reassign.reassignment_inputs import ReassignInputs
from backend.tiering.ids import TopicPartition

LINES_MAX: Final = 12


def object_of(inputs: ReassignInputs, moves: Mapping[TopicPartition, PlannedMove]) -> str:
    """The object of the plan, short enough for a table."""
    topics = sorted({tp.topic for tp in moves})
    if inputs.action == "drain":
        return f"broker {', '.join(map(str, inputs.brokers))}"
    if len(moves) == 1:
        tp = next(iter(moves))
        return f"{tp.topic}-{tp.partition}"
    if len(topics) == 1:
        return topics[0]
    return f"{len(topics)} topics"


def dialog_texts(
    cluster_name: str,
    inputs: ReassignInputs,
    moves: Mapping[TopicPartition, PlannedMove],
    estimate: JsonObject,
    leaders: int,
) -> DialogTexts:
    """The dialog's texts."""
    copied = sum(len(move.adding) for move in moves.values())
    if not copied:
        return _without_copies(cluster_name, inputs, moves, leaders)
    off_bytes, on_bytes = in_bytes(estimate["off_bytes"]), in_bytes(estimate["on_bytes"])
    flagged = [str(broker["broker_id"]) for broker in estimate["brokers"] if broker["flag_on"]]
    share = f"Copy {in_bytes(estimate['in_effect_bytes'])}"
    share += (
        f" (off: {off_bytes}, on: {on_bytes}; the flag is on for broker {', '.join(flagged)})"
        if flagged
        else (f" ({on_bytes} with the flag on)" if on_bytes != off_bytes else "")
    )
    parts = [share]
    if inputs.throttle_bytes_per_s:
        parts.append(f"limit {in_bytes(inputs.throttle_bytes_per_s)}/s")
        if estimate["in_effect_ms"] is not None:
            # No copy takes "about 0 s".
            parts.append(f"about {in_time(max(1_000, estimate['in_effect_ms']))}")
    else:
        parts.append("no limit")
    parts.append(_leaders(leaders))
    return DialogTexts(
        title=f"Move {_count(copied, 'replica')}",
        intro=f"Cluster {cluster_name}.",
        effect=" · ".join(parts) + ".",
        risk="The copies take network and disk from clients, as much as the limit allows.",
        does_not_change="Data in the remote tier. The previous assignment is saved; a revert puts it back.",
        keep="Back",
        act=f"Move {_count(copied, 'replica')}",
    )


def _without_copies(
    cluster_name: str, inputs: ReassignInputs, moves: Mapping[TopicPartition, PlannedMove], leaders: int
) -> DialogTexts:
    leaving = sum(len(move.removing) for move in moves.values())
    if leaving:
        return DialogTexts(
            title=f"Remove {_count(leaving, 'replica')}",
            intro=f"Cluster {cluster_name}.",
            effect=f"Deletes the local data of {_count(leaving, 'replica')}; {_leaders(leaders)}. Nothing is copied.",
            risk="Fewer replicas survive fewer broker failures.",
            does_not_change="Data in the remote tier. A revert copies the replicas again.",
            keep="Back",
            act=f"Remove {_count(leaving, 'replica')}",
        )
    elected = "at once" if inputs.elect else "with the next preferred election"
    return DialogTexts(
        title=f"Reorder {_count(len(moves), 'replica list')}",
        intro=f"Cluster {cluster_name}.",
        effect=f"The first replicas change; leaders follow {elected}. Nothing is copied.",
        does_not_change="Where replicas are.",
        keep="Back",
        act="Reorder",
    )


def lines(moves: Mapping[TopicPartition, PlannedMove]) -> list[str]:
    """The difference in lines, the first of them."""
    changed = [(tp, move) for tp, move in moves.items() if move.before != move.target]
    shown = [
        f"{tp.topic}-{tp.partition}: {list(move.before)} → {list(move.target)}" for tp, move in changed[:LINES_MAX]
    ]
    if len(changed) > LINES_MAX:
        shown.append(f"… and {len(changed) - LINES_MAX} more")
    return shown


def progress_text(states: Mapping[TopicPartition, MoveState], progress: Mapping[str, Any]) -> str:
    """The progress in one sentence."""
    counts = Counter(states.values())
    done = counts[MoveState.DONE]
    if done == len(states):
        not_elected = progress.get("not_elected")
        more = f" {len(not_elected)} leaders could not be moved." if not_elected else ""
        who = "The partition has" if len(states) == 1 else f"All {_count(len(states), 'partition')} have"
        return f"{who} the replicas that were asked for.{more}"
    parts = [f"{grouped(done)} of {_count(len(states), 'partition')} done"]
    parts += [f"{grouped(counts[s])} {s.value}" for s in MoveState if s is not MoveState.DONE and counts[s]]
    why = next(iter((progress.get("refused") or {}).values()), None)
    return ", ".join(parts) + "." + (f" {why}" if why else "")


def stopped(states: Mapping[TopicPartition, MoveState]) -> str:
    """The result of a stop in one sentence."""
    counts = Counter(states.values())
    done, moving = counts[MoveState.DONE], counts[MoveState.MOVING]
    if moving:
        return f"{_count(moving, 'partition')} on the way back."
    rest = len(states) - done
    return f"Stopped: {_count(done, 'partition')} finished and stay where they are, {grouped(rest)} are as before."


def left_behind(states: Mapping[TopicPartition, MoveState], away: Sequence[str]) -> str:
    """Leftovers of an ended plan and the way to remove them; "" for none. `away`: brokers that keep their limit."""
    parts = []
    moving = sum(state is MoveState.MOVING for state in states.values())
    if moving:
        parts.append(
            f"{_count(moving, 'partition')} still move{'s' if moving == 1 else ''}, without a limit now: let them end, "
            "or cancel them with kafka-reassign-partitions.sh --cancel."
        )
    if away:
        parts.append(
            f"Broker {', '.join(away)} is away and keeps its limit: once it is back, remove it with a plan of "
            "clear_throttle."
        )
    return " ".join(parts)


def _leaders(number: int) -> str:
    return "no leader changes" if not number else f"{_count(number, 'leader')} change{'s' if number == 1 else ''}"


def _count(number: int, noun: str) -> str:
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"
