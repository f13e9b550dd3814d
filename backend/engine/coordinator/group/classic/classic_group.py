"""Values of the classic group protocol: members, groups, what happens to them and what follows.

KIP-62 (two time-outs), KIP-345 (static members), KIP-394 (member ids first), KIP-814 (leaders that skip assigning).
Times are milliseconds of a clock that never goes back. `token` names a request that waits for its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from backend.protocol.errors import ErrorCode

NO_GENERATION: Final = -1
UNKNOWN_MEMBER: Final = ""


class GroupState(StrEnum):
    """States under the names that DescribeGroups shows. Dead is a group that does not exist."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# A state may lead to these; staying in a state is no transition.
LEGAL: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member. While one of its requests waits, its silence is no reason to drop it, unless it is new."""

    member_id: str
    instance_id: str | None  # group.instance.id of a static member
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # (name, metadata), preferred first
    assignment: bytes = b""
    session_deadline_ms: float = 0.0
    join_token: int | None = None
    sync_token: int | None = None
    # Has not received its first generation, so its client may be gone unnoticed.
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def expires_ms(self) -> float | None:
        """The end of its session if it stays silent; None while it waits for a response."""
        waits = self.join_token is not None or self.sync_token is not None
        return None if waits and not self.is_new else self.session_deadline_ms

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol; empty when it does not speak that protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


def static_member(members: Mapping[str, Member], instance_id: str | None) -> Member | None:
    """The member that holds a group.instance.id (KIP-345); None for None."""
    if instance_id is None:
        return None
    return next((member for member in members.values() if member.instance_id == instance_id), None)


@dataclass(frozen=True, slots=True)
class Group:
    """One group. `members` keeps the order in which they came."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    # Ids given out under KIP-394 that have not joined yet, with the time until which they may.
    pending: Mapping[str, float] = field(default_factory=dict)
    # PREPARING_REBALANCE: when it ends without those who have not joined.
    join_deadline_ms: float | None = None
    # First rebalance of an empty group: how much longer newcomers may put it off, and whether one came since.
    initial_delay_left_ms: float | None = None
    new_member_added: bool = False
    # Members of the generation that have not asked for their assignment, and when they are dropped.
    to_sync: frozenset[str] = frozenset()
    sync_deadline_ms: float | None = None
    # The leader's assignments while they are being stored.
    storing: Mapping[str, bytes] | None = None

    @property
    def deadline_ms(self) -> float | None:
        """The time of the next `GroupTick`; None when no deadline runs."""
        times = [member.expires_ms for member in self.members.values()]
        times += [*self.pending.values(), self.join_deadline_ms, self.sync_deadline_ms]
        return min((time for time in times if time is not None), default=None)

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member that holds a group.instance.id."""
        return static_member(self.members, instance_id)

    def check(self) -> None:
        """Invariants; AssertionError when one is broken."""
        assert (self.leader is None) == (not self.members), self
        assert self.leader is None or self.leader in self.members, self
        assert self.state is not GroupState.EMPTY or not self.members, self
        assert self.members or self.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE), self
        assert not (self.members.keys() & self.pending.keys()), self
        assert (self.join_deadline_ms is not None) == (self.state is GroupState.PREPARING_REBALANCE), self
        assert (self.sync_deadline_ms is not None) == bool(self.to_sync), self
        assert self.to_sync <= self.members.keys(), self
        assert not self.to_sync or self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE), self
        for member in self.members.values():
            # In a stable group only a static member whose new id is being stored waits for its join.
            may_join = self.state is GroupState.PREPARING_REBALANCE or (
                self.state is GroupState.STABLE and member.is_static
            )
            assert member.join_token is None or may_join, self
            assert member.sync_token is None or self.state is GroupState.COMPLETING_REBALANCE, self
        ids = [member.instance_id for member in self.members.values() if member.instance_id is not None]
        assert len(ids) == len(set(ids)), self


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Settings of the coordinator that decide about groups."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 2**31 - 1


# Events


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup. `fresh_id` is the member id to give when the member has none."""

    token: int
    now_ms: float
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    fresh_id: str
    requires_known_member: bool  # version 4 and later (KIP-394)
    may_skip_assignment: bool  # version 9 and later (KIP-814)


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup; `assignments` come from the leader only."""

    token: int
    now_ms: float
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """A sign of life; commits of members count as one."""

    token: int
    now_ms: float
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup for (member id, instance id) pairs."""

    token: int
    now_ms: float
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class GroupTick:
    """Time has passed."""

    now_ms: float


@dataclass(frozen=True, slots=True)
class GroupStored:
    """A generation's assignments have reached the log, or have not."""

    now_ms: float
    generation: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class StaticStored:
    """The new id of a static member has reached the log, or has not."""

    now_ms: float
    replacement: StoreStatic
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Takeover:
    """The group has come from the consumer protocol (KIP-848): its members are to join again."""

    now_ms: float


GroupEvent = Join | Sync | GroupHeartbeat | Leave | GroupTick | GroupStored | StaticStored | Takeover


# Effects


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Answer to a join; `members` are (member id, instance id, metadata) for the leader, empty for others."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Answer to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class ReplyJoin:
    token: int
    result: JoinResult


@dataclass(frozen=True, slots=True)
class ReplySync:
    token: int
    result: SyncResult


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a heartbeat."""

    token: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ReplyLeave:
    """Answer to a leave: one code for each member asked about."""

    token: int
    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Write the group as it stands here to the log. With `report` the outcome comes back as `GroupStored`."""

    group: Group
    report: bool


@dataclass(frozen=True, slots=True)
class StoreStatic:
    """Write the group with the new id of a static member, which waits for that; comes back as `StaticStored`."""

    group: Group
    member_id: str
    join: Join
    old: Member


GroupEffect = ReplyJoin | ReplySync | Reply | ReplyLeave | StoreGroup | StoreStatic
