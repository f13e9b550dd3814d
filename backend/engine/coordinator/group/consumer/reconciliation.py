"""One step of a member towards its target: what it must give up first, what it gets, what others still hold.

A partition is assigned only when no other member owns it, and a member owns it until it has said that it does not
(KIP-848). Kafka: `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from backend.engine.coordinator.group.consumer.consumer_group import Current, MemberState
from backend.engine.coordinator.topics_view import AssignablePartition


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a member, and the facts that its next step depends on.

    `target` may name topics that it does not subscribe to any more: `subscribed` decides. `owned` is what the member
    says it has, None when it says nothing. `owned_by_others` gives the partitions of other members, only when needed.
    """

    epoch: int
    target: frozenset[AssignablePartition]
    subscribed: frozenset[bytes]
    subscription_changed: bool
    owned: frozenset[AssignablePartition] | None
    owned_by_others: Callable[[], frozenset[AssignablePartition]]


def reconcile(current: Current, goal: Goal) -> Current:
    """The member's next assignment; the same value when it cannot move."""
    if current.state is MemberState.STABLE:
        if current.epoch != goal.epoch:
            return _advance(current, goal)
        return _drop_unsubscribed(current, goal) if goal.subscription_changed else current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(goal.owned, current.revoking):
        return _drop_unsubscribed(current, goal) if goal.subscription_changed else current
    return _advance(current, goal)


def _still_owns(owned: frozenset[AssignablePartition] | None, revoked: Collection[AssignablePartition]) -> bool:
    return owned is None or not owned.isdisjoint(revoked)


def _drop_unsubscribed(current: Current, goal: Goal) -> Current:
    """Its topics changed and the new target is not there yet: what it does not want any more goes."""
    unsubscribed = {
        partition: epoch for partition, epoch in current.assigned.items() if partition[0] not in goal.subscribed
    }
    if not unsubscribed:
        return current
    assigned = {partition: epoch for partition, epoch in current.assigned.items() if partition not in unsubscribed}
    revoking = {**current.revoking, **unsubscribed}
    if _still_owns(goal.owned, revoking):
        return _moved(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return replace(current, previous_epoch=current.epoch, assigned=assigned)


def _advance(current: Current, goal: Goal) -> Current:
    target = frozenset(partition for partition in goal.target if partition[0] in goal.subscribed)
    assigned = {partition: epoch for partition, epoch in current.assigned.items() if partition in target}
    revoking = {partition: epoch for partition, epoch in current.assigned.items() if partition not in target}
    if revoking and _still_owns(goal.owned, revoking):
        return _moved(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    missing = target - assigned.keys()
    unreleased = missing & goal.owned_by_others() if missing else frozenset()
    assigned.update(dict.fromkeys(missing - unreleased, goal.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(current, goal.epoch, state, assigned, {})


def _moved(
    current: Current,
    epoch: int,
    state: MemberState,
    assigned: Mapping[AssignablePartition, int],
    revoking: Mapping[AssignablePartition, int],
) -> Current:
    moved = Current(epoch, current.epoch, state, assigned, revoking)
    # A member that waits on stays as it is, and nothing has to be stored.
    return current if replace(moved, previous_epoch=current.previous_epoch) == current else moved
