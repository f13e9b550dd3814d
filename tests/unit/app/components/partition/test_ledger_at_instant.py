"""Time travel of a partition's ledger: instants as people type them, and the fold of its events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.components.partition.ledger_at_instant import link_text, origin_text, parse_instant, past
from backend.store.queries.remote_log import StoredEvent
from backend.tiering.segment_state import SegmentState

NOW_MS = round(datetime(2026, 11, 21, 18, 40, tzinfo=UTC).timestamp() * 1000)
STARTED, FINISHED, DELETING, DELETED = range(4)


def event(offset: int, at_ms: int, state: int, segment: str = "a", **more: Any) -> StoredEvent:
    values: dict[str, Any] = {
        "metadata_partition": 3,
        "metadata_offset": offset,
        "kind": 0 if state == STARTED else 1,
        "topic": "orders",
        "topic_id": "t",
        "partition": 7,
        "segment_id": segment,
        "state": state,
        "broker_id": 1,
        "event_timestamp_ms": at_ms,
        "start_offset": 100 if state == STARTED else None,
        "end_offset": 199 if state == STARTED else None,
        "max_timestamp_ms": 5 if state == STARTED else None,
        "segment_size_bytes": 1000 if state == STARTED else None,
        "leader_epochs": [[4, 100]] if state == STARTED else None,
        "legal": True,
        "illegal_reason": None,
    }
    return StoredEvent(**(values | more))


LIFE = [event(1, 10, STARTED), event(2, 20, FINISHED), event(3, 30, DELETING), event(4, 40, DELETED)]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("18:30", "2026-11-21T18:30:00Z"),
        ("18:30:05", "2026-11-21T18:30:05Z"),
        ("23:59", "2026-11-20T23:59:00Z"),  # it is still to come today
        ("2026-11-20 08:00", "2026-11-20T08:00:00Z"),
        ("2026-11-20T08:00:00Z", "2026-11-20T08:00:00Z"),
        ("10m", "2026-11-21T18:30:00Z"),
        ("- 2h ago", "2026-11-21T16:40:00Z"),
        (str(NOW_MS), "2026-11-21T18:40:00Z"),
    ],
)
def test_instants_as_people_type_them(typed: str, expected: str) -> None:
    result = parse_instant(typed, NOW_MS, None)
    assert result is not None
    assert link_text(result) == expected


@pytest.mark.parametrize("typed", ["", "soon", "25:00", "2027-01-01", "2026-13-01", "9" * 13, "<b>", "10 parsecs"])
def test_what_is_no_instant_of_the_past_is_none(typed: str) -> None:
    assert parse_instant(typed, NOW_MS, None) is None


def test_a_link_means_the_same_instant_in_every_zone() -> None:
    zone = ZoneInfo("Asia/Tokyo")
    assert parse_instant("18:40", NOW_MS, zone) != parse_instant("18:40", NOW_MS, None)
    assert parse_instant(link_text(NOW_MS), NOW_MS, zone) == NOW_MS


@pytest.mark.parametrize(
    ("at_ms", "state", "applied"),
    [
        (10, SegmentState.COPY_SEGMENT_STARTED, 1),
        (29, SegmentState.COPY_SEGMENT_FINISHED, 2),
        (30, SegmentState.DELETE_SEGMENT_STARTED, 3),
        (99, SegmentState.DELETE_SEGMENT_FINISHED, 4),
    ],
)
def test_a_segment_stands_where_its_events_until_then_put_it(at_ms: int, state: SegmentState, applied: int) -> None:
    result = past(LIFE, at_ms)
    assert [row.state for row in result.segments] == [state]
    assert (result.applied, result.later, result.exact) == (applied, 4 - applied, True)


def test_times_and_ranges_of_the_past_are_those_of_the_events() -> None:
    [row] = past(LIFE, 35).segments
    assert (row.start_offset, row.next_offset, row.segment_size_bytes) == (100, 200, 1000)
    assert (row.copy_started_ms, row.copy_finished_ms, row.delete_started_ms) == (10, 20, 30)
    assert row.delete_finished_ms is None


def test_a_copy_of_the_past_is_over_when_a_later_one_had_begun() -> None:
    result = past([event(1, 10, STARTED, "a"), event(2, 20, STARTED, "b")], 99)
    assert {row.segment_id: row.superseded for row in result.segments} == {"a": True, "b": False}


def test_before_the_first_event_there_is_nothing() -> None:
    result = past(LIFE, 9)
    assert (result.segments, result.applied, result.first_ms) == ([], 0, 10)
    assert origin_text(result, "08:00", "09:00").startswith("Nothing was told of this partition until 08:00")
    assert origin_text(past([], 9), "08:00", "?") == "No event of this partition is stored."


def test_events_that_the_ledger_did_not_follow_count_nowhere() -> None:
    result = past([*LIFE[:2], event(3, 25, STARTED, legal=False, illegal_reason="no")], 99)
    assert [row.state for row in result.segments] == [SegmentState.COPY_SEGMENT_FINISHED]
    assert (result.applied, result.later) == (2, 0)


def test_a_repeated_event_keeps_the_first_time() -> None:
    [row] = past([*LIFE[:2], event(3, 25, FINISHED)], 99).segments
    assert row.copy_finished_ms == 20


def test_clocks_that_differ_make_it_inexact() -> None:
    result = past([event(1, 10, STARTED), event(2, 50, STARTED, "b"), event(3, 20, FINISHED)], 30)
    assert not result.exact
    assert result.out_of_order == 1
    assert "Not exact: 1 of them" in origin_text(result, "08:00", "07:00")


def test_an_update_whose_start_is_told_later_is_left_out() -> None:
    result = past([event(1, 50, STARTED), event(2, 20, FINISHED)], 30)
    assert (result.segments, result.refused, result.exact) == ([], 1, False)
