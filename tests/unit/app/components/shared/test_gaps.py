"""Lines break at gaps, and not where samples are only thinned."""

from __future__ import annotations

import pytest

from app.components.shared.gaps import broken, broken_times, gaps

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@pytest.mark.parametrize(
    ("interval_ms", "distance_ms", "is_gap"),
    [(2_000, MINUTE_MS, False), (2_000, MINUTE_MS + 1, True), (30_000, 90_000, False), (30_000, 90_001, True)],
)
def test_a_gap_is_longer_than_three_intervals_and_than_a_minute(
    interval_ms: int, distance_ms: int, is_gap: bool
) -> None:
    assert gaps([0, distance_ms], interval_ms) == ({1} if is_gap else set())


def test_old_samples_that_retention_has_thinned_are_no_gaps_but_missing_ones_are() -> None:
    old = [minute * MINUTE_MS for minute in (0, 5, 10, 23, 28)]
    assert gaps([*old, 5 * HOUR_MS - 2_000, 5 * HOUR_MS], 2_000) == {3, 5}


def test_samples_kept_at_a_wider_spacing_are_no_gaps() -> None:
    assert gaps([0, 100_000, 200_000, 500_000], 2_000, 100_000) == {3}


def test_a_broken_line_has_a_hole_in_the_middle_of_the_gap() -> None:
    assert broken([1, 2, 3], frozenset({2}), None) == [1, 2, None, 3]
    assert broken_times([0, 10, 100], frozenset({2})) == [0, 10, 55, 100]
