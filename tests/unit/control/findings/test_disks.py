"""Disks: which log directories are one, which of several is told, and how grave a lost one is."""

from __future__ import annotations

from typing import Any

from backend.control.findings.disk_rates import LogDirs, remember_log_dirs, with_last_log_dirs
from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate
from tests.unit.control.findings.sights import broker, context, disk, partition


def raised(slug: str, **more: Any) -> dict[str, Candidate]:
    """Findings of the slug by object."""
    return {c.object: c for c in candidates(context(**more)).values() if c.slug == slug}


def full(**more: Any) -> dict[str, Candidate]:
    return raised("disk-runway", **more)


def offline(**more: Any) -> dict[str, Candidate]:
    return raised("disk-offline", **more)


def test_brokers_that_share_a_disk_are_one_finding_about_it() -> None:
    shared = [broker(number, log_dirs=[disk(0.96, path=f"/data/{number}")]) for number in (1, 2, 3)]
    (candidate,) = full(brokers=shared).values()
    assert candidate.object == "broker 1, 2, 3"
    assert candidate.facts["paths"] == {"1": "/data/1", "2": "/data/2", "3": "/data/3"}
    elsewhere = [broker(1, log_dirs=[disk(0.96)]), broker(2, host="other", log_dirs=[disk(0.96)])]
    assert set(full(brokers=elsewhere)) == {"broker 1", "broker 2"}


def test_a_shared_disk_that_was_read_a_moment_apart_is_one() -> None:
    shared = [broker(number, log_dirs=[disk(0.96 + number * 0.003)]) for number in (1, 2, 3)]
    assert set(full(brokers=shared)) == {"broker 1, 2, 3"}


def test_disks_of_one_size_behind_one_host_name_that_are_not_equally_full_are_told_apart() -> None:
    brokers = [broker(1, log_dirs=[disk(0.2)]), broker(2, log_dirs=[disk(0.99)]), broker(3, log_dirs=[disk(0.3)])]
    (candidate,) = full(brokers=brokers, disk_rates={(1, "/data"): 1.0}).values()
    assert (candidate.object, candidate.severity, candidate.broker_id) == ("broker 2", "critical", 2)


def test_of_a_brokers_own_disks_the_most_urgent_is_told_and_the_other_full_ones_beside_it() -> None:
    directories = [disk(0.2, path="/a"), disk(0.99, path="/b"), disk(0.9, path="/c"), disk(0.3, path="/d")]
    rates = {(1, "/a"): 1.0, (1, "/b"): -5.0}
    (candidate,) = full(brokers=[broker(1, log_dirs=directories)], disk_rates=rates).values()
    assert (candidate.object, candidate.severity) == ("broker 1", "critical")
    assert candidate.why == "10 B of 1.0 kB are free at /b. /c is 90% full."
    assert candidate.sentence == "Disk 99% full: broker 1"
    # A disk that is full within an hour is as grave as one above the limit, and sooner.
    rates[1, "/d"] = 700.0
    (candidate,) = full(brokers=[broker(1, log_dirs=directories)], disk_rates=rates).values()
    assert candidate.sentence == "Disk full within hours: broker 1"
    assert "free at /d" in candidate.why


def test_equally_full_disks_of_one_broker_are_one_finding() -> None:
    directories = [disk(0.96, path="/a"), disk(0.96, path="/b")]
    assert set(full(brokers=[broker(1, log_dirs=directories)])) == {"broker 1"}


LOST: dict[str, Any] = {"error": "KAFKA_STORAGE_ERROR"}


def test_all_lost_directories_of_a_broker_are_one_finding() -> None:
    directories = [disk(path="/a", **LOST), disk(path="/b"), disk(path="/c", **LOST)]
    (candidate,) = offline(brokers=[broker(1, log_dirs=directories), broker(2), broker(3)]).values()
    assert candidate.sentence == "Log directory offline: /a, /c on broker 1"
    assert candidate.why == "The broker says /a: KAFKA_STORAGE_ERROR; /c: KAFKA_STORAGE_ERROR."
    assert candidate.facts["paths"] == ["/a", "/c"]


def test_a_lost_disk_is_a_warning_while_every_partition_has_another_replica_in_sync() -> None:
    brokers = [broker(1, log_dirs=[disk(**LOST), disk(path="/b")])]

    def severity(**more: Any) -> str:
        (candidate,) = offline(brokers=brokers, partitions=[partition(**more)]).values()
        return candidate.severity

    assert severity(leader=2, isr=(2, 3)) == "warning"
    assert severity(leader=1, isr=(1,)) == "warning", "what it leads is on its other disk"
    assert severity(leader=-1, isr=(1,)) == "critical"
    assert severity(leader=-1, isr=(2,)) == "warning", "another broker's replica is the last one"
    (lost,) = offline(brokers=brokers, partitions=[partition(leader=-1, isr=(1,))]).values()
    assert lost.why.endswith("No other broker has a replica in sync of 1 partition: orders-0.")


def test_a_disk_with_the_last_copies_is_given_back_with_its_content_or_another_replica_leads_first() -> None:
    """Apache Kafka elects a broker with a new, empty disk, and its followers cut their logs."""
    brokers = [broker(1, log_dirs=[disk(**LOST), disk(path="/b")])]

    def action(*, kafka_rules: bool = True, **more: Any) -> str:
        (candidate,) = offline(brokers=brokers, partitions=[partition(**more)], kafka_rules=kafka_rules).values()
        return candidate.action

    last = action(leader=-1, isr=(1,))
    assert last.startswith("Start broker 1 again only with the disk's old content.")
    assert "do not start it" in last
    assert "last-leader-behind" in last
    plain = "Repair the disk, then start the broker again."
    assert action(leader=2, isr=(2, 3)) == plain, "the others are in sync"
    assert action(leader=-1, isr=(1,), kafka_rules=False) == plain, "an empty disk does not lead there"


def test_a_broker_that_is_away_and_whose_disk_was_full_gets_room_before_it_is_started() -> None:
    nearly_full = broker(3, reachable=False, error="Connection refused.", log_dirs=[disk(0.1), disk(0.97, path="/d3")])
    away = candidates(context(brokers=[nearly_full]))["broker-away", "broker 3"]
    assert away.why.endswith("30 B were free at /d3 when it was seen last.")
    assert full(brokers=[nearly_full])["broker 3"].why.startswith("30 B of 1.0 kB were free at /d3 when broker 3 was")
    assert away.action.startswith(
        "See whether /d3 is full: then make room on that disk, outside of the log directories"
    )
    roomy = broker(3, reachable=False, error="Connection refused.", log_dirs=[disk(0.5)])
    away = candidates(context(brokers=[roomy]))["broker-away", "broker 3"]
    assert "free" not in away.why
    assert away.action.startswith("Look whether its process runs")


def test_a_broker_that_is_away_has_the_disks_that_it_told_last_and_one_that_is_gone_has_none() -> None:
    listed = [broker(1, log_dirs=[disk(0.97)]), broker(2), broker(3, log_dirs=None)]
    last: LogDirs = remember_log_dirs({}, listed)
    away = [broker(1, reachable=False, log_dirs=None), broker(3, reachable=False, log_dirs=None)]
    last = remember_log_dirs(last, away)
    assert with_last_log_dirs(away, last) == [broker(1, reachable=False, log_dirs=[disk(0.97)]), away[1]]
    assert set(last) == {1}
    back = [broker(1, log_dirs=None), broker(3, log_dirs=None)]
    assert with_last_log_dirs(back, last) == back, "it answers, and does not tell"
