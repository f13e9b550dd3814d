"""Copies that fail: by the ledger of any cluster and by the engine's events, one finding for the store or a broker."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.findings.causes import with_causes
from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate
from backend.control.findings.remote_read_growth import ReadGrowth
from tests.unit.control.findings.sights import (
    MINUTE_MS,
    NOW_MS,
    attempt,
    context,
    copy_event,
    finished_copy,
    partition,
    segment,
    topic,
)

SECOND_MS = 1_000


def failing(**more: Any) -> dict[str, Candidate]:
    """Findings copy-failing by object."""
    raised = candidates(context(**more)).values()
    return {candidate.object: candidate for candidate in raised if candidate.slug == "copy-failing"}


def led_by(*leaders: int) -> list[Any]:
    """Partitions of `orders`, one for each leader."""
    return [partition(index=index, leader=leader) for index, leader in enumerate(leaders)]


def test_a_store_that_refuses_everything_is_one_finding_with_counts_and_first_partitions() -> None:
    leaders = [1, 2, 3] * 20
    attempts = [
        attempt(age_s * SECOND_MS, broker_id=leader, index=index)
        for index, leader in enumerate(leaders)
        for age_s in (5, 35)
    ]
    result = failing(partitions=led_by(*leaders), failed_attempts=attempts)
    assert list(result) == ["remote storage"]
    candidate = result["remote storage"]
    assert (candidate.severity, candidate.broker_id, candidate.for_ms) == ("critical", None, 0)
    assert (candidate.facts["failures"], candidate.facts["partitions"]) == (120, 60)
    assert candidate.facts["brokers"] == [1, 2, 3]
    assert len(candidate.facts["first"]) == 10
    assert candidate.why.startswith("120 copies of 60 partitions failed on broker 1, 2, 3 in the last 35 s, and none")
    assert "nothing is lost while the local disks last" in candidate.action
    assert "credentials" in candidate.action


def test_it_is_told_within_two_task_intervals_of_the_first_failure() -> None:
    rows = led_by(1, 2)

    def after(seconds: int) -> list[str]:
        """Each partition is tried every 30 s, that of broker 2 from 10 s on."""
        attempts = [attempt((seconds - at) * SECOND_MS) for at in (0, 30, 60) if at <= seconds]
        attempts += [attempt((seconds - at) * SECOND_MS, broker_id=2, index=1) for at in (10, 40) if at <= seconds]
        return list(failing(partitions=rows, failed_attempts=attempts))

    assert [after(0), after(20), after(45)] == [[], [], ["remote storage"]]
    first = next(second for second in range(60) if after(second))
    assert first <= 40
    # From then on it is the same finding.
    assert {tuple(after(second)) for second in range(first, 70)} == {("remote storage",)}


def test_a_copy_that_failed_once_and_is_tried_again_is_nothing() -> None:
    assert failing(failed_attempts=[attempt(35 * SECOND_MS)]) == {}
    assert failing(failed_attempts=[attempt(35 * SECOND_MS)], finished_copies=[finished_copy(3 * SECOND_MS)]) == {}
    assert list(failing(failed_attempts=[attempt(40 * SECOND_MS)])) == ["broker 1"]


def test_a_single_failure_is_a_warning_at_most_however_long_nothing_is_copied() -> None:
    (candidate,) = failing(failed_attempts=[attempt(9 * MINUTE_MS)]).values()
    assert candidate.severity == "warning"
    assert "and none has finished since" in candidate.why
    assert failing(failed_attempts=[attempt(9 * MINUTE_MS)], task_intervals_ms={1: 10 * MINUTE_MS}) == {}


def test_no_verdict_while_the_next_try_of_a_copy_that_failed_once_may_well_finish() -> None:
    once, gib = [attempt(2 * MINUTE_MS)], 1 << 30
    again = segment(age_ms=90 * SECOND_MS, segment_size_bytes=gib)
    assert failing(failed_attempts=once, open_segments=[again]) == {}
    too_long = segment(age_ms=90 * SECOND_MS)
    assert list(failing(failed_attempts=once, open_segments=[too_long])) == ["broker 1"]
    before = segment(age_ms=3 * MINUTE_MS, segment_size_bytes=gib)
    assert list(failing(failed_attempts=once, open_segments=[before])) == ["broker 1"]
    # Another copy of the broker has failed since the next try was begun: the store may be no better.
    since = {"partitions": led_by(1, 1), "failed_attempts": [*once, attempt(60 * SECOND_MS, index=1)]}
    assert list(failing(**since, open_segments=[again])) == ["broker 1"]


def test_one_bad_moment_of_the_store_for_many_partitions_is_no_verdict_until_they_are_tried_again() -> None:
    leaders = [1, 2] * 5

    def after(seconds: int) -> dict[str, Candidate]:
        attempts = [attempt(seconds * SECOND_MS, broker_id=b, index=i) for i, b in enumerate(leaders)]
        return failing(partitions=led_by(*leaders), failed_attempts=attempts)

    assert after(39) == {}
    assert {name: candidate.severity for name, candidate in after(40).items()} == {"remote storage": "critical"}


def test_one_broker_that_reaches_nothing_is_named_while_others_finish() -> None:
    result = failing(
        partitions=led_by(1, 2),
        failed_attempts=[attempt(5 * SECOND_MS), attempt(25 * SECOND_MS)],
        finished_copies=[finished_copy(9 * SECOND_MS, broker_id=2, index=1)],
    )
    assert list(result) == ["broker 1"]
    assert (result["broker 1"].severity, result["broker 1"].broker_id) == ("critical", 1)
    assert result["broker 1"].sentence == "Copies fail on broker 1: orders-0"
    # Nothing is known of the others' copies: the store may be what fails, and the next try of theirs tells.
    alone = {"partitions": led_by(1, 2), "failed_attempts": [attempt(5 * SECOND_MS), attempt(25 * SECOND_MS)]}
    assert failing(**alone) == {}
    # After its next try it is the broker, unless a copy of another one hangs as well: it is about to fail.
    later = alone | {"failed_attempts": [attempt(age_s * SECOND_MS) for age_s in (5, 25, 45)]}
    assert list(failing(**later)) == ["broker 1"]
    hangs = segment(copy_broker_id=2, partition=1, copy_started_ms=NOW_MS - 15 * SECOND_MS)
    assert failing(**later, open_segments=[hangs]) == {}
    # A store that works again is seen by one broker first; the next try of this one tells.
    assert failing(**alone, finished_copies=[finished_copy(2 * SECOND_MS, broker_id=2, index=1)]) == {}
    # The last of what the others wrote before the store broke tells nothing either.
    assert failing(**alone, finished_copies=[finished_copy(24 * SECOND_MS, broker_id=2, index=1)]) == {}


def test_a_partition_that_fails_while_others_of_its_broker_finish_is_a_warning() -> None:
    result = failing(
        partitions=led_by(1, 1),
        failed_attempts=[attempt(age_s * SECOND_MS) for age_s in (5, 35, 65, 95)],
        finished_copies=[finished_copy(age_s * SECOND_MS, index=1) for age_s in (80, 300)],
    )
    assert result["broker 1"].severity == "warning"
    assert "others of this broker finish" in result["broker 1"].why


def test_a_store_that_works_again_leaves_no_warning_of_partitions_that_were_not_tried_yet() -> None:
    """Of a broker whose copies all failed the first succeeds: the others' next try tells."""

    def after(seconds: int, *, again: bool = False) -> dict[str, Candidate]:
        ages_s = [seconds + age_s for age_s in (10, 30, 50)] + ([seconds - 20] if again else [])
        return failing(
            partitions=led_by(1, 1),
            failed_attempts=[attempt(age_s * SECOND_MS) for age_s in ages_s],
            # The one that was under way when the store broke tells nothing, either.
            finished_copies=[finished_copy((seconds + age_s) * SECOND_MS, index=1) for age_s in (0, 45)],
        )

    assert [after(1), after(39)] == [{}, {}]
    assert {name: candidate.severity for name, candidate in after(40).items()} == {"broker 1": "warning"}
    assert list(after(20, again=True)) == ["broker 1"], "it failed after the other had got through"


