"""Every combination of follower, settings and leader that can meet, played against a leader that answers by its state.

`test_tier_state` has the dialogues of single rows; here the rules hold for all rows at once (KIP-405, KIP-1023).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from backend.engine.replica.fetch_data import EpochEnd
from backend.engine.replica.fetchers.tier_state import (
    NO_PRODUCERS,
    AskEpochEnd,
    AskOffset,
    CannotBuild,
    ContinueAt,
    FollowerView,
    LeaderOffset,
    ReadAux,
    Rebuild,
    StartAt,
    TierStateOutcome,
    TierStatePlan,
    TierStateRequest,
    TruncateTo,
    last_tiered_applies,
    moved_to_tiered_storage,
    out_of_range,
)
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.offset_timestamps import EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST

SEGMENT = 3
EPOCH_1_STARTS = 4


@dataclass(frozen=True)
class Aux:
    next_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    producer_snapshot: bytes | None = b"producers"


@dataclass(frozen=True)
class Leader:
    """Local `[local_start, end)`; segments of three are in the remote tier from `remote_start` to below `tiered`.

    `knows` is False while a new leader has not looked up what is tiered.
    """

    log_start: int
    local_start: int
    end: int
    remote_start: int
    tiered: int
    knows: bool = True

    def offset(self, timestamp: int, *, kafka: bool) -> LeaderOffset:
        if timestamp == EARLIEST_PENDING_UPLOAD:
            return self._pending(kafka=kafka)
        offset = {LATEST: self.end, EARLIEST: self.log_start, EARLIEST_LOCAL: self.local_start}[timestamp]
        return LeaderOffset(offset, self._epoch(offset))

    def _pending(self, *, kafka: bool) -> LeaderOffset:
        if not self.knows or self.tiered == 0:
            all_local = self.local_start == self.log_start
            return LeaderOffset(self.log_start, self._epoch(self.log_start)) if all_local else LeaderOffset(-1, -1)
        pending = max(self.tiered, self.log_start)
        if kafka and pending == self.end:
            return LeaderOffset(-1, -1)
        return LeaderOffset(pending, self._epoch(pending))

    @staticmethod
    def _epoch(offset: int) -> int:
        return 1 if offset >= EPOCH_1_STARTS else 0

    def epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(epoch, min(EPOCH_1_STARTS, self.end) if epoch == 0 else self.end)

    def aux(self, offset: int) -> Aux:
        if not self.remote_start <= offset < self.tiered:
            raise CannotBuild(f"no segment with offset {offset}")
        end = offset // SEGMENT * SEGMENT + SEGMENT
        return Aux(end, tuple(entry for entry in ((0, 0), (1, EPOCH_1_STARTS)) if entry[1] < end))


LEADERS = (
    Leader(0, 0, 0, 0, 0),
    Leader(0, 0, 20, 0, 0),
    Leader(0, 0, 20, 0, 6),
    Leader(0, 6, 20, 0, 6),
    Leader(0, 6, 20, 0, 15),
    Leader(0, 6, 20, 0, 15, knows=False),
    Leader(0, 18, 18, 0, 18),
    Leader(0, 18, 18, 0, 18, knows=False),
    Leader(4, 6, 20, 3, 12),
    Leader(7, 7, 20, 7, 6),
    Leader(7, 7, 7, 7, 6),
    Leader(6, 6, 20, 6, 6),
    Leader(6, 12, 13, 6, 12),
    Leader(10, 10, 10, 10, 0),
    Leader(10, 10, 20, 10, 0),
)


@dataclass
class Played:
    view: FollowerView
    leader: Leader
    requests: list[TierStateRequest]
    outcome: TierStateOutcome | None = None
    refusal: Exception | None = None


def play(plan: TierStatePlan, view: FollowerView, leader: Leader) -> Played:
    """A plan to its end; its questions, and what came of it."""
    played = Played(view, leader, [])
    try:
        question = next(plan)
        while True:
            played.requests.append(question)
            answer: object
            match question:
                case AskOffset(timestamp=timestamp):
                    answer = leader.offset(timestamp, kafka=view.kafka_compat)
                case AskEpochEnd(epoch=epoch):
                    answer = leader.epoch_end(epoch)
                case ReadAux(offset=offset):
                    answer = leader.aux(offset)
            question = plan.send(answer)
    except StopIteration as end:
        played.outcome = end.value
    except (CannotBuild, KafkaError) as error:
        played.refusal = error
    return played


def plays() -> Iterator[Played]:
    """All that can meet: a follower is refused below the local log (109), or outside of the whole log (1)."""
    switches = product((False, True), repeat=4)
    for leader, log_end, (flag, tiered, compacted, kafka) in product(LEADERS, (0, 3, 8, 25), switches):
        view = FollowerView(
            log_end_offset=log_end, remote_enabled=tiered, compacted=compacted, last_tiered=flag, kafka_compat=kafka
        )
        if log_end < leader.log_start or log_end > leader.end:
            yield play(out_of_range(view), view, leader)
        elif log_end < leader.local_start:
            yield play(moved_to_tiered_storage(view), view, leader)


ALL = tuple(plays())


def applies(played: Played) -> bool:
    return last_tiered_applies(played.view, played.leader.end)


def test_there_is_something_of_everything() -> None:
    outcomes = {type(played.outcome) for played in ALL}
    assert outcomes == {TruncateTo, StartAt, Rebuild, type(None)}
    assert {type(played.refusal) for played in ALL} == {CannotBuild, KafkaError, type(None)}
    assert len(ALL) > 400


def test_every_row_leads_to_where_the_leader_can_go_on() -> None:
    for played in ALL:
        leader, outcome = played.leader, played.outcome
        match outcome:
            case TruncateTo(offset=offset):
                assert offset == leader.end < played.view.log_end_offset, played
            case StartAt(offset=offset):
                assert offset == leader.log_start, played
            case Rebuild():
                assert leader.local_start <= outcome.next_offset <= leader.end, played
                assert outcome.log_start_offset == leader.log_start, played
                assert leader.remote_start <= outcome.next_offset - 1 < leader.tiered, "its past is in the remote tier"
                assert outcome.leader_epochs == tuple(e for e in ((0, 0), (1, 4)) if e[1] < outcome.next_offset)
                assert outcome.producer_snapshot == (NO_PRODUCERS if played.view.kafka_compat else b"producers")
                assert outcome.lag == leader.end - outcome.next_offset, played
            case ContinueAt() | None:
                assert outcome is None, "whoever is refused cannot simply go on"


def test_only_the_mode_asks_for_the_pending_upload_and_starts_behind_it() -> None:
    for played in ALL:
        requested = AskOffset(EARLIEST_PENDING_UPLOAD) in played.requests
        assert requested is applies(played)
        if not isinstance(played.outcome, Rebuild):
            continue
        if applies(played):
            assert played.outcome.next_offset >= played.leader.tiered, played
        else:
            # A segment that holds the last record before the local log may end beyond its start.
            assert 0 <= played.outcome.next_offset - played.leader.local_start < SEGMENT, played
            assert AskOffset(EARLIEST_LOCAL) in played.requests, played


def test_an_attempt_is_refused_for_a_stated_reason_only() -> None:
    for played in ALL:
        view, leader, refusal = played.view, played.leader, played.refusal
        nothing_valid = max(leader.tiered, leader.log_start) == leader.log_start
        everything = leader.tiered == leader.end
        if isinstance(refusal, KafkaError):
            assert refusal.code is ErrorCode.OFFSET_NOT_AVAILABLE, played
            assert applies(played), "row 3 is the mode's"
            assert leader.local_start != leader.log_start, played
            assert not leader.knows or (view.kafka_compat and everything), played
        elif refusal is not None:
            # Kafka's own way alone stays out where nothing valid is in the remote tier.
            assert not view.remote_enabled or (view.kafka_compat and nothing_valid), played
        elif applies(played) and not leader.knows:
            raise AssertionError("a leader that does not know cannot be started behind")


def test_nobody_stays_out_once_the_leader_knows() -> None:
    for played in ALL:
        if not played.view.kafka_compat and played.view.remote_enabled:
            assert played.refusal is None or not played.leader.knows, played
