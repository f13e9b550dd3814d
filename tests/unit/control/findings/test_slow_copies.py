"""Copying falls behind: sealed segments count, the active one never, with a limit in bytes or by time alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate
from backend.control.findings.still_offsets import PartitionStill, StillOffset
from tests.unit.control.findings.rule_cases import rules
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, context, finished, partition, segment, topic

MB = 1_000_000


def slow(**more: Any) -> Candidate | None:
    raised = candidates(context(**more))
    return raised.get(("copy-slow", "orders-0"))


def waiting(size: int, *, pending_from: int = 0, **more: Any) -> list[Any]:
    """A partition of 100 records of one size, all of them local."""
    offsets = {"log_start_offset": 0, "local_log_start_offset": 0, "log_end_offset": 100, "latest_tiered_offset": -1}
    return [partition(local_log_bytes=size, earliest_pending_upload_offset=pending_from, **offsets | more)]


def still(age_ms: int, offset: int = 0) -> dict[tuple[str, int], PartitionStill]:
    return {("orders", 0): PartitionStill("id-orders", StillOffset(offset, NOW_MS - age_ms), None)}


def test_a_topic_with_nothing_but_an_active_segment_is_not_behind() -> None:
    """801 kB under local.retention.bytes of 500 kB, for hours; Kafka's RemoteCopyLagBytes is 0."""
    trickle = {"orders": topic(segment_bytes="1048576", local_retention_bytes="500000")}
    assert slow(partitions=waiting(801_000), topics=trickle, still=still(60 * MINUTE_MS)) is None


def test_sealed_segments_beyond_local_retention_are_behind_with_both_numbers() -> None:
    busy = {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}
    assert slow(partitions=waiting(3 * MB - 1), topics=busy) is None
    candidate = slow(partitions=waiting(3 * MB), topics=busy)
    assert candidate is not None
    assert candidate.why == (
        "At least 2.0 MB in sealed segments wait, of 3.0 MB not uploaded; local retention is 2.0 MB, so nothing local"
        " can go."
    )
    assert (candidate.facts["sealed_bytes"], candidate.facts["pending_bytes"]) == (2 * MB, 3 * MB)
    assert candidate.for_ms == 10_000


def test_a_segment_that_was_just_sealed_waits_as_a_matter_of_course_whatever_the_limit() -> None:
    small = {"orders": topic(segment_bytes="1000000", local_retention_bytes="1")}
    assert slow(partitions=waiting(2 * MB - 1), topics=small) is None
    assert slow(partitions=waiting(2 * MB), topics=small) is not None


BY_TIME = {"orders": topic(segment_bytes="1000000", local_retention_bytes="-2", local_retention_ms="60000")}


@pytest.mark.parametrize(
    ("size", "age_ms", "expected"),
    [
        (1_200_000, 2 * MINUTE_MS, True),
        (1_200_000, 2 * MINUTE_MS - 1, False),
        (1_000_000, 60 * MINUTE_MS, False),
    ],
    ids=["two minutes", "not yet", "the active segment may be all of it"],
)
def test_with_a_limit_by_time_alone_it_comes_when_nothing_is_copied_for_two_minutes(
    size: int, age_ms: int, expected: bool
) -> None:
    candidate = slow(partitions=waiting(size), topics=BY_TIME, still=still(age_ms))
    assert (candidate is not None) is expected
    if candidate is not None:
        assert candidate.for_ms == 0
        assert "none of it has been copied for 2 m, from offset 0 on" in candidate.why
        assert candidate.action.startswith("Look in broker 1's log why it copies nothing of orders-0")


def test_a_broker_that_looks_for_segments_less_often_is_given_four_of_its_intervals() -> None:
    seldom: dict[str, Any] = {"topics": BY_TIME, "task_intervals_ms": {1: MINUTE_MS}}
    assert slow(partitions=waiting(1_200_000), still=still(4 * MINUTE_MS - 1), **seldom) is None
    assert slow(partitions=waiting(1_200_000), still=still(4 * MINUTE_MS), **seldom) is not None


def test_it_is_not_told_while_a_copy_is_under_way_that_takes_its_time() -> None:
    """A segment of 1 GiB at 5 MB/s takes 200 s."""
    held = {"partitions": waiting(3 * MB), "topics": BY_TIME, "still": still(3 * MINUTE_MS)}
    copy = segment(age_ms=3 * MINUTE_MS)
    assert slow(**held, open_segments=[copy], p99_ms={("orders", 0): 200_000}) is None
    assert slow(**held, open_segments=[copy]) is not None
    failed = segment(age_ms=MINUTE_MS, superseded=True)
    assert slow(**held, open_segments=[failed]) is not None


