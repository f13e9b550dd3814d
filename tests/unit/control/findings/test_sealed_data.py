"""Sealed bytes that wait for their copy: what is known of them at least, without and with the broker's meter."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.findings.sealed_data import sealed_bytes, sealed_data
from backend.control.findings.still_offsets import PartitionKey, PartitionStill, StillOffset
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, context, partition, topic


@pytest.mark.parametrize(
    ("pending", "others", "segment_bytes", "lag", "expected"),
    [
        (800, 0, 1_000, None, 0),
        (1_200, 0, 1_000, None, 200),
        (1_200, 0, None, None, 0),
        # Segments that roll by time or by their index are small: the meter knows.
        (190, 0, 1 << 30, 170.0, 170),
        (190, 0, None, 170.0, 170),
        # All of it is the active segment.
        (1_200, 0, 1_000, 0.0, 0),
        # Of 500 sealed bytes 400 at most are the other partitions'.
        (600, 400, 1_000, 500.0, 100),
        (600, 900, 1_000, 500.0, 0),
        # The meter is of a moment ago.
        (100, 0, 1_000, 900.0, 100),
    ],
)
def test_sealed_bytes_are_at_least_what_cannot_be_active(
    pending: int, others: int, segment_bytes: int | None, lag: float | None, expected: int
) -> None:
    assert sealed_bytes(pending, others, segment_bytes, lag) == expected


def test_the_meter_of_a_leader_is_split_among_the_partitions_that_it_leads() -> None:
    rows = [partition(index=index, leader=leader) for index, leader in enumerate((1, 1, 2))]
    wide = {"orders": topic(segment_bytes="1000000")}
    # Each has 200 bytes pending.
    assert sealed_data(context(partitions=rows, topics=wide)) == {}
    lags = {(1, "orders"): 350.0, (2, "orders"): 120.0}
    expected = {("orders", 0): 150, ("orders", 1): 150, ("orders", 2): 120}
    assert sealed_data(context(partitions=rows, topics=wide, copy_lags=lags)) == expected


HOUR_MS = 60 * MINUTE_MS
# Rolls each hour, far below segment.bytes; local retention is a day.
BY_TIME = {"orders": topic(segment_bytes="1073741824", segment_ms=str(HOUR_MS), local_retention_ms=str(24 * HOUR_MS))}


def waits(since_ms: int, appended_ms: int, pending_to: int = 900) -> dict[PartitionKey, PartitionStill]:
    """The records from 800 on wait for so long; the last one was appended so long ago."""
    pending, end = StillOffset(800, NOW_MS - since_ms), StillOffset(1_000, NOW_MS - appended_ms)
    return {("orders", 0): PartitionStill("id-orders", pending, None, end, pending_to)}


@pytest.mark.parametrize(
    ("since_ms", "appended_ms", "expected"),
    [
        # Of 200 pending bytes the records that were there at first are sealed by a record that came an hour later.
        (2 * HOUR_MS, HOUR_MS - 1, 100),
        (2 * HOUR_MS, HOUR_MS, None),
        (HOUR_MS, 0, None),
        # Nothing came since: only retention rolls an idle segment, when it looks next.
        (40 * HOUR_MS, 24 * HOUR_MS + 5 * MINUTE_MS + 1, 200),
        (24 * HOUR_MS + 5 * MINUTE_MS, 24 * HOUR_MS + 5 * MINUTE_MS, None),
    ],
)
def test_what_has_waited_for_longer_than_a_segment_lives_is_sealed(
    since_ms: int, appended_ms: int, expected: int | None
) -> None:
    facts: dict[str, Any] = {"topics": BY_TIME, "still": waits(since_ms, appended_ms)}
    assert sealed_data(context(**facts)).get(("orders", 0)) == expected
    metered = sealed_data(context(**facts, copy_lags={(1, "orders"): 0.0}))
    assert metered == {}, "the broker's meter knows better"


def test_without_a_segment_time_or_retention_nothing_is_known_of_the_active_segment() -> None:
    assert sealed_data(context(topics={"orders": topic(segment_bytes="1073741824")}, still=waits(HOUR_MS, 0))) == {}
