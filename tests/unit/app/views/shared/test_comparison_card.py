"""A partition at two instants: what changed, and what is not known of then."""

from __future__ import annotations

from app.components.partition import instant_comparison
from app.components.partition.instant_comparison import Instant
from backend.store.queries.partitions import PartitionPoint
from backend.store.queries.time_travel import RemoteTotalsThen

FIRST_MS, SECOND_MS = 1_700_000_000_000, 1_700_000_600_000


def point(at_ms: int, end: int) -> PartitionPoint:
    return PartitionPoint(at_ms, 1, 3, 0, 50, 40, 41, end, end)


def test_each_fact_stands_at_both_instants_with_its_change() -> None:
    first = Instant(FIRST_MS, RemoteTotalsThen(2, 2_000_000, 0, 99), point(FIRST_MS, 120))
    second = Instant(SECOND_MS, RemoteTotalsThen(5, 1_500_000, 30, 399), point(SECOND_MS, 1_440))
    html = instant_comparison.table_html(first, second, "then", "now")
    for words in ("+3", "−500 kB", "+30", "+300", "+1\u202f320"):
        assert words in html, words
    assert "same" in html  # local start
    rows = instant_comparison.rows(first, second)
    assert list(rows.iloc[0])[1:] == [2, 5]


def test_what_is_not_known_of_then_is_said_and_nothing_is_zero() -> None:
    nothing = Instant(FIRST_MS, RemoteTotalsThen(0, 0, None, None), None)
    second = Instant(SECOND_MS, RemoteTotalsThen(1, 10, 0, 9), point(SECOND_MS, 20))
    html = instant_comparison.table_html(nothing, second, "then", "now")
    assert html.count("nothing was remote") == 2
    assert html.count("? no sample of then") == 3
    assert html.count(">?<") == 5


def test_a_sample_tells_only_of_the_time_shortly_after_it() -> None:
    points = [point(1_000, 10), point(3_000, 20), point(9_000, 30)]
    assert instant_comparison.point_at(points, 500, 2_000) is None
    assert instant_comparison.point_at(points, 4_000, 2_000) == points[1]
    assert instant_comparison.point_at(points, 9_000 + 30_000, 2_000) == points[2]
    assert instant_comparison.point_at(points, 9_000 + 30_001, 2_000) is None


def test_the_same_instant_twice_gives_one_table() -> None:
    instant = Instant(FIRST_MS, RemoteTotalsThen(1, 10, 0, 9), point(FIRST_MS, 20))
    assert instant_comparison.table_html(instant, instant, "a", "b").count("same") == 7
