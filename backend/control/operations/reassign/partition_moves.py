"""Where each partition of a reassignment stands, and what is to be asked next. Pure.

The controller's replica list during a move is the wanted one followed by those that leave (KIP-455), so the list
without the leaving ones tells whose move it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from backend.tiering.ids import TopicPartition

Replicas = tuple[int, ...]


class Standing(StrEnum):
    """How far a partition is."""

    DONE = "done"
    MOVING = "moving"
    WAITING = "waiting"
    CHANGED = "changed by others"
    GONE = "topic deleted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Aim:
    """One partition of the plan."""

    topic_id: str
    before: Replicas
    target: Replicas

    @property
    def adding(self) -> Replicas:
        return tuple(b for b in self.target if b not in self.before)

    @property
    def removing(self) -> Replicas:
        return tuple(b for b in self.before if b not in self.target)


@dataclass(frozen=True, slots=True)
class Now:
    """The same partition in the cluster. `replicas` holds those that join and those that leave, too."""

    topic_id: str
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    isr: Replicas
    leader: int


@dataclass(frozen=True, slots=True)
class Ask:
    """What to ask the controller for. `cancel`: end these moves. `assign`: these lists."""

    assign: Mapping[TopicPartition, Replicas]
    cancel: Collection[TopicPartition]

    @property
    def nothing(self) -> bool:
        return not self.assign and not self.cancel


def standing(aim: Aim, now: Now | None, *, refused: bool = False) -> Standing:
    """Where one partition stands."""
    if now is None or now.topic_id != aim.topic_id:
        return Standing.GONE
    if now.adding or now.removing:
        goal = tuple(b for b in now.replicas if b not in now.removing)
        return Standing.MOVING if goal == aim.target else Standing.CHANGED
    if now.replicas == aim.target:
        return Standing.DONE
    if refused:
        return Standing.REFUSED
    return Standing.WAITING if now.replicas == aim.before else Standing.CHANGED


def standings(
    aims: Mapping[TopicPartition, Aim], now: Mapping[TopicPartition, Now], refused: Collection[TopicPartition] = ()
) -> dict[TopicPartition, Standing]:
    """All of a plan."""
    return {tp: standing(aim, now.get(tp), refused=tp in refused) for tp, aim in aims.items()}


def next_batch(aims: Mapping[TopicPartition, Aim], stand: Mapping[TopicPartition, Standing], *, at_once: int) -> Ask:
    """As many waiting partitions as may move beside those that do."""
    free = at_once - sum(found is Standing.MOVING for found in stand.values())
    waiting = [tp for tp, found in stand.items() if found is Standing.WAITING]
    return Ask({tp: aims[tp].target for tp in waiting[: max(0, free)]}, ())


def way_back(
    aims: Mapping[TopicPartition, Aim], now: Mapping[TopicPartition, Now], stand: Mapping[TopicPartition, Standing]
) -> Ask:
    """Ends the moves of this plan. A cancelled move leaves the list without the joining ones in another order than it
    had (KIP-455 keeps the wanted order), so the old list is asked for afterwards: the preferred leader is back then.
    """
    cancel = [tp for tp, found in stand.items() if found is Standing.MOVING]
    reorder = {
        tp: aims[tp].before
        for tp, found in stand.items()
        if found is Standing.CHANGED and not now[tp].adding and not now[tp].removing
        if sorted(now[tp].replicas) == sorted(aims[tp].before)
    }
    return Ask(reorder, cancel)
