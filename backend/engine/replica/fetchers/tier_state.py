"""Plans for a follower whose offset the leader no longer has locally (KIP-405, KIP-1023).

Pure. A plan is a generator: it yields a question, is sent the answer, and returns what to do with the log; a failed
question is thrown into it and ends it. `tier_state_runner` asks the questions (Fetch's leader over the network, the
remote tier through the remote log manager) and carries the outcome out in one go. Nothing local is dropped before every
answer is there: both indexes of the remote segment are in hand (KAFKA-17249).

Kafka: `TierStateMachine`, `ReplicaFetcherThread.shouldFetchFromLastTieredOffset`. Where Kafka 4.3 can never join
(nothing valid in the remote tier while the flag is on) or loses the producers that it has downloaded, this follows
KIP-405 and KIP-1023 instead, unless `follower.fetch.tiered.compat=kafka`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from backend.engine.log.producers.producer_snapshot import encode_snapshot
from backend.engine.remote.manager.remote_aux_state import AuxState
from backend.engine.replica.fetch_data import EpochEnd
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.offset_timestamps import EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST

# The producer snapshot that Kafka 4.3 ends up with: it has registered an empty file of the same name, whose removal
# takes the downloaded one.
NO_PRODUCERS: Final = encode_snapshot(())


@dataclass(frozen=True, slots=True)
class FollowerView:
    """The follower at the moment of the decision.

    `last_tiered`: the flag, and the metadata version that gives followers ListOffsets 11.
    """

    log_end_offset: int
    remote_enabled: bool
    compacted: bool
    last_tiered: bool
    kafka_compat: bool = False


@dataclass(frozen=True, slots=True)
class LeaderOffset:
    """An answer to ListOffsets: -1 and -1 when the leader has none."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AskOffset:
    """ListOffsets with our replica id; answered by a LeaderOffset."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AskEpochEnd:
    """OffsetForLeaderEpoch; answered by an EpochEnd."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ReadAux:
    """Leader epochs and producer snapshot of the remote segment with this record; answered by an AuxState."""

    epoch: int
    offset: int
    target_offset: int


TierStateRequest = AskOffset | AskEpochEnd | ReadAux


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log to end here and go on."""

    offset: int


@dataclass(frozen=True, slots=True)
class ContinueAt:
    """The log is fine: fetch from here."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """Drop the whole log and begin at the leader's log start: nothing older can be read anywhere."""

    offset: int


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Drop the whole log and begin at `next_offset`, with the history below it known from the remote tier."""

    next_offset: int
    log_start_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    producer_snapshot: bytes | None
    lag: int


TierStateOutcome = TruncateTo | ContinueAt | StartAt | Rebuild
TierStatePlan = Generator[TierStateRequest, Any, TierStateOutcome]


class CannotBuild(Exception):
    """The remote tier cannot serve as our past yet; the message says what is missing."""


def last_tiered_applies(view: FollowerView, leader_end_offset: int) -> bool:
    """Whether to start behind the last tiered offset (KIP-1023): flag on, tiered, not compacted, we have nothing and
    the leader has something. An emptied replica that stands at an offset above 0 does not count as empty."""
    return (
        view.last_tiered
        and view.remote_enabled
        and not view.compacted
        and view.log_end_offset == 0
        and leader_end_offset != 0
    )


def out_of_range(view: FollowerView) -> TierStatePlan:
    """After OFFSET_OUT_OF_RANGE."""
    end: LeaderOffset = yield AskOffset(LATEST)
    if last_tiered_applies(view, end.offset):
        start: LeaderOffset = yield AskOffset(EARLIEST)
        return (yield from _start_behind(view, start, last_tiered=True))
    if end.offset < view.log_end_offset:
        return TruncateTo(end.offset)
    start = yield AskOffset(EARLIEST)
    if start.offset > view.log_end_offset:
        return StartAt(start.offset)
    return ContinueAt(view.log_end_offset)


def moved_to_tiered_storage(view: FollowerView) -> TierStatePlan:
    """After OFFSET_MOVED_TO_TIERED_STORAGE."""
    end: LeaderOffset = yield AskOffset(LATEST)
    start: LeaderOffset = yield AskOffset(EARLIEST)
    return (yield from _start_behind(view, start, last_tiered=last_tiered_applies(view, end.offset)))


def _start_behind(view: FollowerView, start: LeaderOffset, *, last_tiered: bool) -> TierStatePlan:
    target: LeaderOffset = yield from _target(start, last_tiered=last_tiered)
    if target.offset <= start.offset and not view.kafka_compat:
        # Nothing below the target is valid in the remote tier, so there is no past to rebuild.
        return StartAt(start.offset)
    if not view.remote_enabled:
        raise CannotBuild("the leader tiers this topic, but its configuration has not reached this broker yet")
    before = target.offset - 1
    epoch = yield from _epoch_of(target, before)
    aux: AuxState = yield ReadAux(epoch, before, target.offset)
    rebuild = yield from _agreeing_with_leader(aux, target)
    latest: LeaderOffset = yield AskOffset(LATEST)
    return Rebuild(
        rebuild.next_offset,
        start.offset,
        rebuild.leader_epochs,
        NO_PRODUCERS if view.kafka_compat else rebuild.producer_snapshot,
        max(0, latest.offset - rebuild.next_offset),
    )


def _target(start: LeaderOffset, *, last_tiered: bool) -> Generator[TierStateRequest, Any, LeaderOffset]:
    if last_tiered:
        pending: LeaderOffset = yield AskOffset(EARLIEST_PENDING_UPLOAD)
        if pending.offset >= 0:
            return pending
    local: LeaderOffset = yield AskOffset(EARLIEST_LOCAL)
    if last_tiered and local.offset != start.offset:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"the leader's local log starts at {local.offset}, but it does not know yet up to where it is tiered",
        )
    return local


def _epoch_of(target: LeaderOffset, before: int) -> Generator[TierStateRequest, Any, int]:
    """The leader epoch of the record before the target."""
    if target.epoch == 0:
        return 0
    if target.epoch < 0:
        raise CannotBuild(f"the leader does not know the epoch of offset {target.offset}")
    previous: EpochEnd = yield AskEpochEnd(target.epoch - 1)
    return previous.epoch if previous.end_offset > before else target.epoch


@dataclass(frozen=True, slots=True)
class _Past:
    next_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    producer_snapshot: bytes | None


def _agreeing_with_leader(aux: AuxState, target: LeaderOffset) -> Generator[TierStateRequest, Any, _Past]:
    """The aux state, unless its segment runs past the target into records that the leader never had.

    Segment boundaries differ between brokers, so a segment may end behind the target. One that a deposed leader copied
    may hold other records there; up to the target it is still our past, its producer state is not.
    """
    epochs = tuple(aux.leader_epochs)
    if aux.next_offset > target.offset:
        last_epoch = epochs[-1][0] if epochs else target.epoch
        end: EpochEnd = yield AskEpochEnd(last_epoch)
        if end.epoch != last_epoch or end.end_offset < aux.next_offset:
            kept = tuple(entry for entry in epochs if entry[1] < target.offset)
            return _Past(target.offset, kept, None)
    return _Past(aux.next_offset, epochs, aux.producer_snapshot)
