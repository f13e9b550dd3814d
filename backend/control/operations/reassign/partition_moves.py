"""State of each partition of a reassignment, and the next request to the controller. Pure.

The controller's replica list during a move is the wanted one followed by those that leave (KIP-455), so the list
without the leaving ones identifies the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from backend.tiering.ids import TopicPartition

ReplicaList = tuple[int, ...]


class MoveState(StrEnum):
    """State of a partition's move."""

    DONE = "done"
    MOVING = "moving"
    WAITING = "waiting"
    CHANGED = "changed by others"
    GONE = "topic deleted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One partition of the plan."""

    topic_id: str
    before: ReplicaList
    target: ReplicaList

    @property
    def adding(self) -> ReplicaList:
        return tuple(b for b in self.target if b not in self.before)

    @property
    def removing(self) -> ReplicaList:
        return tuple(b for b in self.before if b not in self.target)


@dataclass(frozen=True, slots=True)
class CurrentReplicas:
    """The same partition in the cluster. `replicas` holds those that join and those that leave, too."""

    topic_id: str
    replicas: ReplicaList
    adding: ReplicaList
    removing: ReplicaList
    isr: ReplicaList
    leader: int


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    """A request to the controller. `cancel`: end these moves. `assign`: these lists."""

    assign: Mapping[TopicPartition, ReplicaList]
    cancel: Collection[TopicPartition]

    @property
    def nothing(self) -> bool:
        return not self.assign and not self.cancel


def move_state(move: PlannedMove, now: CurrentReplicas | None, *, refused: bool = False) -> MoveState:
    """State of one partition."""
    if now is None or now.topic_id != move.topic_id:
        return MoveState.GONE
    if now.adding or now.removing:
        goal = tuple(b for b in now.replicas if b not in now.removing)
        return MoveState.MOVING if goal == move.target else MoveState.CHANGED
    if now.replicas == move.target:
        return MoveState.DONE
    if refused:
        return MoveState.REFUSED
    return MoveState.WAITING if now.replicas == move.before else MoveState.CHANGED


def move_states(
    moves: Mapping[TopicPartition, PlannedMove],
    now: Mapping[TopicPartition, CurrentReplicas],
    refused: Collection[TopicPartition] = (),
) -> dict[TopicPartition, MoveState]:
    """All of a plan."""
    return {tp: move_state(move, now.get(tp), refused=tp in refused) for tp, move in moves.items()}


def next_batch(
    moves: Mapping[TopicPartition, PlannedMove], states: Mapping[TopicPartition, MoveState], *, at_once: int
) -> ReassignmentRequest:
    """As many waiting partitions as may move beside those that do."""
    free = at_once - sum(state is MoveState.MOVING for state in states.values())
    waiting = [tp for tp, state in states.items() if state is MoveState.WAITING]
    return ReassignmentRequest({tp: moves[tp].target for tp in waiting[: max(0, free)]}, ())


def rollback_request(
    moves: Mapping[TopicPartition, PlannedMove],
    now: Mapping[TopicPartition, CurrentReplicas],
    states: Mapping[TopicPartition, MoveState],
) -> ReassignmentRequest:
    """Ends the moves of this plan. A cancelled move leaves the list without the joining ones in another order than it
    had (KIP-455 keeps the wanted order), so the old list is asked for afterwards: the preferred leader is back then.
    """
    cancel = [tp for tp, state in states.items() if state is MoveState.MOVING]
    reorder = {
        tp: moves[tp].before
        for tp, state in states.items()
        if state is MoveState.CHANGED and not now[tp].adding and not now[tp].removing
        if sorted(now[tp].replicas) == sorted(moves[tp].before)
    }
    return ReassignmentRequest(reorder, cancel)
