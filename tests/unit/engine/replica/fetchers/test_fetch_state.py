"""A follower's fetch state machine: every kind of answer, truncation, and what a person sees meanwhile."""

from __future__ import annotations

import pytest

from backend.engine.replica.fetch_data import EpochEnd
from backend.engine.replica.fetchers.fetch_state import (
    Append,
    Fail,
    FetchDecision,
    FetchPartitionResult,
    FetchState,
    ResolveOutOfRange,
    ResolveTiered,
    Retry,
    Truncate,
    TruncationPoint,
    building,
    decide,
    delayed,
    failed,
    initial_state,
    moved,
    pause_ms,
    planning,
    progressed,
    truncating,
    truncation_point,
    waited,
    waiting,
    with_isr,
)
from backend.protocol.errors import ErrorCode
from backend.tiering.follower_phase import FollowerPhase


def fetching(offset: int = 10, *, leader_epoch: int = 3) -> FetchState:
    return initial_state(
        log_end_offset=offset, high_watermark=offset, latest_epoch=2, leader_epoch=leader_epoch, wall_ms=1000
    )


def test_a_log_with_epochs_is_fetched_from_its_end() -> None:
    state = initial_state(log_end_offset=12, high_watermark=9, latest_epoch=2, leader_epoch=3, wall_ms=0)
    assert (state.fetch_offset, state.last_fetched_epoch, state.truncating) == (12, 2, False)
    assert state.phase is FollowerPhase.FETCHING
    assert state.is_ready(0)


def test_a_log_without_epochs_is_first_cut_to_its_high_watermark() -> None:
    state = initial_state(log_end_offset=12, high_watermark=9, latest_epoch=None, leader_epoch=3, wall_ms=0)
    assert (state.fetch_offset, state.target_offset, state.last_fetched_epoch, state.truncating) == (9, 9, -1, True)
    assert state.phase is FollowerPhase.TRUNCATING
    assert not state.is_ready(0)
    state = moved(state, offset=9, last_epoch=-1, lag=None, evidence="", wall_ms=5)
    assert state.is_ready(0)
    assert (state.phase, state.since_ms) == (FollowerPhase.FETCHING, 5)


@pytest.mark.parametrize(
    ("row", "request_epoch", "log_end", "expected"),
    [
        (FetchPartitionResult(ErrorCode.NONE, 12, 0), 3, 10, Append()),
        (FetchPartitionResult(ErrorCode.NONE, 12, 0, EpochEnd(1, 7)), 3, 10, Truncate(EpochEnd(1, 7))),
        (FetchPartitionResult(ErrorCode.NONE, 12, 0), 3, 11, Fail("the log ends at 11, but offset 10 was asked for")),
        (FetchPartitionResult(ErrorCode.OFFSET_OUT_OF_RANGE), 3, 10, ResolveOutOfRange()),
        (FetchPartitionResult(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, 12, 0), 3, 10, ResolveTiered()),
        (
            FetchPartitionResult(ErrorCode.FENCED_LEADER_EPOCH),
            3,
            10,
            Fail("the leader has a newer epoch than 3; waiting for its metadata", expected=True),
        ),
        (FetchPartitionResult(ErrorCode.FENCED_LEADER_EPOCH), 2, 10, Retry("the leader answered FENCED_LEADER_EPOCH")),
        (
            FetchPartitionResult(ErrorCode.UNKNOWN_LEADER_EPOCH),
            3,
            10,
            Retry("the leader answered UNKNOWN_LEADER_EPOCH", behind=True),
        ),
        (
            FetchPartitionResult(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            3,
            10,
            Retry("the leader answered NOT_LEADER_OR_FOLLOWER", behind=True),
        ),
        (
            FetchPartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            3,
            10,
            Retry("the leader answered UNKNOWN_TOPIC_OR_PARTITION", behind=True),
        ),
        (
            FetchPartitionResult(ErrorCode.UNKNOWN_TOPIC_ID),
            3,
            10,
            Retry("the leader answered UNKNOWN_TOPIC_ID", behind=True),
        ),
        (
            FetchPartitionResult(ErrorCode.INCONSISTENT_TOPIC_ID),
            3,
            10,
            Retry("the leader answered INCONSISTENT_TOPIC_ID"),
        ),
        (FetchPartitionResult(ErrorCode.KAFKA_STORAGE_ERROR), 3, 10, Retry("the leader answered KAFKA_STORAGE_ERROR")),
        (
            FetchPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR),
            3,
            10,
            Retry("the leader answered UNKNOWN_SERVER_ERROR"),
        ),
    ],
    ids=lambda value: value.error.name if isinstance(value, FetchPartitionResult) else None,
)
def test_every_row_of_a_response_has_its_decision(
    row: FetchPartitionResult, request_epoch: int, log_end: int, expected: FetchDecision
) -> None:
    assert decide(fetching(), row, request_leader_epoch=request_epoch, log_end_offset=log_end) == expected


def test_a_leader_that_is_behind_is_asked_again_soon_and_ever_more_seldom() -> None:
    assert [pause_ms(attempts, 1000.0, behind=True) for attempts in range(7)] == [
        31.25, 62.5, 125.0, 250.0, 500.0, 1000.0, 1000.0,
    ]  # fmt: skip
    assert [pause_ms(attempts, 1000.0, behind=False) for attempts in (0, 1, 5)] == [1000.0, 1000.0, 1000.0]
    assert pause_ms(10**6, 1000.0, behind=True) == 1000.0


