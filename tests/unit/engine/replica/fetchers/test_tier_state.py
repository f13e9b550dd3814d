"""The start of a follower whose leader's data is remote: KIP-405 scenarios and KIP-1023 decisions as dialogues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from backend.engine.replica.fetch_data import EpochEnd
from backend.engine.replica.fetchers.tier_state import (
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


@dataclass(frozen=True, slots=True)
class Aux:
    next_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    producer_snapshot: bytes | None = b"snapshot"


class Playbook:
    """Asks a plan for its questions and gives it answers."""

    def __init__(self, plan: TierStatePlan) -> None:
        self._plan = plan
        self._pending: TierStateRequest | None = next(plan)
        self._outcome: TierStateOutcome | None = None

    def asks(self, question: TierStateRequest, answer: Any) -> Playbook:
        assert self._pending == question
        try:
            self._pending = self._plan.send(answer)
        except StopIteration as end:
            self._pending, self._outcome = None, end.value
        return self

    def ends_with(self, outcome: TierStateOutcome) -> None:
        assert self._pending is None, f"still asks {self._pending}"
        assert self._outcome == outcome


def view(log_end: int = 0, *, flag: bool = True, tiered: bool = True, **more: bool) -> FollowerView:
    return FollowerView(
        log_end_offset=log_end,
        remote_enabled=tiered,
        compacted=more.get("compacted", False),
        last_tiered=flag,
        kafka_compat=more.get("kafka_compat", False),
    )


def offset(value: int, epoch: int = 0) -> LeaderOffset:
    return LeaderOffset(value, epoch)


NONE = LeaderOffset(-1, -1)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("tiered", [True, False])
@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("leader_end", [0, 5])
@pytest.mark.parametrize("log_end", [0, 3])
def test_the_mode_applies_only_to_an_empty_replica_of_a_tiered_topic_with_the_flag_on(
    flag: bool, tiered: bool, compacted: bool, leader_end: int, log_end: int
) -> None:
    applies = last_tiered_applies(view(log_end, flag=flag, tiered=tiered, compacted=compacted), leader_end)
    assert applies is ((flag, tiered, compacted, leader_end, log_end) == (True, True, False, 5, 0))


def test_scenario_1_a_new_follower_starts_at_the_leaders_local_start() -> None:
    (
        Playbook(moved_to_tiered_storage(view(flag=False)))
        .asks(AskOffset(LATEST), offset(8, 3))
        .asks(AskOffset(EARLIEST), offset(0, 0))
        .asks(AskOffset(EARLIEST_LOCAL), offset(3, 1))
        .asks(AskEpochEnd(0), EpochEnd(0, 3))
        .asks(ReadAux(0, 2, 3), Aux(3, ((0, 0),)))
        .asks(AskOffset(LATEST), offset(8, 3))
        .ends_with(Rebuild(3, 0, ((0, 0),), b"snapshot", 5))
    )


def test_kip_1023_a_new_follower_starts_behind_the_last_tiered_offset() -> None:
    epochs = ((0, 0), (1, 3), (2, 5))
    (
        Playbook(moved_to_tiered_storage(view()))
        .asks(AskOffset(LATEST), offset(8, 3))
        .asks(AskOffset(EARLIEST), offset(0, 0))
        .asks(AskOffset(EARLIEST_PENDING_UPLOAD), offset(6, 2))
        .asks(AskEpochEnd(1), EpochEnd(1, 5))
        .asks(ReadAux(2, 5, 6), Aux(6, epochs))
        .asks(AskOffset(LATEST), offset(8, 3))
        .ends_with(Rebuild(6, 0, epochs, b"snapshot", 2))
    )


def test_scenario_2_a_follower_with_data_uses_the_local_start_whatever_the_flag() -> None:
    epochs = ((0, 0), (1, 3), (2, 5), (3, 7))
    (
        Playbook(moved_to_tiered_storage(view(4)))
        .asks(AskOffset(LATEST), offset(12, 3))
        .asks(AskOffset(EARLIEST), offset(0, 0))
        .asks(AskOffset(EARLIEST_LOCAL), offset(9, 3))
        .asks(AskEpochEnd(2), EpochEnd(2, 7))
        .asks(ReadAux(3, 8, 9), Aux(9, epochs))
        .asks(AskOffset(LATEST), offset(12, 3))
        .ends_with(Rebuild(9, 0, epochs, b"snapshot", 3))
    )


@pytest.mark.parametrize(
    ("log_start", "local_start", "log_end", "pending"),
    [(0, 10, 200, 10), (0, 10, 200, 150), (0, 10, 200, 200), (0, 200, 200, 200), (3, 6, 7, 6), (6, 12, 13, 12)],
)
def test_the_flag_starts_a_replica_at_the_earliest_pending_upload(
    log_start: int, local_start: int, log_end: int, pending: int
) -> None:
    (
        Playbook(moved_to_tiered_storage(view()))
        .asks(AskOffset(LATEST), offset(log_end))
        .asks(AskOffset(EARLIEST), offset(log_start))
        .asks(AskOffset(EARLIEST_PENDING_UPLOAD), offset(pending))
        .asks(ReadAux(0, pending - 1, pending), Aux(pending, ((0, 0),)))
        .asks(AskOffset(LATEST), offset(log_end))
        .ends_with(Rebuild(pending, log_start, ((0, 0),), b"snapshot", log_end - pending))
    )


@pytest.mark.parametrize(("log_end", "pending"), [(10, 5), (10, 10), (200, 5), (200, 10), (8, 7)])
def test_nothing_valid_in_the_remote_tier_means_the_leaders_log_start(log_end: int, pending: int) -> None:
    (
        Playbook(out_of_range(view()))
        .asks(AskOffset(LATEST), offset(log_end))
        .asks(AskOffset(EARLIEST), offset(10))
        .asks(AskOffset(EARLIEST_PENDING_UPLOAD), offset(pending))
        .ends_with(StartAt(10))
    )


def test_nothing_tiered_yet_means_the_leaders_log_start() -> None:
    (
        Playbook(out_of_range(view()))
        .asks(AskOffset(LATEST), offset(200))
        .asks(AskOffset(EARLIEST), offset(10))
        .asks(AskOffset(EARLIEST_PENDING_UPLOAD), NONE)
        .asks(AskOffset(EARLIEST_LOCAL), offset(10))
        .ends_with(StartAt(10))
    )


def test_kafkas_way_looks_for_a_segment_that_is_not_there() -> None:
    play = (
        Playbook(out_of_range(view(kafka_compat=True)))
        .asks(AskOffset(LATEST), offset(8))
        .asks(AskOffset(EARLIEST), offset(7))
        .asks(AskOffset(EARLIEST_PENDING_UPLOAD), offset(7))
    )
    with pytest.raises(CannotBuild, match="no segment"):
        play._plan.throw(CannotBuild("no segment with offset 6"))
    assert play._pending == ReadAux(0, 6, 7)


@pytest.mark.parametrize("local_start", [10, 200])
def test_a_leader_that_does_not_know_its_tiered_offset_is_asked_again(local_start: int) -> None:
    play = (
        Playbook(moved_to_tiered_storage(view()))
        .asks(AskOffset(LATEST), offset(200))
        .asks(AskOffset(EARLIEST), offset(0))
        .asks(AskOffset(EARLIEST_PENDING_UPLOAD), NONE)
    )
    with pytest.raises(KafkaError) as caught:
        play.asks(AskOffset(EARLIEST_LOCAL), offset(local_start))
    assert caught.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_leader_too_old_for_the_question_ends_the_attempt() -> None:
    plan = moved_to_tiered_storage(view())
    play = Playbook(plan).asks(AskOffset(LATEST), offset(200)).asks(AskOffset(EARLIEST), offset(0))
    assert play._pending == AskOffset(EARLIEST_PENDING_UPLOAD)
    with pytest.raises(KafkaError):
        plan.throw(KafkaError(ErrorCode.UNSUPPORTED_VERSION))


def test_an_empty_leader_does_not_put_the_mode_on() -> None:
    (
        Playbook(out_of_range(view()))
        .asks(AskOffset(LATEST), offset(0))
        .asks(AskOffset(EARLIEST), offset(0))
        .ends_with(ContinueAt(0))
    )


def test_out_of_range_above_the_leaders_end_truncates() -> None:
    Playbook(out_of_range(view(9, flag=False))).asks(AskOffset(LATEST), offset(5)).ends_with(TruncateTo(5))


@pytest.mark.parametrize(
    ("log_end", "start", "outcome"), [(4, 7, StartAt(7)), (0, 5, StartAt(5)), (4, 4, ContinueAt(4))]
)
def test_out_of_range_below_the_leaders_start_begins_there(log_end: int, start: int, outcome: TierStateOutcome) -> None:
    (
        Playbook(out_of_range(view(log_end, flag=False)))
        .asks(AskOffset(LATEST), offset(20))
        .asks(AskOffset(EARLIEST), offset(start))
        .ends_with(outcome)
    )


def test_a_topic_that_is_not_tiered_for_us_yet_is_tried_again() -> None:
    play = (
        Playbook(moved_to_tiered_storage(view(tiered=False)))
        .asks(AskOffset(LATEST), offset(20))
        .asks(AskOffset(EARLIEST), offset(0))
    )
    with pytest.raises(CannotBuild, match="has not reached this broker"):
        play.asks(AskOffset(EARLIEST_LOCAL), offset(5))


def test_an_unknown_epoch_is_not_guessed() -> None:
    play = (
        Playbook(moved_to_tiered_storage(view(flag=False)))
        .asks(AskOffset(LATEST), offset(20))
        .asks(AskOffset(EARLIEST), offset(0))
    )
    with pytest.raises(CannotBuild, match="epoch of offset 5"):
        play.asks(AskOffset(EARLIEST_LOCAL), offset(5, -1))


def test_the_epoch_before_the_target_is_used_when_it_reaches_that_far() -> None:
    (
        Playbook(moved_to_tiered_storage(view(flag=False)))
        .asks(AskOffset(LATEST), offset(20, 5))
        .asks(AskOffset(EARLIEST), offset(0, 0))
        .asks(AskOffset(EARLIEST_LOCAL), offset(7, 5))
        .asks(AskEpochEnd(4), EpochEnd(2, 7))
        .asks(ReadAux(2, 6, 7), Aux(7, ((0, 0), (2, 3))))
        .asks(AskOffset(LATEST), offset(20, 5))
        .ends_with(Rebuild(7, 0, ((0, 0), (2, 3)), b"snapshot", 13))
    )


def test_a_segment_longer_than_the_target_is_used_to_its_end_when_the_leader_agrees() -> None:
    (
        Playbook(moved_to_tiered_storage(view(flag=False)))
        .asks(AskOffset(LATEST), offset(20, 1))
        .asks(AskOffset(EARLIEST), offset(0, 0))
        .asks(AskOffset(EARLIEST_LOCAL), offset(5, 1))
        .asks(AskEpochEnd(0), EpochEnd(0, 3))
        .asks(ReadAux(1, 4, 5), Aux(8, ((0, 0), (1, 3))))
        .asks(AskEpochEnd(1), EpochEnd(1, 20))
        .asks(AskOffset(LATEST), offset(20, 1))
        .ends_with(Rebuild(8, 0, ((0, 0), (1, 3)), b"snapshot", 12))
    )


def test_a_segment_that_runs_into_a_deposed_leaders_records_serves_only_up_to_the_target() -> None:
    (
        Playbook(moved_to_tiered_storage(view(flag=False)))
        .asks(AskOffset(LATEST), offset(20, 1))
        .asks(AskOffset(EARLIEST), offset(0, 0))
        .asks(AskOffset(EARLIEST_LOCAL), offset(2, 1))
        .asks(AskEpochEnd(0), EpochEnd(0, 2))
        .asks(ReadAux(0, 1, 2), Aux(4, ((0, 0),)))
        .asks(AskEpochEnd(0), EpochEnd(0, 2))
        .asks(AskOffset(LATEST), offset(20, 1))
        .ends_with(Rebuild(2, 0, ((0, 0),), None, 18))
    )