def test_copying_that_is_paused_is_asked_to_be_resumed_only_where_a_limit_in_bytes_is_passed() -> None:
    paused = {"orders": topic(segment_bytes="1000000", local_retention_bytes="-2", remote_log_copy_disable="true")}
    assert slow(partitions=waiting(9 * MB), topics=paused, still=still(60 * MINUTE_MS)) is None
    limited = {"orders": topic(segment_bytes="1000000", local_retention_bytes="1000", remote_log_copy_disable="true")}
    candidate = slow(partitions=waiting(9 * MB), topics=limited)
    assert candidate is not None
    assert candidate.action == "Resume copying on the topic."


def test_records_of_uneven_size_do_not_make_copied_bytes_pending() -> None:
    """Two copied segments of ten large records, and 5,000 small ones in the active segment."""
    row = partition(
        log_start_offset=0,
        local_log_start_offset=0,
        latest_tiered_offset=19,
        earliest_pending_upload_offset=20,
        log_end_offset=5_020,
        local_log_bytes=2_500_000,
    )
    big = {"segment_size_bytes": MB}
    copied = [finished("a", 0, 9, [[0, 0]], **big), finished("b", 10, 19, [[0, 10]], **big)]
    held = {"partitions": [row], "topics": BY_TIME, "still": still(9 * MINUTE_MS, 20)}
    assert slow(**held, finished=[]) is not None, "without the ledger the estimate is all that is known"
    assert slow(**held, finished=copied) is None


def test_a_broker_that_does_not_know_the_pending_offset_is_judged_by_the_latest_tiered_one() -> None:
    busy = {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}
    offsets: dict[str, Any] = {"latest_tiered_offset": 9, "earliest_pending_upload_offset": None}
    old = [partition(local_log_start_offset=0, log_end_offset=100, local_log_bytes=4 * MB, **offsets)]
    candidate = slow(partitions=old, topics=busy)
    assert candidate is not None
    assert candidate.facts["pending_bytes"] == 3_600_000


def test_what_is_not_known_is_not_behind() -> None:
    assert slow(partitions=waiting(9 * MB), topics={}, still=still(9 * MINUTE_MS)) is None
    unknown = waiting(9 * MB, pending_reason="leader_does_not_know", pending_from=-1)
    assert slow(partitions=unknown, topics=BY_TIME, still=still(9 * MINUTE_MS)) is None


def test_small_segments_that_wait_beyond_local_retention_are_told_after_two_task_intervals() -> None:
    """Segments roll by their index, far below segment.bytes: the broker's meter tells that they wait."""
    small = {"orders": topic(segment_bytes="1073741824", local_retention_bytes="60000")}
    held = {"partitions": waiting(190_000), "topics": small, "copy_lags": {(1, "orders"): 170_000.0}}
    assert slow(**held, still=still(MINUTE_MS - 1)) is None
    candidate = slow(**held, still=still(MINUTE_MS))
    assert candidate is not None
    assert candidate.why.startswith(
        "At least 170 kB in sealed segments wait, of 190 kB not uploaded; local retention is"
    )
    assert "none of it has been copied for 1 m" in candidate.why


def test_partitions_of_several_brokers_that_are_behind_are_one_finding_of_the_store() -> None:
    busy = {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}

    def behind(number: int, leader: int) -> Any:
        return replace(waiting(3 * MB)[0], partition=number, leader=leader)

    one_broker = candidates(context(partitions=[behind(n, 1) for n in range(3)], replicas=[], topics=busy))
    assert [key for key in one_broker if key[0] == "copy-slow"] == [("copy-slow", f"orders-{n}") for n in range(3)]
    all_brokers = candidates(context(partitions=[behind(n, n % 3 + 1) for n in range(12)], replicas=[], topics=busy))
    [store_wide] = [candidate for key, candidate in all_brokers.items() if key[0] == "copy-slow"]
    assert (store_wide.object, store_wide.facts["count"], store_wide.facts["brokers"]) == (
        "remote storage",
        12,
        [1, 2, 3],
    )
    assert "24.0 MB in sealed segments wait, of 12 partitions of broker 1, 2, 3: orders-0, " in store_wide.why
    assert "and 2 more" in store_wide.why


