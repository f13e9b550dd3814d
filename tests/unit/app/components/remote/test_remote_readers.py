"""Groups that read from the remote tier: from the watch's facts to the page's card."""

from __future__ import annotations

from typing import Any

from app.components.remote import remote_readers
from backend.control.findings.finding_context import GroupOffset
from backend.control.observer.watches.reader_watch import READS_MAX, reads_summary
from tests.unit.app.partition_rows import NOW_MS
from tests.unit.control.findings.sights import partition

# The partition of the sights: log start 0, local from 500.
READS = [GroupOffset("backfill", "orders", 0, 100, moved=True), GroupOffset("<b>late", "orders", 0, 400)]


def test_who_is_below_the_local_log_is_told_the_most_to_read_first() -> None:
    result = reads_summary([*READS, GroupOffset("live", "orders", 0, 700)], [partition()], NOW_MS)
    readers = remote_readers.of({"readers": {**result, "cause": None}}, "orders", 0)
    assert [(reader.group, reader.offsets_left, reader.moved) for reader in readers.rows] == [
        ("backfill", 400, True),
        ("<b>late", 100, False),
    ]
    shown = remote_readers.html(readers)
    assert "&lt;b&gt;late" in shown
    assert "stands still" in shown
    assert remote_readers.clause(readers, NOW_MS + 4_000) == "committed below local start, 4 s ago"
    assert remote_readers.of({"readers": result}, "orders", 1).rows == ()


def test_a_heartbeat_holds_those_with_the_most_left_and_says_that_there_are_more() -> None:
    many = [GroupOffset(f"g{number}", "orders", 0, number) for number in range(READS_MAX + 5)]
    result = reads_summary(many, [partition()], NOW_MS)
    assert (result["count"], len(result["rows"])) == (READS_MAX + 5, READS_MAX)
    assert result["rows"][0]["group"] == "g0"
    readers = remote_readers.of({"readers": result}, "other", 0)
    assert "others may" in remote_readers.html(readers)


def test_nobody_has_looked_is_not_nobody_reads() -> None:
    assert remote_readers.NOT_READ in remote_readers.html(remote_readers.of(None, "orders", 0))
    refused: dict[str, Any] = {"readers": {"seen_ms": None, "rows": [], "count": 0, "cause": "Not authorized."}}
    assert "? Not authorized." in remote_readers.html(remote_readers.of(refused, "orders", 0))
    looked: dict[str, Any] = {"readers": {"seen_ms": NOW_MS, "rows": [], "count": 0, "cause": None}}
    assert remote_readers.NONE_READS in remote_readers.html(remote_readers.of(looked, "orders", 0))


def test_a_group_that_only_assigns_and_commits_is_marked() -> None:
    flink = GroupOffset("flink-job", "orders", 0, 100, moved=True, members=False, moved_ms=NOW_MS)
    idle = GroupOffset("gone", "orders", 0, 50, members=False)
    readers = remote_readers.of({"readers": reads_summary([flink, idle], [partition()], NOW_MS)}, "orders", 0)
    assert [(reader.group, reader.members) for reader in readers.rows] == [("flink-job", False)]
    assert "flink-job · no members" in remote_readers.html(readers)
    assert list(remote_readers.rows(readers)["members"]) == [False]
    before = {"group": "g", "topic": "orders", "partition": 0, "committed_offset": 1, "offsets_left": 9,
              "bytes_left": 9, "moved": True}  # fmt: skip
    (row,) = remote_readers.of({"readers": {"seen_ms": 1, "rows": [before], "count": 1}}, "orders", 0).rows
    assert row.members


def test_groups_that_are_not_looked_at_are_said_with_and_without_others() -> None:
    looked = {"readers": {"seen_ms": NOW_MS, "count": 0, "rows": [], "left_out": "Not looked at: 7 groups."}}
    shown = remote_readers.html(remote_readers.of(looked, "orders", 0))
    assert "? Not looked at: 7 groups." in shown
