"""The leader's decisions about ISR and high watermark, as tables."""

from __future__ import annotations

import pytest

from backend.engine.replica.partition_state import (
    AlterVerdict,
    IsrState,
    ReplicaState,
    acknowledged,
    alter_verdict,
    can_join_isr,
    effective_min_isr,
    high_watermark_candidate,
    late_replicas,
    low_watermark,
    new_leader_replica,
)
from backend.protocol.errors import ErrorCode

LAG_MAX_MS = 30_000


def at(log_end: int, *, caught_up_ms: float = 0.0, log_start: int = 0) -> ReplicaState:
    return ReplicaState(log_end_offset=log_end, log_start_offset=log_start, last_caught_up_ms=caught_up_ms)


def fetch(state: ReplicaState, offset: int, leader_end: int, now_ms: float) -> ReplicaState:
    return state.after_fetch(
        fetch_offset=offset, log_start_offset=0, leader_end_offset=leader_end, now_ms=now_ms, broker_epoch=7
    )


def test_a_follower_at_the_leaders_end_is_caught_up_now() -> None:
    state = fetch(ReplicaState(), 10, 10, now_ms=1000)
    assert (state.log_end_offset, state.last_caught_up_ms, state.broker_epoch) == (10, 1000, 7)


def test_a_follower_that_reaches_the_previous_end_was_caught_up_at_its_previous_fetch() -> None:
    state = fetch(ReplicaState(), 0, 10, now_ms=1000)
    state = fetch(state, 10, 25, now_ms=2000)
    assert state.last_caught_up_ms == 1000
    state = fetch(state, 24, 40, now_ms=3000)
    assert state.last_caught_up_ms == 1000, "24 is below the end of 25 seen at 2000"


def test_caught_up_time_never_goes_back() -> None:
    state = fetch(at(5, caught_up_ms=9000), 5, 5, now_ms=8000)
    assert state.last_caught_up_ms == 9000


def test_a_new_leader_gives_isr_members_the_full_lag_time() -> None:
    assert new_leader_replica(in_isr=True, now_ms=500).last_caught_up_ms == 500
    assert new_leader_replica(in_isr=False, now_ms=500).last_caught_up_ms == 0
    assert new_leader_replica(in_isr=True, now_ms=500).log_end_offset == -1


def candidate(
    replicas: dict[int, ReplicaState], isr: IsrState, *, end: int = 100, eligible: bool = True, now_ms: float = 100_000
) -> int:
    return high_watermark_candidate(
        leader_end_offset=end,
        replicas=replicas,
        isr=isr,
        is_eligible=lambda _: eligible,
        now_ms=now_ms,
        lag_max_ms=LAG_MAX_MS,
    )


IN_ALL = IsrState(frozenset({1, 2, 3}))


@pytest.mark.parametrize(
    ("replicas", "isr", "expected"),
    [
        ({2: at(90), 3: at(80)}, IN_ALL, 80),
        ({2: at(90), 3: at(80)}, IsrState(frozenset({1, 2})), 90),
        ({2: at(90), 3: at(80, caught_up_ms=80_000)}, IsrState(frozenset({1, 2})), 80),
        ({2: at(90), 3: at(80)}, IsrState(frozenset({1, 2})).expand(3), 80),
        ({2: at(90), 3: at(80)}, IN_ALL.shrink({3}), 80),
        ({2: at(-1), 3: at(80)}, IN_ALL, -1),
        ({}, IsrState(frozenset({1})), 100),
    ],
    ids=[
        "slowest member decides",
        "a late replica outside the ISR does not count",
        "a caught-up replica outside the ISR counts",
        "a pending expansion counts",
        "a pending shrink does not release yet",
        "a member that has not fetched yet holds it",
        "alone",
    ],
)
def test_high_watermark_is_the_least_end_of_those_who_count(
    replicas: dict[int, ReplicaState], isr: IsrState, expected: int
) -> None:
    assert candidate(replicas, isr) == expected


def test_an_ineligible_caught_up_replica_does_not_hold_the_high_watermark() -> None:
    replicas = {2: at(100), 3: at(80, caught_up_ms=90_000)}
    assert candidate(replicas, IsrState(frozenset({1, 2})), eligible=False) == 100