def test_every_error_code_has_a_decision() -> None:
    for error in ErrorCode:
        decide(fetching(), FetchPartitionResult(error), request_leader_epoch=3, log_end_offset=10)


def test_answers_to_older_questions_do_not_match() -> None:
    state = fetching(10)
    assert state.matches(10, 3)
    assert not state.matches(9, 3)
    assert not state.matches(10, 2)


@pytest.mark.parametrize(
    ("leader", "own", "expected"),
    [
        (EpochEnd(-1, -1), EpochEnd(2, 10), TruncationPoint(8, True)),
        (EpochEnd(-1, 6), EpochEnd(2, 10), TruncationPoint(6, True)),
        (EpochEnd(-1, 60), None, TruncationPoint(10, True)),
        (EpochEnd(1, 6), None, TruncationPoint(6, True)),
        (EpochEnd(1, 6), EpochEnd(-1, -1), TruncationPoint(6, True)),
        (EpochEnd(2, 6), EpochEnd(1, 4), TruncationPoint(4, False)),
        (EpochEnd(2, 6), EpochEnd(2, 9), TruncationPoint(6, True)),
        (EpochEnd(2, 6), EpochEnd(2, 5), TruncationPoint(5, True)),
        (EpochEnd(2, 60), EpochEnd(2, 50), TruncationPoint(10, True)),
    ],
    ids=[
        "leader undefined: fetch offset",
        "epoch undefined: leader's end",
        "epoch undefined: own log end",
        "own has no epochs",
        "own undefined",
        "own lacks the epoch: another round",
        "leader ends first",
        "own ends first",
        "never above the own log",
    ],
)
def test_truncation_point(leader: EpochEnd, own: EpochEnd | None, expected: TruncationPoint) -> None:
    assert truncation_point(leader, fetch_offset=8, log_end_offset=10, own=own) == expected


def test_a_delayed_partition_keeps_its_phase_until_something_succeeds() -> None:
    state = delayed(fetching(), "no leader", resume_ms=500, wall_ms=2000)
    assert (state.phase, state.since_ms, state.attempts, state.evidence) == (
        FollowerPhase.DELAYED,
        2000,
        1,
        "no leader",
    )
    assert not state.is_ready(499)
    assert state.is_ready(500)
    state = building(planning(state), target_offset=9, evidence="reading", wall_ms=2500)
    assert state.phase is FollowerPhase.DELAYED
    state = delayed(state, "still no leader", resume_ms=900, wall_ms=3000)
    assert (state.since_ms, state.attempts) == (2000, 2)
    state = progressed(state, next_offset=11, last_epoch=2, lag=0, in_isr=False, wall_ms=4000)
    assert (state.phase, state.since_ms, state.attempts, state.evidence) == (FollowerPhase.FETCHING, 4000, 0, "")
    assert state.is_ready(0)


def test_waiting_for_metadata_is_a_phase_of_its_own() -> None:
    state = waiting(planning(fetching()), "not read yet", resume_ms=1000, wall_ms=2)
    assert (state.phase, state.attempts) == (FollowerPhase.WAITING_FOR_METADATA, 1)
    assert not state.is_ready(5000), "its plan still waits"
    assert waited(state, ready=True).is_ready(0), "nothing is left to wait for"
    late = waited(state, ready=False)
    assert not late.is_ready(999)
    assert late.is_ready(1000)
    assert late.phase is FollowerPhase.WAITING_FOR_METADATA


def test_a_plan_keeps_the_partition_out_of_fetches_and_shows_its_target() -> None:
    state = planning(fetching())
    assert not state.is_ready(0)
    state = building(state, target_offset=6, evidence="segment 3-5", wall_ms=7000)
    assert (state.phase, state.since_ms, state.target_offset) == (FollowerPhase.BUILDING_REMOTE_AUX, 7000, 6)
    state = moved(state, offset=6, last_epoch=2, lag=2, evidence="rebuilt", wall_ms=8000)
    assert (state.phase, state.fetch_offset, state.lag, state.busy) == (FollowerPhase.FETCHING, 6, 2, False)


def test_a_failed_partition_is_never_ready() -> None:
    state = failed(fetching(), "fenced", wall_ms=1)
    assert state.failed
    assert not state.is_ready(10**9)


def test_in_sync_follows_the_isr_of_a_healthy_partition_only() -> None:
    state = progressed(fetching(), next_offset=12, last_epoch=3, lag=0, in_isr=False, wall_ms=1500)
    assert (state.phase, state.since_ms) == (FollowerPhase.FETCHING, 1000)
    state = with_isr(state, in_isr=True, wall_ms=1600)
    assert (state.phase, state.since_ms) == (FollowerPhase.IN_SYNC, 1600)
    assert progressed(state, next_offset=12, last_epoch=3, lag=0, in_isr=True, wall_ms=1700) is state
    state = with_isr(state, in_isr=False, wall_ms=1800)
    assert state.phase is FollowerPhase.FETCHING
    late = delayed(state, "x", resume_ms=0, wall_ms=1900)
    assert with_isr(late, in_isr=True, wall_ms=2000) is late


def test_truncating_is_shown_with_its_target() -> None:
    state = truncating(fetching()._replace(lag=4), target_offset=7, evidence="epoch 1 ends at 7", wall_ms=3000)
    assert (state.phase, state.target_offset, state.evidence) == (FollowerPhase.TRUNCATING, 7, "epoch 1 ends at 7")