def test_copies_in_flight_when_the_store_goes_away_do_not_soften_it() -> None:
    result = failing(
        partitions=led_by(1, 1, 1),
        failed_attempts=[attempt(age_s * SECOND_MS, index=index) for index in (0, 1) for age_s in (80, 50, 20)],
        finished_copies=[finished_copy(79 * SECOND_MS, index=2)],
    )
    assert result["broker 1"].severity == "critical"


@pytest.mark.parametrize(
    "more",
    [
        {"finished_copies": [finished_copy(SECOND_MS)]},
        {"partitions": [partition(latest_tiered_offset=899)]},
        {"partitions": [partition(log_start_offset=900)]},
        {"partitions": [partition(leader=2)]},
        {"partitions": [partition(topic_id="made again")]},
        {"partitions": [partition(tiered=False)]},
        {"partitions": []},
    ],
    ids=["finished since", "copied since", "expired", "another leads", "made again", "not tiered", "deleted"],
)
def test_it_ends_when_a_copy_finishes_or_nothing_is_left_to_copy(more: dict[str, Any]) -> None:
    attempts = [attempt(2 * SECOND_MS), attempt(50 * SECOND_MS)]
    assert list(failing(failed_attempts=attempts)) == ["broker 1"]
    assert failing(**{"failed_attempts": attempts} | more) == {}