def test_a_limit_of_copies_is_named_before_threads_and_the_store() -> None:
    busy: dict[str, Any] = {"topics": {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}}
    limited = slow(partitions=waiting(3 * MB), copy_limits={1: 250_000, 2: 1}, **busy)
    assert limited is not None
    assert limited.why.endswith(
        "Copies have a limit (remote.log.manager.copy.max.bytes.per.second): broker 1 250 kB/s."
    )
    assert limited.action.startswith("Raise remote.log.manager.copy.max.bytes.per.second where less is copied")
    assert "thread" not in limited.action, "more threads share the same limit"
    unlimited = slow(partitions=waiting(3 * MB), copy_limits={2: 1}, **busy)
    assert unlimited is not None
    assert unlimited.action == "Compare with the produce rate; raise the copier threads of broker 1."


def test_copies_that_a_limit_holds_back_are_one_finding_from_the_first_partition_on() -> None:
    """A quota in the wrong unit: the other partitions follow within half a minute."""
    busy: dict[str, Any] = {"topics": {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}}
    held = rules(partitions=waiting(3 * MB), copy_limits={1: 50_000, 2: 50_000}, **busy)["copy-slow"]
    assert held.object == "remote storage"
    assert "of 1 partition of broker 1: orders-0. Copies have a limit" in held.why
    peaks = rules(partitions=waiting(3 * MB), copy_limits={1: 50 * MB, 2: 50 * MB}, **busy)["copy-slow"]
    assert peaks.object == "orders-0", "at that limit 3 MB need no second"


@pytest.mark.parametrize("shared", [False, True])
def test_a_backlog_of_an_outage_of_all_brokers_has_a_minute(shared: bool) -> None:
    """Producers held records back; where a limit makes it one finding it is no sooner."""
    busy: dict[str, Any] = {"topics": {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}}
    busy["copy_limits"] = {1: 50_000} if shared else {}
    back = rules(partitions=waiting(3 * MB), back_ms=1_000, **busy)["copy-slow"]
    assert (back.object == "remote storage", back.for_ms) == (shared, 60_000)
    assert rules(partitions=waiting(3 * MB), **busy)["copy-slow"].for_ms == 10_000


def test_a_finding_by_offsets_has_the_time_at_which_they_were_listed() -> None:
    busy: dict[str, Any] = {"topics": {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}}
    rests = slow(partitions=waiting(3 * MB), earlier_ms={("orders", 0): NOW_MS - 90_000}, **busy)
    assert rests is not None
    assert rests.seen_ms == NOW_MS - 90_000
    moves = slow(partitions=waiting(3 * MB), earlier_ms={("orders", 1): NOW_MS - 90_000}, **busy)
    assert moves is not None
    assert moves.seen_ms is None


def test_a_backlog_of_the_time_in_which_all_brokers_were_away_gets_time() -> None:
    busy = {"orders": topic(segment_bytes="1000000", local_retention_bytes="2000000")}
    backlog = slow(partitions=waiting(3 * MB), topics=busy, back_ms=12_000)
    assert backlog is not None
    assert backlog.for_ms == 60_000
    held = {"partitions": waiting(1_200_000), "topics": BY_TIME, "still": still(4 * MINUTE_MS)}
    assert slow(**held) is not None
    assert slow(**held, back_ms=MINUTE_MS) is None, "nothing could be copied for three of the four minutes"


def test_segments_that_roll_by_time_below_their_size_are_behind_once_they_wait_that_long() -> None:
    rolls = {"orders": topic(segment_bytes="1073741824", segment_ms="600000")}

    def appended(age_ms: int) -> dict[tuple[str, int], PartitionStill]:
        pending, end = StillOffset(0, NOW_MS - 12 * MINUTE_MS), StillOffset(100, NOW_MS - age_ms)
        return {("orders", 0): PartitionStill("id-orders", pending, None, end, 50)}

    assert slow(partitions=waiting(800), topics=rolls, still=appended(2 * MINUTE_MS)) is None, "nothing rolled it"
    candidate = slow(partitions=waiting(800), topics=rolls, still=appended(0))
    assert candidate is not None
    assert candidate.why.startswith("At least 400 B in sealed segments wait, of 800 B not uploaded; none of it has")
    assert candidate.for_ms == 2 * MINUTE_MS, "it may have been sealed a moment ago, and is copied in a moment"
