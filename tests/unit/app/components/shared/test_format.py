"""Numbers, sizes, durations and times as people read them."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from app.components.shared import format as fmt
from tests.unit.app.overview_rows import NOW_MS


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "?"),
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_960, "100 kB"),
        (999_600, "1.0 MB"),
        (142_600_000_000, "143 GB"),
        (64_200_000_000, "64.2 GB"),
        (218_400_000_000_000, "218 TB"),
        (5e18, "5000 PB"),
    ],
)
def test_sizes_are_decimal_with_one_place_below_a_hundred(value: float | None, expected: str) -> None:
    assert fmt.size(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "?"),
        (-3, "0.0 s"),
        (0.42, "0.4 s"),
        (0.0994, "99 ms"),
        (0.0995, "0.1 s"),
        (0.0004, "0.0 s"),
        (4, "4 s"),
        (59.6, "1 m"),
        (125, "2 m 5 s"),
        (10_500, "2 h 55 m"),
        (3_600, "1 h"),
        (86_400 * 3 + 4 * 3_600, "3 d 4 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, expected: str) -> None:
    assert fmt.duration(seconds) == expected


def test_counts_are_grouped_by_a_narrow_no_break_space() -> None:
    assert fmt.count(9_402_911) == "9\u202f402\u202f911"
    assert fmt.count(None) == "?"
    assert fmt.offset_range(0, 1_000) == "[0, 1\u202f000)"


def test_clock_is_utc_and_names_another_day() -> None:
    assert fmt.clock(NOW_MS, NOW_MS) == "08:00:00"
    assert fmt.clock(NOW_MS - 86_400_000, NOW_MS) == "2027-01-14 08:00:00"
    assert fmt.clock(NOW_MS, NOW_MS, ZoneInfo("Asia/Tokyo")) == "17:00:00"
    assert fmt.clock(None, NOW_MS) == "?"


@pytest.mark.parametrize(("value", "expected"), [(950.0, "950"), (120_000.0, "120 k"), (8_400_000.0, "8.4 M")])
def test_axis_counts_are_short(value: float, expected: str) -> None:
    assert fmt.axis_count(value) == expected
