"""A follower's fetching of one partition: its state, and the meaning of each response of the leader.

Pure. `replica_fetcher` keeps one `FetchState` per partition, asks `decide` about every row of a Fetch response, carries
the decision out and records the result with the functions below. A decision that needs more questions to the leader or
to the remote tier (OFFSET_OUT_OF_RANGE, OFFSET_MOVED_TO_TIERED_STORAGE) is planned by `tier_state`.

Kafka's fetcher knows TRUNCATING and FETCHING and keeps the rest in its head; here the phase that a person sees is part
of the state (`backend.tiering.follower_phase`). A phase that follows failures stays until something succeeds, so that
a retry each second does not look like progress. Kafka: `AbstractFetcherThread`, `ReplicaFetcherThread` (KIP-101,
KIP-279, KIP-320, KIP-405).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from backend.engine.replica.fetch_data import EpochEnd
from backend.protocol.errors import ErrorCode
from backend.tiering.follower_phase import FollowerPhase

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1

# Errors of a leader that has yet to read the metadata which made us follow it, as after every creation of a topic: a
# matter of milliseconds, while acks=all waits for us. The first pause is this part of the back-off (31 ms of 1 s).
FIRST_PAUSE_PARTS: Final = 32
_LEADER_BEHIND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class FetchState(NamedTuple):
    """Position and phase of one follower partition.

    `resume_ms` (monotonic) is when a delayed partition may be asked for again; `busy` means that a plan of `tier_state`
    runs; both keep it out of fetches. `last_fetched_epoch` is -1 for a log without epochs.
    """

    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    truncating: bool
    phase: FollowerPhase
    since_ms: int
    lag: int | None = None
    target_offset: int = UNDEFINED_OFFSET
    evidence: str = ""
    attempts: int = 0
    resume_ms: float | None = None
    busy: bool = False

    @property
    def failed(self) -> bool:
        return self.phase is FollowerPhase.FAILED

    def is_ready(self, now_ms: float) -> bool:
        """Whether the next Fetch may ask for this partition (monotonic time)."""
        return (
            not self.busy
            and not self.truncating
            and self.phase is not FollowerPhase.FAILED
            and (self.resume_ms is None or self.resume_ms <= now_ms)
        )

    def matches(self, fetch_offset: int, leader_epoch: int) -> bool:
        """Whether an answer to a question asked with these values still concerns this state."""
        return self.fetch_offset == fetch_offset and self.leader_epoch == leader_epoch


def initial_state(
    *, log_end_offset: int, high_watermark: int, latest_epoch: int | None, leader_epoch: int, wall_ms: int
) -> FetchState:
    """The first state under a leader epoch. Without epochs only records below the high watermark are trusted."""
    if latest_epoch is None:
        return FetchState(
            high_watermark, leader_epoch, UNDEFINED_EPOCH, True, FollowerPhase.TRUNCATING, wall_ms,
            target_offset=high_watermark,
            evidence=f"no leader epochs on disk: cut back to the high watermark {high_watermark}",
        )  # fmt: skip
    return FetchState(log_end_offset, leader_epoch, latest_epoch, False, FollowerPhase.FETCHING, wall_ms)


@dataclass(frozen=True, slots=True)
class FetchPartitionResult:
    """One partition of a Fetch response, without its records."""

    error: ErrorCode
    high_watermark: int = UNDEFINED_OFFSET
    log_start_offset: int = UNDEFINED_OFFSET
    diverging: EpochEnd | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Append what came and take over high watermark and log start."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Our log left the leader's at or before the end of this epoch."""

    leader: EpochEnd


@dataclass(frozen=True, slots=True)
class ResolveOutOfRange:
    """Find out where to go on: `tier_state.out_of_range`."""


@dataclass(frozen=True, slots=True)
class ResolveTiered:
    """The leader has our offset only in the remote tier: `tier_state.moved_to_tiered_storage`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask again after the back-off; sooner at first when the leader seems to be `behind` (`pause_ms`)."""

    reason: str
    behind: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """Ask no more until new metadata arrives; `expected` when an election has brought it on its way."""

    reason: str
    expected: bool = False


FetchDecision = Append | Truncate | ResolveOutOfRange | ResolveTiered | Retry | Fail

_APPEND: Final = Append()
_OUT_OF_RANGE: Final = ResolveOutOfRange()
_TIERED: Final = ResolveTiered()


def decide(
    state: FetchState, row: FetchPartitionResult, *, request_leader_epoch: int, log_end_offset: int
) -> FetchDecision:
    """The reaction to a result that `matches` the state."""
    match row.error:
        case ErrorCode.NONE:
            if row.diverging is not None:
                return Truncate(row.diverging)
            if state.fetch_offset != log_end_offset:
                return Fail(f"the log ends at {log_end_offset}, but offset {state.fetch_offset} was asked for")
            return _APPEND
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return _OUT_OF_RANGE
        case ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return _TIERED
        case ErrorCode.FENCED_LEADER_EPOCH if request_leader_epoch == state.leader_epoch:
            return Fail(
                f"the leader has a newer epoch than {state.leader_epoch}; waiting for its metadata", expected=True
            )
        case _:
            return Retry(f"the leader answered {row.error.name}", behind=row.error in _LEADER_BEHIND)


def pause_ms(attempts: int, backoff_ms: float, *, behind: bool) -> float:
    """The pause in ms after so many failures before this one: doubles up to the back-off when `behind`."""
    if not behind:
        return backoff_ms
    # From 2**5 on it is the whole back-off.
    return min(backoff_ms, backoff_ms * (1 << min(attempts, 5)) / FIRST_PAUSE_PARTS)


