"""A leader's view of its followers, and the decisions from it: caught-up times, ISR changes, high watermark.

Pure: `replica_progress` holds these values, calls these functions and carries their decisions out.
Kafka: `Partition` and `Replica` (KIP-497 AlterPartition, KIP-966 min ISR rule of the high watermark).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicIdPartition

UNKNOWN_OFFSET: Final = -1
NO_EPOCH: Final = -1


class ReplicaState(NamedTuple):
    """The leader's view of one follower. Offsets are -1 until the follower has fetched from this leader."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    # The leader's end and the time at the follower's previous fetch: reaching that end later means that the
    # follower was caught up then.
    last_fetch_leader_end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: float = 0.0
    last_caught_up_ms: float = 0.0
    broker_epoch: int = NO_EPOCH

    def after_fetch(
        self, *, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: float, broker_epoch: int
    ) -> ReplicaState:
        """A successful read at `fetch_offset`: all below it is on the follower's disk (Replica.updateFetchState)."""
        caught_up_ms = self.last_caught_up_ms
        if fetch_offset >= leader_end_offset:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            caught_up_ms = max(caught_up_ms, self.last_fetch_ms)
        return ReplicaState(
            fetch_offset,
            log_start_offset,
            max(leader_end_offset, self.last_fetch_leader_end_offset),
            now_ms,
            caught_up_ms,
            broker_epoch,
        )

    def caught_up_at(self, at_ms: float) -> ReplicaState:
        """A read at the leader's end that has not moved since the read before."""
        return self._replace(
            last_fetch_ms=max(self.last_fetch_ms, at_ms), last_caught_up_ms=max(self.last_caught_up_ms, at_ms)
        )

    def is_caught_up(self, *, leader_end_offset: int, now_ms: float, lag_max_ms: float) -> bool:
        """At the leader's end now, or so short a time ago that it may stay in the ISR."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


def new_leader_replica(*, in_isr: bool, now_ms: float) -> ReplicaState:
    """A follower as a new leader sees it: members of the ISR get the full lag time before they count as late."""
    return ReplicaState(last_caught_up_ms=now_ms if in_isr else 0.0)


class IsrChange(Enum):
    """The change that an AlterPartition in flight asks for."""

    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class IsrState:
    """The committed ISR and the one change that waits for the controller's answer."""

    committed: frozenset[int]
    proposed: frozenset[int] | None = None
    change: IsrChange | None = None

    @property
    def in_flight(self) -> bool:
        return self.proposed is not None

    @property
    def maximal(self) -> frozenset[int]:
        """All brokers that may be in the ISR once the change in flight is answered: acknowledged data reaches them."""
        return self.committed if self.proposed is None else self.committed | self.proposed

    def expand(self, replica: int) -> IsrState:
        """Asks for one more member."""
        return IsrState(self.committed, self.committed | {replica}, IsrChange.EXPAND)

    def shrink(self, late: Iterable[int]) -> IsrState:
        """Asks for fewer members."""
        return IsrState(self.committed, self.committed - set(late), IsrChange.SHRINK)

    def rolled_back(self) -> IsrState:
        """The change was refused and never applied."""
        return IsrState(self.committed)


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that a leader asks the controller for, with the epochs of its members' brokers."""

    topic_id_partition: TopicIdPartition
    brokers: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int
    change: IsrChange

    @property
    def members(self) -> frozenset[int]:
        return frozenset(broker for broker, _ in self.brokers)


def high_watermark_candidate(
    *,
    leader_end_offset: int,
    replicas: Mapping[int, ReplicaState],
    isr: IsrState,
    is_eligible: Callable[[int], bool],
    now_ms: float,
    lag_max_ms: float,
) -> int:
    """The offset below which every replica that counts has the data; the caller never lowers its high watermark to it.

    A caught-up replica outside the ISR counts too: otherwise it could never reach the high watermark of a busy leader.
    """
    candidate = leader_end_offset
    maximal = isr.maximal
    for replica, state in replicas.items():
        if state.log_end_offset < candidate and (
            replica in maximal
            or (
                state.is_caught_up(leader_end_offset=leader_end_offset, now_ms=now_ms, lag_max_ms=lag_max_ms)
                and is_eligible(replica)
            )
        ):
            candidate = state.log_end_offset
    return candidate


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """`min.insync.replicas`, but never more than there are replicas."""
    return min(min_insync_replicas, replica_count)


def can_join_isr(
    *,
    replica: int,
    state: ReplicaState,
    isr: IsrState,
    high_watermark: int,
    epoch_start_offset: int,
    is_eligible: Callable[[int], bool],
) -> bool:
    """Whether to ask for the follower's admission: it has all that is committed or older than this leader's epoch."""
    return (
        not isr.in_flight
        and replica not in isr.committed
        and state.log_end_offset >= high_watermark
        and state.log_end_offset >= epoch_start_offset
        and is_eligible(replica)
    )


def late_replicas(
    *,
    leader: int,
    replicas: Mapping[int, ReplicaState],
    isr: IsrState,
    leader_end_offset: int,
    now_ms: float,
    lag_max_ms: float,
) -> frozenset[int]:
    """ISR members that are behind and were not caught up for `lag_max_ms`; none while a change is in flight."""
    if isr.in_flight:
        return frozenset()
    return frozenset(
        member
        for member in isr.committed
        if member != leader
        and not (
            member in replicas
            and replicas[member].is_caught_up(leader_end_offset=leader_end_offset, now_ms=now_ms, lag_max_ms=lag_max_ms)
        )
    )


def acknowledged(*, required_offset: int, high_watermark: int, isr: IsrState, min_isr: int) -> ErrorCode | None:
    """State of an acks=all append that ends before `required_offset`: None while it must wait, else its error code."""
    if high_watermark < required_offset:
        return None
    return ErrorCode.NONE if len(isr.maximal) >= min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def low_watermark(*, log_start_offset: int, replicas: Mapping[int, ReplicaState], alive: Callable[[int], bool]) -> int:
    """The smallest log start of the leader and the alive followers; one that never fetched holds it at -1."""
    return min([log_start_offset, *(state.log_start_offset for replica, state in replicas.items() if alive(replica))])


class AlterVerdict(Enum):
    """The reaction to an ISR change that the controller did not carry out."""

    RETRY = "retry"
    ROLL_BACK = "roll back"
    WAIT_FOR_METADATA = "wait for metadata"


# The request was surely not applied.
_NOT_APPLIED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Our view is older than the controller's: its newer record is on its way and will decide.
_STALE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def alter_verdict(error: ErrorCode) -> AlterVerdict:
    """The meaning of a partition's error in an AlterPartition response (Partition.handleAlterPartitionError)."""
    if error in _NOT_APPLIED:
        return AlterVerdict.ROLL_BACK
    if error in _STALE:
        return AlterVerdict.WAIT_FOR_METADATA
    return AlterVerdict.RETRY
