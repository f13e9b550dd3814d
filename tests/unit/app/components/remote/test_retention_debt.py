"""Local data past local retention, by the reason why it stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.components.remote import retention_debt
from app.components.remote.retention_debt import ACTIVE, NEXT, NOT_COPIED, NOT_STABLE, PAUSED, UNKNOWN
from tests.unit.app.partition_rows import partition_row, topic_row

# 5,000 local bytes of 500 records; 3,000 of them not copied, the last 100 above the high watermark; 2,000 may stay.
SEGMENT = {"segment.bytes": "1000"}


@pytest.mark.parametrize(
    ("row", "topic", "sizes"),
    [
        ({}, {"local.retention.bytes": "2000"}, {NEXT: 2000, NOT_COPIED: 1000}),
        ({}, {"local.retention.bytes": "3500"}, {NEXT: 1500}),
        ({}, {"local.retention.bytes": "50"}, {NEXT: 2000, NOT_COPIED: 2000, ACTIVE: 900, NOT_STABLE: 50}),
        ({"earliest_pending_upload_offset": 500}, {}, {NOT_COPIED: 3000}),
        ({"earliest_pending_upload_offset": 500}, {"segment.bytes": "9000"}, {ACTIVE: 3000}),
        ({}, {"remote.log.copy.disable": "true"}, {PAUSED: 3000}),
        ({"earliest_pending_upload_offset": None, "latest_tiered_offset": None}, {}, {UNKNOWN: 3000}),
        # A transaction is open from 950 on.
        (
            {"last_stable_offset": 950},
            {"local.retention.bytes": "50"},
            {NEXT: 2000, NOT_COPIED: 2000, ACTIVE: 500, NOT_STABLE: 450},
        ),
        # It is open from 750 on, below segments that are sealed.
        (
            {"last_stable_offset": 750},
            {"local.retention.bytes": "50"},
            {NEXT: 2000, NOT_COPIED: 500, NOT_STABLE: 2450},
        ),
        ({"local_log_bytes": 2000}, {}, {}),
    ],
)
def test_bytes_past_retention_are_told_by_what_keeps_them(
    row: dict[str, Any], topic: dict[str, str], sizes: dict[str, int]
) -> None:
    debt = retention_debt.debt([partition_row(**row)], [topic_row(**{**SEGMENT, **topic})])
    assert dict(debt.sizes) == sizes


def test_what_cannot_be_counted_is_said_and_not_left_out() -> None:
    by_time = partition_row(topic="by-time")
    config = {"local.retention.bytes": "-1", "local.retention.ms": "1000"}
    topics = [topic_row(**SEGMENT), topic_row(**config).__class__("by-time", "u", 1, 3, False, True, dict(config), 0)]
    debt = retention_debt.debt([partition_row(local_log_bytes=None), by_time], topics)
    assert (debt.total_bytes, debt.by_time_only, debt.size_unknown) == (0, 1, 1)
    shown = retention_debt.html(debt)
    assert "1 partitions are limited by time only" in shown
    assert "? 1 have not told their size" in shown


@given(
    size=st.integers(0, 10**6),
    limit=st.integers(1, 10**6),
    segment=st.integers(1, 10**6),
    pending=st.integers(500, 1000),
    watermark=st.integers(0, 1000),
)
def test_the_reasons_always_add_up_to_what_is_too_much(
    size: int, limit: int, segment: int, pending: int, watermark: int
) -> None:
    row = partition_row(local_log_bytes=size, earliest_pending_upload_offset=pending, high_watermark=watermark)
    topic = topic_row(**{"local.retention.bytes": str(limit), "segment.bytes": str(segment)})
    debt = retention_debt.debt([row], [topic])
    assert debt.total_bytes == max(0, size - limit)
    assert all(part > 0 for part in debt.sizes.values())
