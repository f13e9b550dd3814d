"""Groups: those without members read where they commit, those below the log start have lost records."""

from __future__ import annotations

from typing import Any

from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import READS_FOR_MS, Candidate, GroupOffset
from backend.control.findings.group_starts import OFFSETS_AGE_MS_MAX, GroupStarts, remember_starts
from backend.control.findings.remote_reads import remote_reads
from backend.control.findings.rules.reader_rules import LOST_FOR_MS, MARKERS_MAX
from tests.unit.control.findings.sights import NOW_MS, context, partition

CUT = [partition(log_start_offset=100), partition(index=1, log_start_offset=100)]


def lost(*offsets: GroupOffset, **more: Any) -> dict[str, Candidate]:
    """Findings group-below-log-start by object."""
    rows = more.pop("partitions", CUT)
    starts = remember_starts(more.pop("before", GroupStarts()), offsets, NOW_MS, rows, NOW_MS)
    of_groups = {"group_bounds": starts.bounds, "readable_offsets": starts.readable}
    raised = candidates(context(partitions=rows, group_offsets=offsets, **of_groups, **more)).values()
    return {candidate.object: candidate for candidate in raised if candidate.slug == "group-below-log-start"}


def test_a_group_that_assigns_and_commits_reads_while_it_commits_now_and_then() -> None:
    flink = GroupOffset("flink-job", "orders", 0, 300, members=False, moved_ms=NOW_MS - READS_FOR_MS)
    (read,) = remote_reads([flink], [partition()], NOW_MS)
    assert (read.group, read.members, read.offsets_left) == ("flink-job", False, 200)
    assert remote_reads([flink], [partition()], NOW_MS + 1) == []
    never = GroupOffset("abandoned", "orders", 0, 300, members=False)
    assert remote_reads([never], [partition()], NOW_MS) == []
    still = GroupOffset("with members", "orders", 0, 300)
    assert len(remote_reads([still], [partition()], NOW_MS)) == 1


def test_a_group_whose_records_are_gone_is_told_once_with_where_and_how_many() -> None:
    result = lost(GroupOffset("billing", "orders", 0, 40), GroupOffset("billing", "orders", 1, 90))
    candidate = result["group billing"]
    assert (candidate.severity, candidate.for_ms, candidate.topic) == ("warning", LOST_FOR_MS, "orders")
    assert candidate.why == (
        "70 records of 2 partitions are gone before it has read them: of orders-0 it has committed 40, and the log"
        " starts at 100."
    )
    assert candidate.facts["partitions"][1] == {
        "partition": "orders-1",
        "committed_offset": 90,
        "log_start_offset": 100,
    }
    assert "Lengthen the retention" in candidate.action


def test_a_group_without_members_is_a_warning_while_it_commits_and_else_a_notice() -> None:
    idle = lost(GroupOffset("nightly", "orders", 0, 40, members=False))["group nightly"]
    assert idle.severity == "notice"
    assert idle.why.endswith("It has no members; when it starts again, they are missing.")
    flink = GroupOffset("flink-job", "orders", 0, 40, members=False, moved_ms=NOW_MS)
    busy = lost(flink)["group flink-job"]
    assert busy.severity == "warning"
    assert busy.why.endswith("It has no members, and goes on to commit.")


def test_a_group_at_or_above_the_log_start_has_lost_nothing() -> None:
    assert lost(GroupOffset("billing", "orders", 0, 100)) == {}
    assert lost(GroupOffset("billing", "gone", 0, 1)) == {}
    unknown = [partition(log_start_offset=None), partition(index=1, log_start_offset=100, answered_ms=NOW_MS - 9_000)]
    both = (GroupOffset("billing", "orders", 0, 1), GroupOffset("billing", "orders", 1, 1))
    assert lost(*both, partitions=unknown) == {}


def test_a_group_without_members_that_loses_records_while_it_is_watched_is_a_warning() -> None:
    slow = GroupOffset("slow", "orders", 0, 40, members=False)
    before = remember_starts(GroupStarts(), [slow], NOW_MS - 15_000, [partition()], NOW_MS - 15_000)
    candidate = lost(slow, before=before)["group slow"]
    assert candidate.severity == "warning"
    assert "offsets are missing" in candidate.action


def test_markers_of_transactions_above_the_last_record_of_an_emptied_log_are_no_lost_records() -> None:
    emptied = [partition(log_start_offset=100, log_end_offset=100)]
    assert lost(GroupOffset("g", "orders", 0, 99), partitions=emptied) == {}
    assert lost(GroupOffset("g", "orders", 0, 100 - MARKERS_MAX), partitions=emptied) == {}
    assert set(lost(GroupOffset("g", "orders", 0, 99 - MARKERS_MAX), partitions=emptied)) == {"group g"}
    assert set(lost(GroupOffset("g", "orders", 0, 99))) == {"group g"}, "the log has records"


def test_offsets_that_are_old_are_compared_with_the_log_starts_of_their_time() -> None:
    offset = GroupOffset("g", "orders", 0, 40)
    fresh = remember_starts(GroupStarts(), [offset], NOW_MS, [partition()], NOW_MS)
    later_ms = NOW_MS + OFFSETS_AGE_MS_MAX
    assert remember_starts(fresh, [offset], NOW_MS, CUT, later_ms).bounds["orders", 0].start == 100
    assert remember_starts(fresh, [offset], NOW_MS, CUT, later_ms + 1).bounds["orders", 0].start == 0
    # It was never read: nothing can be said.
    assert remember_starts(GroupStarts(), (), None, CUT, NOW_MS).bounds == {}


def test_an_offset_that_is_read_no_more_is_forgotten() -> None:
    fresh = remember_starts(GroupStarts(), [GroupOffset("g", "orders", 0, 40)], NOW_MS, [partition()], NOW_MS)
    assert fresh.readable == {("g", "orders", 0)}
    assert remember_starts(fresh, (), NOW_MS + 1, CUT, NOW_MS + 1).readable == frozenset()