@dataclass(frozen=True, slots=True)
class TruncationPoint:
    """The offset to truncate to; not `complete` when the next response may show an earlier divergence."""

    offset: int
    complete: bool


def truncation_point(
    leader: EpochEnd, *, fetch_offset: int, log_end_offset: int, own: EpochEnd | None
) -> TruncationPoint:
    """The end of our log's agreement with the leader's; `own` is our end of the leader's epoch, None: there is none."""
    if leader.end_offset == UNDEFINED_OFFSET:
        return TruncationPoint(fetch_offset, True)
    if leader.epoch == UNDEFINED_EPOCH or own is None or own.end_offset == UNDEFINED_OFFSET:
        return TruncationPoint(min(leader.end_offset, log_end_offset), True)
    if own.epoch != leader.epoch:
        return TruncationPoint(min(own.end_offset, log_end_offset), False)
    return TruncationPoint(min(own.end_offset, leader.end_offset, log_end_offset), True)


def must_keep(*, offset: int, high_watermark: int, lost_epoch: int, unclean_leader_epoch: int) -> bool:
    """Whether a follower must not truncate its log at an offset: what lies below its high watermark was acknowledged,
    and no leader lacks it unless an operator's unclean election (`unclean_leader_epoch`, -1 without any) has ended the
    history of its records. `lost_epoch` is the leader epoch of the last one below the high watermark.

    Kafka truncates, and says so in its log.
    """
    return offset < high_watermark and lost_epoch >= unclean_leader_epoch


def _in_phase(state: FetchState, phase: FollowerPhase, wall_ms: int) -> FetchState:
    return state if state.phase is phase else state._replace(phase=phase, since_ms=wall_ms)


def progressed(
    state: FetchState, *, next_offset: int, last_epoch: int, lag: int | None, in_isr: bool, wall_ms: int
) -> FetchState:
    """A fetch succeeded, with or without records: the log ends at `next_offset` now."""
    phase = FollowerPhase.IN_SYNC if in_isr else FollowerPhase.FETCHING
    if (
        state.fetch_offset == next_offset
        and state.last_fetched_epoch == last_epoch
        and state.lag == lag
        and state.phase is phase
        and state.attempts == 0
    ):
        return state
    return FetchState(
        next_offset,
        state.leader_epoch,
        last_epoch,
        False,
        phase,
        state.since_ms if state.phase is phase else wall_ms,
        lag,
    )


def moved(
    state: FetchState, *, offset: int, last_epoch: int, lag: int | None, evidence: str, wall_ms: int
) -> FetchState:
    """The log was truncated or replaced and now ends at `offset`: fetch from there."""
    return _in_phase(
        state._replace(
            fetch_offset=offset, last_fetched_epoch=last_epoch, truncating=False, lag=lag,
            target_offset=offset, evidence=evidence, attempts=0, resume_ms=None, busy=False,
        ),
        FollowerPhase.FETCHING,
        wall_ms,
    )  # fmt: skip


def truncating(state: FetchState, *, target_offset: int, evidence: str, wall_ms: int) -> FetchState:
    """About to truncate the log."""
    return _in_phase(state._replace(target_offset=target_offset, evidence=evidence), FollowerPhase.TRUNCATING, wall_ms)


def planning(state: FetchState) -> FetchState:
    """A plan of `tier_state` starts; the phase stays until the plan knows its target."""
    return state._replace(busy=True, resume_ms=None)


def building(state: FetchState, *, target_offset: int, evidence: str, wall_ms: int) -> FetchState:
    """The plan knows its target and reads the remote tier. After failures the phase keeps showing them."""
    noted = state._replace(target_offset=target_offset, evidence=evidence if state.attempts == 0 else state.evidence)
    return noted if state.attempts else _in_phase(noted, FollowerPhase.BUILDING_REMOTE_AUX, wall_ms)


def delayed(state: FetchState, reason: str, *, resume_ms: float, wall_ms: int) -> FetchState:
    """An attempt failed: nothing until `resume_ms`."""
    noted = state._replace(evidence=reason, attempts=state.attempts + 1, resume_ms=resume_ms, busy=False)
    return _in_phase(noted, FollowerPhase.DELAYED, wall_ms)


def waiting(state: FetchState, reason: str, *, resume_ms: float, wall_ms: int) -> FetchState:
    """Remote log metadata has to catch up, which its plan waits for (`waited`), at most until `resume_ms`."""
    noted = state._replace(evidence=reason, attempts=state.attempts + 1, resume_ms=resume_ms, busy=True)
    return _in_phase(noted, FollowerPhase.WAITING_FOR_METADATA, wall_ms)


def waited(state: FetchState, *, ready: bool) -> FetchState:
    """The metadata is read: the next fetch asks again at once. If it is not, the back-off stays."""
    return state._replace(resume_ms=None if ready else state.resume_ms, busy=False)


def failed(state: FetchState, reason: str, *, wall_ms: int) -> FetchState:
    """No retry can help before new metadata."""
    return _in_phase(
        state._replace(evidence=reason, attempts=state.attempts + 1, resume_ms=None, busy=False),
        FollowerPhase.FAILED,
        wall_ms,
    )


def with_isr(state: FetchState, *, in_isr: bool, wall_ms: int) -> FetchState:
    """Metadata says whether we are in the ISR; only a healthy partition's phase follows it."""
    if in_isr and state.phase is FollowerPhase.FETCHING:
        return _in_phase(state, FollowerPhase.IN_SYNC, wall_ms)
    if not in_isr and state.phase is FollowerPhase.IN_SYNC:
        return _in_phase(state, FollowerPhase.FETCHING, wall_ms)
    return state
