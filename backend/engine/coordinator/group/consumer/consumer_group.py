"""Values of the consumer group protocol (KIP-848): members, their assignments, groups.

Each part of a member is the content of one kind of record: `Subscription` its metadata, `Current` its assignment.
Deadlines are milliseconds of a clock that never goes back and are not stored. Names follow Kafka's `ConsumerGroup`,
`ConsumerGroupMember`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from backend.engine.coordinator.topics_view import AssignablePartition

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
# A static member that will come back soon.
LEAVE_STATIC_EPOCH: Final = -2
NO_PARTITIONS: Final[frozenset[AssignablePartition]] = frozenset()


class MemberState(IntEnum):
    """The state of a member's reconciliation with its target, as CurrentMemberAssignment stores it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has to give some up first
    UNRELEASED_PARTITIONS = 2  # others have to
    UNKNOWN = 127  # of a newer version


class ConsumerGroupState(StrEnum):
    """States under the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """The JoinGroup metadata of a member of the classic protocol; `protocols`: (name, metadata), preferred first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's description of itself. `classic` is there while it speaks the classic protocol."""

    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    topics: frozenset[str] = frozenset()
    regex: str = ""  # empty: none
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """A member's current assignment: partitions with the epoch in which it got them."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Mapping[AssignablePartition, int] = field(default_factory=dict)
    revoking: Mapping[AssignablePartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member with its deadlines: its session, giving partitions up, and the classic protocol's join and sync."""

    member_id: str
    subscription: Subscription = Subscription()
    current: Current = Current()
    session_deadline_ms: float | None = None
    rebalance_deadline_ms: float | None = None
    join_deadline_ms: float | None = None
    sync_deadline_ms: float | None = None

    @property
    def instance_id(self) -> str | None:
        return self.subscription.instance_id

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    @property
    def deadline_ms(self) -> float | None:
        """The next of its deadlines; None when none runs."""
        times = (self.session_deadline_ms, self.rebalance_deadline_ms, self.join_deadline_ms, self.sync_deadline_ms)
        return min((time for time in times if time is not None), default=None)

    def owns(self) -> Iterator[AssignablePartition]:
        """Partitions that no other member may have: assigned, or not given up yet."""
        yield from self.current.assigned
        yield from self.current.revoking


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """Topics that a regular expression matches, as of a version of the topics' names and a time of the wall clock."""

    topics: frozenset[str]
    version: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """One group.

    `epoch` goes up with what members subscribe to and the topics behind that; `assignment_epoch` is the one that
    `targets` were computed for. Both begin with 1, because a member's epoch 0 means that it has not joined.
    `topics_version` is the view of topics that `metadata_hash` was computed from.
    """

    group_id: str
    epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_time_ms: int = 0
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    targets: Mapping[str, frozenset[AssignablePartition]] = field(default_factory=dict)
    regexes: Mapping[str, ResolvedRegex] = field(default_factory=dict)
    topics_version: int = -1

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.is_reconciled(member) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def deadline_ms(self) -> float | None:
        """The next deadline of all members."""
        times = (member.deadline_ms for member in self.members.values())
        return min((time for time in times if time is not None), default=None)

    def is_reconciled(self, member: ConsumerMember) -> bool:
        current = member.current
        return current.state is MemberState.STABLE and current.epoch == self.assignment_epoch

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that holds a group.instance.id."""
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def target(self, member_id: str) -> frozenset[AssignablePartition]:
        return self.targets.get(member_id, NO_PARTITIONS)

    def subscribed(self, member: ConsumerMember) -> frozenset[str]:
        """Names of topics that a member wants; an expression that is not resolved yet matches none."""
        resolved = self.regexes.get(member.subscription.regex)
        return member.subscription.topics if resolved is None else member.subscription.topics | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        """The topics of all members."""
        return frozenset().union(*(self.subscribed(member) for member in self.members.values()))

    def owned_by_others(self, besides: str) -> frozenset[AssignablePartition]:
        """Partitions that members besides one own."""
        return frozenset(
            partition for member in self.members.values() if member.member_id != besides for partition in member.owns()
        )

    def check(self) -> None:
        """Invariants; AssertionError when one is broken."""
        owners: dict[AssignablePartition, str] = {}
        for member in self.members.values():
            for partition in member.owns():
                assert partition not in owners, f"{partition} of {owners[partition]} is {member.member_id}'s too"
                owners[partition] = member.member_id
            assert member.current.epoch <= self.epoch, self
            unrevoked = member.current.state is MemberState.UNREVOKED_PARTITIONS
            assert unrevoked == bool(member.current.revoking), member
        instances = [member.instance_id for member in self.members.values() if member.instance_id is not None]
        assert len(instances) == len(set(instances)), self
        assert self.assignment_epoch <= self.epoch, self
        assert self.targets.keys() <= self.members.keys(), self
        targeted = [partition for target in self.targets.values() for partition in target]
        assert len(targeted) == len(set(targeted)), self
