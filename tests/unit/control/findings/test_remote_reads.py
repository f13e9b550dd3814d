"""Reads of the remote tier that fail or expire, by the brokers' meters; the engine tells partition and reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.control.findings.causes import with_causes
from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate, GroupOffset
from backend.control.findings.remote_read_growth import (
    WINDOW_MS,
    BrokerReading,
    ReadCounters,
    ReadGrowth,
    reads_fail,
    remember_readings,
)
from backend.store.queries.findings import FailedRead
from tests.unit.control.findings.sights import NOW_MS, attempt, context, partition

LOOK_MS = 15_000


def growth(looks_ago: int = 0, broker_id: int = 1, topic: str | None = "orders", **more: float) -> ReadGrowth:
    numbers = {"errors": 0.0, "requests": 0.0, "fetched_bytes": 0.0, "expired": 0.0}
    at_ms = NOW_MS - looks_ago * LOOK_MS - 1_000
    return ReadGrowth(at_ms, at_ms - LOOK_MS, broker_id, topic, **numbers | more)


def raised(slug: str, *rows: ReadGrowth, **more: Any) -> dict[str, Candidate]:
    """Findings of the slug by object."""
    every = candidates(context(read_growth=sorted(rows, key=lambda row: row.at_ms), **more)).values()
    return {candidate.object: candidate for candidate in every if candidate.slug == slug}


def failing(*rows: ReadGrowth, **more: Any) -> dict[str, Candidate]:
    return raised("remote-read-failing", *rows, **more)


def slow(*rows: ReadGrowth, **more: Any) -> dict[str, Candidate]:
    return raised("remote-read-slow", *rows, **more)


def test_reads_that_all_fail_are_critical_after_one_look() -> None:
    result = failing(growth(errors=28, requests=28))
    assert list(result) == ["orders-0"]
    candidate = result["orders-0"]
    assert (candidate.severity, candidate.topic, candidate.partition) == ("critical", "orders", 0)
    assert candidate.broker_id == 1
    assert candidate.sentence == "Reads of orders-0 from the remote tier fail on broker 1"
    assert candidate.why == (
        "28 reads of orders failed on broker 1 in the last 16 s, and none was answered with records. Read there:"
        " orders-0. Whether an object of a segment is missing or the store refuses stands in the broker's log only."
    )
    assert "ebbline remote verify" in candidate.action
    assert "credentials" not in candidate.action
    assert "lower no retention" in candidate.action


def test_reads_that_nobody_has_tried_for_half_a_minute_are_no_failure_any_more() -> None:
    failed = [growth(looks, errors=28, requests=28) for looks in (2, 3)]
    assert list(failing(*failed)) == ["orders-0"]
    assert failing(*[growth(looks, errors=28, requests=28) for looks in (3, 4)]) == {}


def test_a_read_that_fails_once_is_nothing_and_one_that_fails_again_and_again_a_warning() -> None:
    assert failing(growth(errors=1, requests=9, fetched_bytes=9)) == {}
    assert failing(growth(errors=2, requests=2)) == {}
    some = [growth(looks, errors=2, requests=9, fetched_bytes=9) for looks in (0, 1)]
    candidate = failing(*some)["orders-0"]
    assert (candidate.severity, candidate.facts["errors"]) == ("warning", 4)
    assert "others of the same topics work" in candidate.why


def test_it_ends_with_the_first_read_that_works() -> None:
    failed = growth(1, errors=28, requests=28)
    assert failing(failed, growth(fetched_bytes=100, requests=1)) == {}
    # Nobody has tried since.
    assert list(failing(failed, growth())) == ["orders-0"]


def test_a_failure_after_a_pause_or_after_reads_that_worked_is_another_one() -> None:
    before = growth(3, errors=9, requests=20, fetched_bytes=9)
    (candidate,) = failing(before, growth(0, errors=20, requests=20)).values()
    assert (candidate.severity, candidate.facts["errors"]) == ("critical", 20)
    (candidate,) = failing(growth(2, errors=9), growth(1, fetched_bytes=5), growth(0, errors=4)).values()
    assert (candidate.severity, candidate.facts["errors"]) == ("critical", 4)


def test_meters_are_read_more_often_while_reads_fail() -> None:
    def after(*rows: ReadGrowth) -> bool:
        return reads_fail({1: BrokerReading(NOW_MS, ReadCounters({}, {}), rows)})

    assert after(growth(1, errors=1))
    assert after(growth(0, expired=1))
    assert not after(growth(0, requests=5, fetched_bytes=9))
    assert not after(growth(2, errors=9)), "nobody has tried since"


def test_of_two_brokers_whose_reads_all_fail_the_store_is_named() -> None:
    result = failing(growth(errors=28), growth(errors=9, broker_id=2, topic="logs"))
    assert list(result) == ["remote storage"]
    assert result["remote storage"].facts["brokers"] == [1, 2]
    assert result["remote storage"].facts["topics"] == ["logs", "orders"]
    mixed = failing(growth(errors=28), *(growth(n, 2, errors=2, fetched_bytes=7) for n in (0, 1)))
    assert {name: candidate.severity for name, candidate in mixed.items()} == {
        "orders-0": "critical",
        "broker 2": "warning",
    }


def test_a_broker_that_tells_no_topics_is_judged_as_a_whole() -> None:
    assert list(failing(growth(topic=None, errors=28))) == ["orders-0"]
    # The sum says nothing more where it does.
    both = [growth(topic=None, errors=28, fetched_bytes=9), growth(errors=28)]
    assert failing(*both)["orders-0"].severity == "critical"


def test_the_engine_tells_partition_offset_and_the_stores_reason() -> None:
    reports = [
        FailedRead("orders", 0, 1, NOW_MS, 1_200, "HTTP error: 403 Forbidden"),
        FailedRead("logs", 0, 1, NOW_MS, 5, "of another topic"),
        FailedRead("orders", 0, 2, NOW_MS, 5, "of another broker"),
    ]
    candidate = failing(growth(errors=28), failed_reads=reports)["orders-0"]
    assert candidate.why.endswith("Segment of orders-0 at offset 1\u202f200: HTTP error: 403 Forbidden")
    assert candidate.facts["partitions"] == [
        {"partition": "orders-0", "offset": 1_200, "error": "HTTP error: 403 Forbidden"}
    ]


MANY = [partition(index=number) for number in range(12)]


def test_of_several_partitions_those_that_groups_read_are_named_and_else_none() -> None:
    unknown = failing(growth(errors=28), partitions=MANY)["broker 1"]
    assert "The meters do not tell the partitions." in unknown.why
    assert "credentials" in unknown.action
    groups = [GroupOffset("g", "orders", number, 300) for number in (3, 4)]
    two = failing(growth(errors=28), partitions=MANY, group_offsets=groups)["broker 1"]
    assert "Read there: orders-3, orders-4." in two.why
    assert list(failing(growth(errors=28), partitions=MANY, group_offsets=groups[:1])) == ["orders-3"]
    assert list(slow(expiring(0), expiring(1), partitions=MANY, group_offsets=groups[:1])) == ["orders-3"]
    everywhere = failing(
        growth(errors=28),
        growth(errors=28, broker_id=2),
        partitions=[*MANY, partition(index=12, leader=2)],
        group_offsets=[GroupOffset("g", "orders", number, 300) for number in range(13)],
    )
    why = everywhere["remote storage"].why
    assert "orders-0, " in why
    assert ", and 3 more." in why


def expiring(looks_ago: int, broker_id: int = 1, **more: float) -> ReadGrowth:
    return growth(looks_ago, broker_id, None, expired=30.0, requests=30.0, **more)


def test_fetches_that_expire_without_a_byte_name_the_setting_and_its_value() -> None:
    candidate = slow(expiring(0), expiring(1), remote_wait_ms={1: 700})["orders-0"]
    assert candidate.severity == "critical"
    assert "remote.fetch.max.wait.ms" in candidate.sentence
    assert "60 fetches expired on broker 1" in candidate.why
    assert "more than 700 ms (remote.fetch.max.wait.ms)" in candidate.why
    assert "ebbline plan brokers remote.fetch.max.wait.ms=7000" in candidate.action
    assert "more than 500 ms" in slow(expiring(0), expiring(1))["orders-0"].why
    patient = slow(expiring(0), expiring(1), remote_wait_ms={1: 20_000})["orders-0"]
    assert patient.action.startswith("Look why the store is slow")


@pytest.mark.parametrize(
    "rows",
    [
        [expiring(0)],
        [expiring(0), growth(1, topic=None)],
        [expiring(0, fetched_bytes=9, errors=0.0), growth(1, topic=None, expired=3, requests=9, fetched_bytes=9)],
        [growth(0, topic=None, expired=1), growth(1, topic=None, expired=1)],
        [expiring(0, errors=3), expiring(1)],
    ],
    ids=["one look", "one look of two", "some are served", "two fetches", "they fail"],
)
def test_a_store_that_is_slow_for_a_moment_or_for_some_is_nothing(rows: list[ReadGrowth]) -> None:
    assert slow(*rows) == {}


def test_a_store_that_is_slow_for_ten_seconds_is_nothing_although_it_is_looked_at_every_five() -> None:
    def every_five_s(readings: int) -> list[ReadGrowth]:
        ends_ms = [NOW_MS - 5_000 * n for n in reversed(range(readings))]
        return [ReadGrowth(ms, ms - 5_000, 1, None, 0.0, 9.0, 0.0, 9.0) for ms in ends_ms]

    assert slow(*every_five_s(3)) == {}
    assert slow(*every_five_s(4))


def test_bytes_that_come_after_the_fetch_has_expired_serve_nobody() -> None:
    assert list(slow(expiring(0, fetched_bytes=9_000), expiring(1, fetched_bytes=9_000))) == ["orders-0"]


def test_requests_that_expire_in_the_reading_after_theirs_are_no_served_ones() -> None:
    """One consumer, a request each half second: of some readings of 5 s the last has not expired when they end."""
    counts = [(10.0, 9.0), (10.0, 10.0), (10.0, 10.0), (11.0, 10.0), (10.0, 11.0)]
    rows = [
        ReadGrowth(NOW_MS - 5_000 * ago, NOW_MS - 5_000 * (ago + 1), 1, None, 0.0, requests, 9_000.0, expired)
        for ago, (requests, expired) in enumerate(counts)
    ]
    assert list(slow(*rows)) == ["orders-0"]
    patient = [replace(row, requests=1.0, expired=float(ago % 2)) for ago, row in enumerate(reversed(rows))]
    assert slow(*patient) == {}, "of two requests in 25 s one expired"


def test_a_store_that_is_slow_for_all_brokers_is_one_finding() -> None:
    rows = [expiring(looks, broker_id) for looks in (0, 1) for broker_id in (1, 2, 3)]
    assert list(slow(*rows)) == ["remote storage"]


def test_a_store_that_is_away_is_one_cause_of_failed_copies_and_reads() -> None:
    rows = [partition(), partition(index=1, leader=2)]
    attempts = [attempt(age_ms, broker_id=b, index=b - 1) for b in (1, 2) for age_ms in (5_000, 50_000)]
    reads = [growth(errors=28), growth(errors=28, broker_id=2)]
    groups = [GroupOffset("g", "orders", 0, 300, moved=True)]
    result = with_causes(
        candidates(context(partitions=rows, failed_attempts=attempts, read_growth=reads, group_offsets=groups))
    )
    assert {key for key, candidate in result.items() if candidate.cause is None} == {("copy-failing", "remote storage")}
    of_broker = with_causes(candidates(context(failed_attempts=attempts[:2], read_growth=reads[:1])))
    assert of_broker["copy-failing", "broker 1"].cause is None
    assert of_broker["remote-read-failing", "orders-0"].cause == ("copy-failing", "broker 1")
    only_reads = with_causes(candidates(context(read_growth=reads, group_offsets=groups)))
    assert only_reads["remote-read-storm", "group g"].cause == ("remote-read-failing", "remote storage")


def counters(errors: float | None, topics: dict[str, float] | None = None) -> ReadCounters:
    return ReadCounters(
        {"fetch_errors": errors, "fetched_bytes": 0.0},
        {topic: {"fetch_errors": value} for topic, value in (topics or {}).items()},
    )


def test_growth_is_what_counters_have_gained_since_the_look_before() -> None:
    looks = remember_readings({}, {1: counters(100, {"orders": 100})}, 0)
    assert looks[1].growth == (), "what was before the first look is not known"
    looks = remember_readings(looks, {1: counters(107, {"orders": 103, "logs": 4})}, LOOK_MS)
    assert {(row.topic, row.errors) for row in looks[1].growth} == {(None, 7.0), ("orders", 3.0), ("logs", 4.0)}
    looks = remember_readings(looks, {}, 2 * LOOK_MS)
    assert len(looks[1].growth) == 3, "a broker that tells nothing now keeps what it had"
    looks = remember_readings(looks, {1: counters(2, {"orders": 2})}, 3 * LOOK_MS)
    assert [(row.topic, row.errors) for row in looks[1].growth[-2:]] == [(None, 2.0), ("orders", 2.0)], "started again"
    late = remember_readings(looks, {1: counters(2)}, LOOK_MS + WINDOW_MS + 1)
    assert {row.at_ms for row in late[1].growth} == {3 * LOOK_MS, LOOK_MS + WINDOW_MS + 1}
    assert remember_readings(looks, {1: counters(None)}, 4 * LOOK_MS)[1].growth[-1].errors == 0


def test_a_counter_that_comes_with_its_first_event_has_grown_from_nothing() -> None:
    """Apache Kafka's expired fetches; a broker whose metrics could not be read had told nothing."""
    silent = remember_readings({}, {1: ReadCounters({"fetch_requests": None}, {})}, 0)
    requests = remember_readings({}, {1: ReadCounters({"fetch_requests": 3.0}, {})}, 0)
    now = {1: ReadCounters({"fetch_requests": 20.0, "expired_fetches": 17.0}, {})}
    for before, grown in ((silent, (0.0, 0.0)), (requests, (17.0, 17.0))):
        (row,) = remember_readings(before, now, LOOK_MS)[1].growth
        assert (row.requests, row.expired) == grown
