"""Segments that retention does not see: never those that were copied while the leaders were asked."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate
from backend.control.findings.rules.copy_rules import CLOCKS_DIFFER_MS, LEAK_FOR_MS
from backend.store.queries.lineage import FinishedSegment
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, context, finished, replica


def leaks(*segments: FinishedSegment, **leader: Any) -> Candidate | None:
    replicas = [replica(1, leader_epochs=((0, 0),), log_end_offset=26_110, **leader)]
    return candidates(context(replicas=replicas, finished=segments)).get(("segment-leak", "orders-0"))


def newest(copied_ms: int) -> FinishedSegment:
    """It ends at 26,111; the log ended at 26,110 when its leader was asked."""
    return finished("new", 25_133, 26_111, [[0, 25_133]], copy_finished_ms=copied_ms)


@pytest.mark.parametrize(
    "copied_ms", [NOW_MS + 1, NOW_MS, NOW_MS - CLOCKS_DIFFER_MS], ids=["after", "at once", "by a clock that is late"]
)
def test_a_segment_whose_copy_ended_after_the_round_began_is_no_leak(copied_ms: int) -> None:
    assert leaks(newest(copied_ms)) is None


def test_a_leader_that_is_silent_since_is_held_against_what_was_copied_before() -> None:
    late = NOW_MS - 2 * MINUTE_MS
    assert leaks(newest(NOW_MS - MINUTE_MS), answered_ms=late) is None
    assert leaks(newest(late - MINUTE_MS), answered_ms=late) is not None


def test_what_stays_above_the_log_end_is_told_after_two_readings_without_an_advice_that_deletes() -> None:
    candidate = leaks(newest(NOW_MS - MINUTE_MS))
    assert candidate is not None
    assert candidate.for_ms == LEAK_FOR_MS
    assert "delete records" not in candidate.action.lower()
    assert candidate.action.startswith("Leave them")