def test_copying_that_was_paused_ends_it_after_two_intervals_without_a_failure() -> None:
    paused = {"topics": {"orders": topic(remote_log_copy_disable="true")}}
    assert list(failing(failed_attempts=[attempt(60 * SECOND_MS)], **paused)) == ["broker 1"]
    assert failing(failed_attempts=[attempt(61 * SECOND_MS)], **paused) == {}


def test_the_engines_events_give_the_reason_and_count_no_failure_twice() -> None:
    reason = "HTTP error: 403 Forbidden"
    events = [copy_event("failed", age_ms=age_s * SECOND_MS, error=reason) for age_s in (5, 45)]
    both = failing(copy_events=events, failed_attempts=[attempt(5 * SECOND_MS), attempt(45 * SECOND_MS)])
    (candidate,) = both.values()
    assert (candidate.facts["failures"], candidate.facts["error"]) == (2, reason)
    assert candidate.why.endswith(f"Last error: {reason}")
    only_ledger = failing(failed_attempts=[attempt(5 * SECOND_MS), attempt(45 * SECOND_MS)])["broker 1"]
    assert "broker's log only" in only_ledger.why


def test_a_ledger_that_is_behind_makes_no_failure_older() -> None:
    late = {"failed_attempts": [attempt(MINUTE_MS)], "ledger_ms": NOW_MS - 50 * SECOND_MS}
    assert failing(**late) == {}


def test_what_fails_explains_what_waits_of_the_store_or_of_its_broker_only() -> None:
    hung = [segment(age_ms=5 * MINUTE_MS), segment(age_ms=5 * MINUTE_MS, partition=1, copy_broker_id=2)]
    attempts = [attempt(age_s * SECOND_MS) for age_s in (5, 50)]
    of_broker = with_causes(candidates(context(partitions=led_by(1, 2), open_segments=hung, failed_attempts=attempts)))
    assert of_broker["copy-hung", "orders-0"].cause == ("copy-failing", "broker 1")
    assert of_broker["copy-hung", "orders-1"].cause is None
    attempts += [attempt(age_s * SECOND_MS, broker_id=2, index=1) for age_s in (5, 50)]
    all_ = with_causes(candidates(context(partitions=led_by(1, 2), open_segments=hung, failed_attempts=attempts)))
    assert all_["copy-hung", "orders-1"].cause == ("copy-failing", "remote storage")


def metered(broker_id: int, *readings: tuple[float, float]) -> list[ReadGrowth]:
    """Readings of (errors, copied bytes), 15 s apart, oldest first."""
    ends = [NOW_MS - 15_000 * (len(readings) - 1 - number) for number in range(len(readings))]
    return [
        ReadGrowth(end, end - 15_000, broker_id, None, 0, 0, 0, 0, errors, copied)
        for end, (errors, copied) in zip(ends, readings, strict=True)
    ]


def test_without_the_ledger_the_brokers_meters_tell_that_copies_fail() -> None:
    broken = metered(1, (0, 9), (1, 0), (0, 0), (1, 0))
    (candidate,) = failing(read_growth=broken, ledger_ms=NOW_MS - MINUTE_MS).values()
    assert (candidate.object, candidate.severity, candidate.facts["failures"]) == ("broker 1", "critical", 2)
    assert "partitions are not known" in candidate.why
    assert failing(read_growth=broken) == {}, "the ledger tells it better"
    both = broken + metered(2, (3, 0), (3, 0))
    assert list(failing(read_growth=both, ledger_ms=None)) == ["remote storage"]


@pytest.mark.parametrize(
    "readings", [[(1, 0), (0, 0)], [(1, 0), (1, 0), (0, 9)], [(0, 9), (0, 9)]], ids=["once", "over", "well"]
)
def test_meters_that_show_one_failure_or_a_copy_since_tell_nothing(readings: list[tuple[float, float]]) -> None:
    assert failing(read_growth=metered(1, *readings), ledger_ms=None) == {}


def test_meters_that_show_copies_between_failures_are_a_warning() -> None:
    (candidate,) = failing(read_growth=metered(1, (1, 0), (1, 9)), ledger_ms=None).values()
    assert candidate.severity == "warning"
