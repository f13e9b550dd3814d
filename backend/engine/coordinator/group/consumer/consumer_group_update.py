"""A consumer group while one event is applied to it: members come and go, subscriptions turn into a target assignment,
the target into what members own.

`consumer_heartbeat` has the heartbeats of KIP-848, `classic_members` the members of the classic protocol. Kafka:
`GroupMetadataManager.consumerGroup*`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Final

from backend.engine.coordinator.group.consumer.assignors import ASSIGNORS, MemberSpec
from backend.engine.coordinator.group.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    Current,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from backend.engine.coordinator.group.consumer.reconciliation import Goal, reconcile
from backend.engine.coordinator.name_regex import matching_topics
from backend.engine.coordinator.topics_view import AssignablePartition, TopicsView
from backend.protocol.errors import ErrorCode, KafkaError

# Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS: expressions are matched with new topics at most this often.
REGEX_REFRESH_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Settings of the coordinator that decide about consumer groups."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 2**31 - 1
    # Served assignors, the default first.
    assignors: tuple[str, ...] = ("uniform", "range")
    # A new target is computed at most this often; members that join together share one.
    assignment_interval_ms: int = 1000


class ConsumerGroupUpdate:
    """A group while one event is applied to it."""

    def __init__(
        self, group: ConsumerGroup, topics: TopicsView, limits: ConsumerLimits, now_ms: float, time_ms: int
    ) -> None:
        self.before = group
        self.topics = topics
        self.limits = limits
        self.now_ms, self.time_ms = now_ms, time_ms
        self.group_id = group.group_id
        self.epoch = group.epoch
        self.metadata_hash = group.metadata_hash
        self.assignment_epoch = group.assignment_epoch
        self.assignment_time_ms = group.assignment_time_ms
        self.members = dict(group.members)
        self.targets = dict(group.targets)
        self.regexes = dict(group.regexes)
        self.topics_version = group.topics_version

    def group(self) -> ConsumerGroup:
        values = {field.name: getattr(self, field.name) for field in fields(ConsumerGroup)}
        values |= {"members": dict(self.members), "targets": dict(self.targets), "regexes": dict(self.regexes)}
        return ConsumerGroup(**values)

    # Members

    def find(self, member_id: str) -> ConsumerMember:
        """Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member

    def find_static(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The holder of the instance id, which must be the member; raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = self.before.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            text = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, text)
        return member

    def refuse_when_full(self, member_id: str) -> None:
        if len(self.members) >= self.limits.members_max and member_id not in self.members:
            text = f"The consumer group has reached its maximum capacity of {self.limits.members_max} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)

    def join_static(self, instance_id: str, member_id: str, *, by_classic: bool) -> ConsumerMember:
        """A new static member, or a new id in the place of one that has left for a while (KIP-345)."""
        old = self.before.static_member(instance_id)
        if old is None:
            return self.members.get(member_id, ConsumerMember(member_id))
        if not by_classic and not old.is_classic and old.current.epoch != LEAVE_STATIC_EPOCH:
            text = (
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {old.member_id} member."
            )
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        del self.members[old.member_id]
        target = self.targets.pop(old.member_id, None)
        fresh = ConsumerMember(member_id, old.subscription, replace(old.current, epoch=JOIN_EPOCH, previous_epoch=0))
        self.members[member_id] = fresh
        if target is not None:
            self.targets[member_id] = target
        return fresh

    def remove(self, member_ids: Collection[str]) -> None:
        """Their partitions are free at once; the others' next heartbeat brings the new target."""
        if not member_ids:
            return
        for member_id in member_ids:
            del self.members[member_id]
            self.targets.pop(member_id, None)
        self._forget_regexes()
        self.metadata_hash = self.topics.fingerprint(self.group().subscribed_topics())
        self.epoch += 1

    # Subscriptions and the target

    def subscribe(self, member: ConsumerMember, subscription: Subscription) -> tuple[ConsumerMember, bool]:
        """The member with what it says of itself now, and whether it wants other topics; the epoch follows."""
        old = member.subscription
        changed = (old.topics, old.regex) != (subscription.topics, subscription.regex)
        member = self.members[member.member_id] = replace(member, subscription=subscription)
        self._resolve_regexes()
        if changed or self.topics_version != self.topics.version or self.regexes != self.before.regexes:
            metadata_hash = self.topics.fingerprint(self.group().subscribed_topics())
            if changed or metadata_hash != self.metadata_hash:
                self.epoch += 1
            self.metadata_hash = metadata_hash
            self.topics_version = self.topics.version
        return member, changed

    def _resolve_regexes(self) -> None:
        self._forget_regexes()
        for text in {member.subscription.regex for member in self.members.values()} - {""}:
            resolved = self.regexes.get(text)
            fresh = resolved is not None and resolved.version >= self.topics.names_version
            if resolved is None or (not fresh and self.time_ms - resolved.time_ms > REGEX_REFRESH_MS):
                topics = matching_topics(text, self.topics.by_name)
                self.regexes[text] = ResolvedRegex(topics, self.topics.names_version, self.time_ms)

    def _forget_regexes(self) -> None:
        subscribed = {member.subscription.regex for member in self.members.values()}
        self.regexes = {text: resolved for text, resolved in self.regexes.items() if text in subscribed}

    def assign(self) -> None:
        """A new target when the epoch is ahead of it, unless the last one is too young."""
        age_ms = self.time_ms - self.assignment_time_ms
        young = self.assignment_time_ms > 0 and age_ms < self.limits.assignment_interval_ms
        if self.epoch <= self.assignment_epoch or young:
            return
        group = self.group()
        specs = {
            member.member_id: MemberSpec(
                member.instance_id, self.topics.ids(group.subscribed(member)), group.target(member.member_id)
            )
            for member in self.members.values()
        }
        self.targets = dict(ASSIGNORS[self.assignor()](specs, self.topics.counts()))
        self.assignment_epoch = self.epoch
        self.assignment_time_ms = self.time_ms

    def assignor(self) -> str:
        """The assignor that most members ask for, else the default."""
        return preferred_assignor(self.group(), self.limits)

    # Members on their way

    def advance(
        self, member: ConsumerMember, *, subscription_changed: bool, owned: frozenset[AssignablePartition] | None
    ) -> ConsumerMember:
        """The member one step nearer to its target."""
        group = self.group()
        goal = Goal(
            epoch=self.assignment_epoch,
            target=group.target(member.member_id),
            subscribed=self.topics.ids(group.subscribed(member)),
            subscription_changed=subscription_changed,
            owned=owned,
            owned_by_others=lambda: group.owned_by_others(member.member_id),
        )
        current = reconcile(member.current, goal)
        if current is not member.current:
            member = replace(member, current=current, rebalance_deadline_ms=self._rebalance_deadline(member, current))
        self.members[member.member_id] = member
        return member

    def _rebalance_deadline(self, member: ConsumerMember, current: Current) -> float | None:
        """The deadline for revoking partitions; the classic protocol has its join and sync time-outs instead."""
        if member.is_classic or current.state is not MemberState.UNREVOKED_PARTITIONS:
            return None
        return self.now_ms + member.subscription.rebalance_timeout_ms


def preferred_assignor(group: ConsumerGroup, limits: ConsumerLimits) -> str:
    """The assignor that most members ask for, else the default."""
    preferences = [member.subscription.assignor for member in group.members.values()]
    votes = {name: preferences.count(name) for name in limits.assignors if name in preferences}
    return max(votes, key=lambda name: votes[name]) if votes else limits.assignors[0]
