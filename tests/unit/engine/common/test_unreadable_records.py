"""Records that cannot be read are counted once, and logged in few lines."""

from __future__ import annotations

import logging

import pytest

from backend.engine.common.unreadable_records import UnreadableRecords


def test_whoever_reads_a_record_again_counts_it_once() -> None:
    unreadable_records = UnreadableRecords()
    for _ in range(3):
        unreadable_records.note("t", 0, 5, "why")
        unreadable_records.note("t", 0, 6, "why", last_offset=9)
        unreadable_records.note("t", 1, 5, "why")
    unreadable_records.note("u", 0, 1, "why")
    assert unreadable_records.counts == {"t": 3, "u": 1}


def test_a_log_full_of_them_has_a_line_for_each_power_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    unreadable_records = UnreadableRecords()
    with caplog.at_level(logging.WARNING):
        for offset in range(5000):
            unreadable_records.note("t", 3, 2 * offset, "is none", last_offset=2 * offset + 1)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert lines[0] == "Passed over records 0 to 1 of t-3 (1 there since the start): cannot be read: is none"
