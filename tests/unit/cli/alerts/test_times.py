"""Durations and moments as people write them."""

from __future__ import annotations

import pytest

from backend.cli.alerts.times import parse_minutes, parse_moment


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("2h", 120),
        ("90m", 90),
        ("1d12h", 2_160),
        ("1h30m", 90),
        ("30s", 1),
        ("61s", 2),
        ("30d", 43_200),
        ("30d1m", None),
        ("0m", None),
        ("", None),
        ("2", None),
        ("2 hours", None),
        ("-2h", None),
        ("h", None),
        ("99999999d", None),
    ],
)
def test_a_duration_is_whole_minutes_up_to_thirty_days(text: str, minutes: int | None) -> None:
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2027-01-15T08:00", 1_800_000_000_000),
        ("2027-01-15 09:00+01:00", 1_800_000_000_000),
        ("2027-01-15T08:00:00Z", 1_800_000_000_000),
        ("tomorrow", None),
        ("", None),
        ("1900-01-01", None),
    ],
)
def test_a_moment_is_in_utc_unless_it_names_a_zone(text: str, at_ms: int | None) -> None:
    assert parse_moment(text) == at_ms
