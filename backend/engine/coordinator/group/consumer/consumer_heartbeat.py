"""Heartbeats of the consumer group protocol as functions: (group, event, topics) → group and answer (KIP-848).

A heartbeat joins, keeps, changes or ends a membership; every one brings its member one step nearer to the target.
Refusals are KafkaError and change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from backend.engine.coordinator.group.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    Current,
    MemberState,
    Subscription,
)
from backend.engine.coordinator.group.consumer.consumer_group_update import ConsumerGroupUpdate, ConsumerLimits
from backend.engine.coordinator.name_regex import check_regex
from backend.engine.coordinator.topics_view import AssignablePartition, TopicsView
from backend.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat; None is "as before". `now_ms` never goes back, `time_ms` is the wall clock."""

    now_ms: float
    time_ms: int
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[AssignablePartition] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the request has all fields, so that the response has the whole assignment."""
        complete = self.rebalance_timeout_ms != -1 and self.owned is not None
        return self.epoch == JOIN_EPOCH or (complete and (self.topics is not None or self.regex is not None))


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """Answer to a heartbeat; the assignment is None while it has not changed."""

    member_id: str
    epoch: int
    assignment: frozenset[AssignablePartition] | None = None


def heartbeat(
    group: ConsumerGroup, event: ConsumerHeartbeat, topics: TopicsView, limits: ConsumerLimits
) -> tuple[ConsumerGroup, HeartbeatResult]:
    """Joins or goes on. Raises KafkaError."""
    update = ConsumerGroupUpdate(group, topics, limits, event.now_ms, event.time_ms)
    update.refuse_when_full(event.member_id)
    member = _member(update, event)
    before = member.current
    subscription = _subscription(member.subscription, event)
    if subscription.regex and subscription.regex != member.subscription.regex:
        check_regex(subscription.regex)
    member, changed = update.subscribe(member, subscription)
    update.assign()
    member = update.advance(member, subscription_changed=changed, owned=event.owned)
    # It may have come from the classic protocol, whose time-outs do not bind it any more.
    deadline_ms = event.now_ms + limits.session_timeout_ms
    member = replace(member, session_deadline_ms=deadline_ms, join_deadline_ms=None, sync_deadline_ms=None)
    update.members[member.member_id] = member
    current = member.current
    with_assignment = event.is_full or current.assigned.keys() != before.assigned.keys()
    assignment = frozenset(current.assigned) if with_assignment else None
    return update.group(), HeartbeatResult(member.member_id, current.epoch, assignment)


def _member(update: ConsumerGroupUpdate, event: ConsumerHeartbeat) -> ConsumerMember:
    joins = event.epoch == JOIN_EPOCH
    if event.instance_id is None:
        if joins:
            return update.members.get(event.member_id, ConsumerMember(event.member_id))
        member = update.find(event.member_id)
    elif joins:
        return update.join_static(event.instance_id, event.member_id, by_classic=False)
    else:
        member = update.find_static(event.instance_id, event.member_id)
    _check_epoch(member.current, event)
    return member


def _check_epoch(current: Current, event: ConsumerHeartbeat) -> None:
    """An epoch before the last answer passes when that answer may have got lost."""
    behind = event.epoch < current.epoch
    retried = behind and event.epoch == current.previous_epoch
    if event.epoch == current.epoch or (retried and event.owned is not None and event.owned <= current.assigned.keys()):
        return
    which = "smaller" if behind else "greater"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({event.epoch}) than the one known by the group "
        f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _subscription(old: Subscription, event: ConsumerHeartbeat) -> Subscription:
    return Subscription(
        client_id=event.client_id,
        client_host=event.client_host,
        instance_id=old.instance_id if event.instance_id is None else event.instance_id,
        rack_id=old.rack_id if event.rack_id is None else event.rack_id,
        topics=old.topics if event.topics is None else event.topics,
        regex=old.regex if event.regex is None else event.regex,
        rebalance_timeout_ms=old.rebalance_timeout_ms
        if event.rebalance_timeout_ms == -1
        else event.rebalance_timeout_ms,
        assignor=old.assignor if event.assignor is None else event.assignor,
    )


def leaving(
    group: ConsumerGroup, event: ConsumerHeartbeat, topics: TopicsView, limits: ConsumerLimits
) -> ConsumerMember:
    """The member that a heartbeat with a leave epoch speaks for. Raises KafkaError."""
    update = ConsumerGroupUpdate(group, topics, limits, event.now_ms, event.time_ms)
    if event.instance_id is None:
        return update.find(event.member_id)
    return update.find_static(event.instance_id, event.member_id)


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember) -> ConsumerGroup:
    """A static member that will come back: its partitions wait for it until its session ends."""
    current = replace(member.current, epoch=LEAVE_STATIC_EPOCH, revoking={})
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        # Nothing is left to give up.
        current = replace(current, state=MemberState.STABLE)
    away = replace(member, current=current, rebalance_deadline_ms=None)
    return replace(group, members={**group.members, member.member_id: away})


def without(
    group: ConsumerGroup, member_ids: Collection[str], topics: TopicsView, limits: ConsumerLimits
) -> ConsumerGroup:
    """The group after members left or were fenced."""
    update = ConsumerGroupUpdate(group, topics, limits, 0.0, 0)
    update.remove(member_ids)
    return update.group()


def resumed(group: ConsumerGroup, now_ms: float, session_timeout_ms: int) -> ConsumerGroup:
    """A group read back from the log: its members' times begin now."""
    return replace(
        group, members={name: _resumed(member, now_ms, session_timeout_ms) for name, member in group.members.items()}
    )


def _resumed(member: ConsumerMember, now_ms: float, session_timeout_ms: int) -> ConsumerMember:
    subscription = member.subscription
    if subscription.classic is not None:
        return replace(member, session_deadline_ms=now_ms + subscription.classic.session_timeout_ms)
    revokes = member.current.state is MemberState.UNREVOKED_PARTITIONS
    rebalance_deadline_ms = now_ms + subscription.rebalance_timeout_ms if revokes else None
    return replace(member, session_deadline_ms=now_ms + session_timeout_ms, rebalance_deadline_ms=rebalance_deadline_ms)


def expired(group: ConsumerGroup, now_ms: float) -> list[str]:
    """Members whose time is up."""
    return [
        member.member_id
        for member in group.members.values()
        if member.deadline_ms is not None and member.deadline_ms <= now_ms
    ]


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Collection[AssignablePartition], version: int | None
) -> ErrorCode:
    """Whether a member may commit offsets of partitions; `version` is OffsetCommit's, None inside a transaction.

    An epoch before the member's is good for partitions that it has had since then (KIP-1251).
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if version is None and epoch == -1 and not member_id:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if version is not None and version < 9 and not member.is_classic:
        return ErrorCode.UNSUPPORTED_VERSION
    current = member.current
    if epoch == current.epoch:
        return ErrorCode.NONE
    owned: Mapping[AssignablePartition, int] = {**current.assigned, **current.revoking}
    since = [owned.get(partition) for partition in partitions]
    if epoch < current.epoch and all(since_epoch is not None and since_epoch <= epoch for since_epoch in since):
        return ErrorCode.NONE
    return stale(member)


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Whether a member may fetch its offsets; without member id and epoch anybody may."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.current.epoch else stale(member)


def stale(member: ConsumerMember) -> ErrorCode:
    """An epoch that is not the member's, in the words of its protocol."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