@pytest.mark.parametrize(
    ("log_end", "high_watermark", "epoch_start", "eligible", "isr", "expected"),
    [
        (50, 50, 40, True, IsrState(frozenset({1})), True),
        (49, 50, 40, True, IsrState(frozenset({1})), False),
        (50, 45, 51, True, IsrState(frozenset({1})), False),
        (50, 50, 40, False, IsrState(frozenset({1})), False),
        (50, 50, 40, True, IsrState(frozenset({1, 2})), False),
        (50, 50, 40, True, IsrState(frozenset({1})).expand(3), False),
    ],
    ids=["has all", "below HW", "before the epoch's start", "fenced", "already in", "another change in flight"],
)
def test_a_follower_joins_once_it_has_everything_committed(
    log_end: int, high_watermark: int, epoch_start: int, eligible: bool, isr: IsrState, expected: bool
) -> None:
    assert (
        can_join_isr(
            replica=2,
            state=at(log_end),
            isr=isr,
            high_watermark=high_watermark,
            epoch_start_offset=epoch_start,
            is_eligible=lambda _: eligible,
        )
        is expected
    )


def late(replicas: dict[int, ReplicaState], isr: IsrState = IN_ALL) -> frozenset[int]:
    return late_replicas(
        leader=1, replicas=replicas, isr=isr, leader_end_offset=100, now_ms=100_000, lag_max_ms=LAG_MAX_MS
    )


def test_only_members_behind_for_too_long_are_late() -> None:
    assert late({2: at(100), 3: at(99, caught_up_ms=69_999)}) == {3}
    assert late({2: at(100), 3: at(99, caught_up_ms=70_000)}) == frozenset()
    assert late({2: at(100)}) == {3}, "a member without any state is late"


def test_nothing_is_late_while_a_change_is_in_flight() -> None:
    assert late({2: at(0), 3: at(0)}, IN_ALL.shrink({2})) == frozenset()


def test_maximal_isr_covers_both_outcomes_of_a_change() -> None:
    assert IsrState(frozenset({1, 2})).expand(3).maximal == {1, 2, 3}
    assert IN_ALL.shrink({2, 3}).maximal == {1, 2, 3}
    assert IN_ALL.shrink({2, 3}).proposed == frozenset({1})
    assert IN_ALL.shrink({2, 3}).rolled_back() == IN_ALL


@pytest.mark.parametrize(
    ("high_watermark", "members", "expected"),
    [
        (9, 3, None),
        (10, 3, ErrorCode.NONE),
        (10, 2, ErrorCode.NONE),
        (10, 1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    ],
)
def test_an_append_is_acknowledged_by_the_high_watermark(
    high_watermark: int, members: int, expected: ErrorCode | None
) -> None:
    isr = IsrState(frozenset(range(1, members + 1)))
    assert acknowledged(required_offset=10, high_watermark=high_watermark, isr=isr, min_isr=2) == expected


def test_min_isr_is_never_more_than_the_replicas() -> None:
    assert effective_min_isr(3, 2) == 2
    assert effective_min_isr(2, 3) == 2


def test_low_watermark_is_the_least_log_start_of_alive_replicas() -> None:
    replicas = {2: at(9, log_start=4), 3: at(9, log_start=1)}
    assert low_watermark(log_start_offset=6, replicas=replicas, alive=lambda _: True) == 1
    assert low_watermark(log_start_offset=6, replicas=replicas, alive=lambda replica: replica == 2) == 4
    assert low_watermark(log_start_offset=6, replicas={}, alive=lambda _: True) == 6


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, AlterVerdict.WAIT_FOR_METADATA),
        (ErrorCode.INVALID_REQUEST, AlterVerdict.WAIT_FOR_METADATA),
        (ErrorCode.INVALID_UPDATE_VERSION, AlterVerdict.WAIT_FOR_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_ID, AlterVerdict.WAIT_FOR_METADATA),
        (ErrorCode.INELIGIBLE_REPLICA, AlterVerdict.ROLL_BACK),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, AlterVerdict.ROLL_BACK),
        (ErrorCode.NOT_CONTROLLER, AlterVerdict.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, AlterVerdict.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, AlterVerdict.RETRY),
    ],
)
def test_a_refused_isr_change_is_rolled_back_only_when_it_was_surely_not_applied(
    error: ErrorCode, verdict: AlterVerdict
) -> None:
    assert alter_verdict(error) is verdict
