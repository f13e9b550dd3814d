"""Failures of remote reads in the log: logged, but not for every consumer that comes back."""

from __future__ import annotations

import pytest

from backend.engine.remote.manager.failure_log import SUBJECTS_MAX, FailureLimit, FailureLog
from tests.unit.engine.remote.indexes.test_remote_index_cache import HandClock


def test_a_subject_is_told_of_once_a_second_with_the_number_of_those_between(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    log = FailureLog(clock)
    for step_ms in (0, 400, 599, 1, 1000):
        clock.now_ms += step_ms
        log.warn("Remote read of orders-0", "at offset 7", OSError("503"))
    log.warn("Remote read of orders-1", "at offset 1", OSError("503"))
    assert [record.getMessage() for record in caplog.records] == [
        "Remote read of orders-0 at offset 7 failed: 503",
        "Remote read of orders-0 at offset 7 failed: 503 (2 more before it)",
        "Remote read of orders-0 at offset 7 failed: 503",
        "Remote read of orders-1 at offset 1 failed: 503",
    ]


def test_one_failure_of_a_subject_passes_in_an_interval_and_counts_the_others() -> None:
    clock = HandClock()
    limit = FailureLimit(clock, 10_000)
    passed = []
    for step_ms in (0, 500, 500, 9_000, 10_000):
        clock.now_ms += step_ms
        passed.append(limit.left_out("orders-0"))
    assert passed == [0, None, None, 2, 0]
    assert limit.left_out("orders-1") == 0


def test_no_more_subjects_are_remembered_than_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(HandClock())
    for number in (*range(SUBJECTS_MAX + 1), 1, 0):
        log.warn(f"Remote read of orders-{number}", "at offset 0", OSError("503"))
    subjects = [record.getMessage().split()[3] for record in caplog.records]
    assert subjects[-2:] == [f"orders-{SUBJECTS_MAX}", "orders-0"]
