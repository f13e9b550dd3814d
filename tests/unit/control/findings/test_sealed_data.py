"""Sealed bytes that wait for their copy: what is known of them at least, without and with the broker's meter."""

from __future__ import annotations

import pytest

from backend.control.findings.sealed_data import sealed_bytes, sealed_data
from tests.unit.control.findings.sights import context, partition, topic


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
