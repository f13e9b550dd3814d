"""Copies that take too long, and copies that will never finish."""

from __future__ import annotations

import pytest

from app.components.remote.copy_age import is_hung, times_p99, why_dangling
from tests.unit.app.overview_rows import NOW_MS, segment

MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("age_ms", "p99_ms", "hung"),
    [
        (MINUTE_MS, 1_000, False),
        (MINUTE_MS + 1, 1_000, True),
        (MINUTE_MS + 1, None, True),
        (5 * MINUTE_MS, 2 * MINUTE_MS, False),
        (6 * MINUTE_MS + 1, 2 * MINUTE_MS, True),
    ],
)
def test_a_copy_is_hung_beyond_three_times_its_p99_and_a_minute(age_ms: int, p99_ms: int | None, hung: bool) -> None:
    assert is_hung(segment(age_ms=age_ms), p99_ms, NOW_MS) is hung
    assert not is_hung(segment(age_ms=age_ms, superseded=True), p99_ms, NOW_MS), "it failed"


def test_a_large_segment_has_the_time_that_its_size_needs() -> None:
    assert not is_hung(segment(age_ms=5 * MINUTE_MS, segment_size_bytes=300_000_000), None, NOW_MS)
    assert is_hung(segment(age_ms=5 * MINUTE_MS + 1, segment_size_bytes=300_000_000), None, NOW_MS)


@pytest.mark.parametrize(
    ("leader", "why"),
    [
        ((1, "id-orders"), None),
        ((2, "id-orders"), "broker 2 leads now"),
        ((1, "a later topic"), "its topic was deleted, and made again under its name"),
        (None, "its partition is gone"),
    ],
)
def test_a_copy_whose_author_does_not_lead_any_more_is_dangling(
    leader: tuple[int, str] | None, why: str | None
) -> None:
    assert why_dangling(segment(), leader) == why
    assert why_dangling(segment(superseded=True), (1, "id-orders")) == "it failed, or a later copy began"


def test_the_age_of_a_copy_is_compared_with_its_usual_time() -> None:
    assert times_p99(175 * MINUTE_MS, 48_000) == "219× its p99"
    assert times_p99(MINUTE_MS, 48_000) == "within its usual time"
    assert times_p99(MINUTE_MS, None) == "p99 not known yet"
