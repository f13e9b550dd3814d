"""Unclean elections of Apache Kafka, which reports none: seen by comparing samples, kept while records can be saved.

Broker 2 led with a high watermark of 150, broker 3 was out of the ISR with 100 records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from backend.control.findings.endangered_partitions import EndangeredPartition
from backend.control.findings.evaluate import candidates
from backend.control.findings.leaderless_partitions import KEPT_MS, LeaderlessPartition, remember_leaderless
from backend.control.findings.unclean_elections import (
    ELECTIONS_MAX,
    SHOWN_FOR_MS,
    ElectionMemory,
    UncleanElection,
    election_of_evidence,
)
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.protocol.errors import ErrorCode
from backend.store.queries.findings import UncleanRecovery
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.ids import TopicPartition
from tests.unit.control.findings.sights import NOW_MS, broker, context, partition, replica

PAIR = ("pair", 0)
PAIR_0 = TopicPartition(*PAIR)


def pair(**more: Any) -> PartitionSample:
    values: dict[str, Any] = {"replicas": (2, 3), "isr": (2,), "leader": 2, "leader_epoch": 4, "tiered": False}
    return partition("pair", **values | {"high_watermark": 150, "log_end_offset": 150} | more)


LED_BY_2 = pair()
# Offsets of before, as a partition without a leader keeps them.
LEADERLESS = pair(leader=-1, leader_epoch=5, answered_ms=NOW_MS - 1)
LED_BY_3 = pair(leader=3, leader_epoch=6, isr=(3,), high_watermark=100, log_end_offset=100)
SILENT_2 = replica(2, "pair", log_end_offset=150, answered_ms=NOW_MS - 1)
REPLICAS = [SILENT_2, replica(3, "pair", log_end_offset=100)]


class Samples:
    """Rounds of one partition, one after the other."""

    def __init__(self) -> None:
        self.memory = ElectionMemory()
        self.last: dict[tuple[str, int], PartitionSample] = {}
        self.at_ms = NOW_MS

    def then(
        self,
        row: PartitionSample,
        replicas: list[ReplicaSample] = REPLICAS,
        eligible: Mapping[TopicPartition, EligibleReplicas] | None = None,
        compared: EndangeredPartition | None = None,
        leaderless: LeaderlessPartition | None = None,
    ) -> UncleanElection | None:
        by_replica = {(r.topic, r.partition, r.broker_id): r for r in replicas}
        endangered = {} if compared is None else {PAIR_0: compared}
        between = {} if leaderless is None else {PAIR_0: leaderless}
        self.memory = self.memory.next(self.at_ms, [row], by_replica, self.last, eligible or {}, endangered, between)
        self.last = {(row.topic, row.partition): row}
        self.at_ms += 2_000
        return self.memory.elections.get(PAIR)


@pytest.mark.parametrize("between", [[], [LEADERLESS], [LEADERLESS] * 3], ids=["at once", "one sample", "three"])
def test_a_leader_that_lacks_acknowledged_records_was_elected_uncleanly(between: list[PartitionSample]) -> None:
    samples = Samples()
    for row in (LED_BY_2, *between):
        assert samples.then(row) is None
    election = samples.then(LED_BY_3)
    assert election is not None
    assert (election.leader, election.former_leader, election.lost) == (3, 2, 50)
    assert (election.log_end_offset, election.acknowledged_offset) == (100, 150)
    assert (election.holders, election.unsaved) == ((2,), (2,))


def test_a_new_leader_is_judged_as_soon_as_it_tells_its_log_end() -> None:
    samples = Samples()
    samples.then(LED_BY_2)
    silent = pair(leader=3, leader_epoch=6, isr=(3,), answered_ms=NOW_MS - 1)
    assert samples.then(silent) is None
    assert samples.then(silent) is None
    election = samples.then(LED_BY_3)
    assert election is not None
    assert election.lost == 50


@pytest.mark.parametrize(
    "row",
    [
        pair(leader=3, leader_epoch=6, isr=(3,), high_watermark=140, log_end_offset=150),
        pair(leader=2, leader_epoch=4, log_start_offset=150),
        pair(leader=3, leader_epoch=6, isr=(3,), high_watermark=0, log_end_offset=0, topic_id="made again"),
        pair(leader=2, leader_epoch=4, high_watermark=100, log_end_offset=100),
    ],
    ids=["has all", "DeleteRecords", "made again", "the same epoch"],
)
def test_no_other_change_is_an_unclean_election(row: PartitionSample) -> None:
    samples = Samples()
    samples.then(LED_BY_2)
    assert samples.then(row) is None


def test_a_leader_from_outside_the_isr_is_one_though_nothing_that_was_sampled_is_missing() -> None:
    whole = pair(leader=3, leader_epoch=6, isr=(3,))
    samples = Samples()
    for row in (LED_BY_2, LEADERLESS, LEADERLESS):
        samples.then(row)
    election = samples.then(whole)
    assert election is not None
    assert (election.lost, election.unsaved) == (0, (2,))


@pytest.mark.parametrize(
    ("eligible", "unclean"),
    [
        (EligibleReplicas((3,)), False),
        (EligibleReplicas((), (3,)), False),
        (EligibleReplicas((2,)), True),
        (EligibleReplicas(), False),
        (None, False),
    ],
    ids=["eligible", "last known", "another is eligible", "nobody is", "not known"],
)
def test_an_eligible_replica_may_lead_without_an_isr(eligible: EligibleReplicas | None, unclean: bool) -> None:
    lists = {} if eligible is None else {PAIR_0: eligible}
    samples = Samples()
    samples.then(LED_BY_2)
    for _ in range(2):
        samples.then(pair(leader=-1, leader_epoch=5, isr=(), answered_ms=NOW_MS - 1), eligible=lists)
    assert (samples.then(pair(leader=3, leader_epoch=6, isr=(3,))) is not None) is unclean


@pytest.mark.parametrize(
    ("seen", "unclean"),
    [
        (LeaderlessPartition(5, frozenset({2}), NOW_MS), True),
        (LeaderlessPartition(5, frozenset({2, 3}), NOW_MS), False),
        (LeaderlessPartition(4, frozenset({2}), NOW_MS), False),
        (LeaderlessPartition(5, frozenset(), NOW_MS), False),
    ],
    ids=["outside", "eligible", "two elections ago", "nobody was named"],
)
def test_an_election_between_two_rounds_is_seen_by_the_watch_over_liveness(
    seen: LeaderlessPartition, unclean: bool
) -> None:
    """Broker 2 led with records that no round sampled, died, and broker 3 was elected: all within a round of 10 s."""
    samples = Samples()
    samples.then(LED_BY_2)
    election = samples.then(pair(leader=3, leader_epoch=6, isr=(3,)), leaderless=seen)
    assert (election is not None) is unclean
    assert election is None or (election.lost, election.unsaved) == (0, (2,))


def test_a_partition_without_a_leader_is_remembered_with_lists_of_its_epoch() -> None:
    row = PartitionMetadata("pair", b"p" * 16, 0, -1, 5, (2, 3), (), (), ErrorCode.NONE)
    lists = {PAIR_0: EligibleReplicas((2,), (), leaderless_epoch=5)}
    seen = remember_leaderless({}, [row], lists, NOW_MS)
    assert seen == {PAIR_0: LeaderlessPartition(5, frozenset({2}), NOW_MS)}
    for page in ({}, {PAIR_0: EligibleReplicas((2,))}, {PAIR_0: EligibleReplicas((3,), (), leaderless_epoch=6)}):
        assert remember_leaderless(seen, [row], page, NOW_MS + 1) == seen
    led = replace(row, leader=3, leader_epoch=6)
    assert remember_leaderless(seen, [led], {}, NOW_MS + KEPT_MS) == seen
    assert remember_leaderless(seen, [led], {}, NOW_MS + KEPT_MS + 1) == {}


@pytest.mark.parametrize(("elr", "unclean"), [((), False), ((2,), True)], ids=["none in sync", "eligible"])
def test_logs_that_the_embedded_engine_compared_are_told_by_the_engine(elr: tuple[int, ...], unclean: bool) -> None:
    """All replicas were killed; of those that came back the best log leads, though it was not the last in sync."""
    row = PartitionMetadata("pair", b"p" * 16, 0, -1, 5, (2, 3), (), (), ErrorCode.NONE)
    lists = {PAIR_0: EligibleReplicas(elr, (2,), leaderless_epoch=5)}
    leaderless = remember_leaderless({}, [row], lists, NOW_MS)[PAIR_0]
    samples = Samples()
    samples.then(LED_BY_2)
    election = samples.then(pair(leader=3, leader_epoch=6, isr=(3,)), leaderless=leaderless)
    assert election is not None

    def slugs(**more: Any) -> set[str]:
        return {slug for slug, _ in candidates(context(**more))}

    embedded = slugs(unclean_elections=[election], kafka_rules=False)
    assert embedded == ({"unclean-recovery"} if unclean else set())
    assert slugs(unclean_elections=[election], kafka_rules=True) == {"unclean-recovery"}
    lacks = replace(election, acknowledged_offset=election.log_end_offset + 1)
    assert slugs(unclean_elections=[lacks], kafka_rules=False) == {"unclean-recovery"}, "records are missing"


def test_between_two_elections_a_replica_may_have_joined_the_isr() -> None:
    for rows in ([LED_BY_2], [LED_BY_2, LEADERLESS], [LED_BY_2, LEADERLESS, LEADERLESS]):
        samples = Samples()
        for row in rows:
            samples.then(row)
        assert samples.then(pair(leader=3, leader_epoch=8, isr=(3,))) is None


def test_an_election_is_over_an_hour_later_and_not_before_its_records_are_saved_or_gone() -> None:
    samples = Samples()
    samples.then(LED_BY_2)
    samples.then(LED_BY_3)
    samples.at_ms += SHOWN_FOR_MS
    kept = samples.then(LED_BY_3)
    assert kept is not None
    assert kept.unsaved == (2,)
    assert samples.then(pair(leader=-1, leader_epoch=7, isr=(3,), answered_ms=NOW_MS)) == kept, "without a leader, too"
    assert samples.then(pair(leader=3, leader_epoch=8, isr=(2, 3), log_end_offset=200, high_watermark=200)) is None
    young = Samples()
    young.then(LED_BY_2)
    young.then(LED_BY_3)
    joined = young.then(pair(leader=3, leader_epoch=6, isr=(2, 3), log_end_offset=120, high_watermark=120))
    assert joined is not None
    assert joined.unsaved == ()
    assert young.then(pair(topic_id="made again")) is None


def test_replicas_that_cut_their_logs_at_once_hold_nothing() -> None:
    samples = Samples()
    samples.then(LED_BY_2)
    cut = [replica(2, "pair", log_end_offset=100), replica(3, "pair", log_end_offset=100)]
    election = samples.then(LED_BY_3, cut)
    assert election is not None
    assert election.holders == ()


def test_the_elections_that_lost_most_are_remembered() -> None:
    numbers = range(ELECTIONS_MAX + 5)
    before = {("t", n): partition("t", n, high_watermark=1_000 + n) for n in numbers}
    rows = [partition("t", n, leader=2, leader_epoch=4, log_end_offset=0) for n in numbers]
    memory = ElectionMemory().next(NOW_MS, rows, {}, before, {})
    assert set(memory.elections) == {("t", n) for n in numbers if n >= 5}
    assert memory.waiting == {}


def test_the_evidence_of_a_finding_gives_the_election_back_to_the_next_process() -> None:
    election = UncleanElection("pair", 0, "id", NOW_MS, 3, 6, 100, 150, 2, (2,), (2,))
    assert election_of_evidence("pair", 0, {"sentence": "…", "lost": 50, **election.evidence()}) == election
    assert election_of_evidence("pair", 0, {"partitions": 3}) is None


def test_an_unclean_election_is_told_with_its_records_and_the_broker_that_holds_them() -> None:
    election = UncleanElection("pair", 0, "id", NOW_MS, 3, 6, 100, 150, 2, (2,), (2,))
    looked_at = context(unclean_elections=[election], brokers=[broker(1), broker(2, reachable=False), broker(3)])
    findings = candidates(looked_at)
    finding = findings["unclean-recovery", "pair-0"]
    assert finding.severity == "critical"
    assert finding.sentence == "pair-0 is led without 50 acknowledged records"
    assert "Offsets 100 to 149 had been acknowledged" in finding.why
    assert "Broker 2 may still have them." in finding.why
    assert finding.action.startswith("Keep broker 2 from coming back before the folder pair-0 on its disk is copied")
    assert "Before it starts again, copy its folders of pair-0" in findings["broker-away", "broker 2"].action


def test_an_unclean_election_that_may_have_lost_records_is_critical_while_a_broker_may_have_them() -> None:
    whole = [UncleanElection("pair", n, "id", NOW_MS, 3, 6, 150, 150, 2, (2,), (2,)) for n in range(5)]
    findings = candidates(context(unclean_elections=whole, brokers=[broker(2, reachable=False), broker(3)]))
    finding = findings["unclean-recovery", "broker 3"]
    assert finding.severity == "critical"
    assert findings["broker-away", "broker 2"].action.startswith("Before it starts again, copy its folders of pair-0")
    assert finding.sentence == "Broker 3 was elected outside of the ISR of 5 partitions"
    assert "pair-0, pair-1, pair-2 and 2 more" in finding.why
    assert "Broker 2 may still have it." in finding.why
    assert finding.action.startswith("Keep broker 2 from coming back before its folders of pair-0, pair-1, pair-2")


def test_an_unclean_election_whose_records_nobody_else_can_have_is_a_warning() -> None:
    back = UncleanElection("pair", 0, "id", NOW_MS, 3, 6, 150, 150, 2, (2,), ())
    (finding,) = candidates(context(unclean_elections=[back])).values()
    assert (finding.object, finding.severity) == ("broker 3", "warning")


def test_a_last_leader_that_is_stopped_after_it_came_back_with_less_has_nothing_to_lose() -> None:
    """The way out of `last-leader-behind`: broker 2 has a new disk and is stopped, broker 3 is elected uncleanly."""
    samples = Samples()
    samples.then(LED_BY_2)
    without_records = replica(2, "pair", log_end_offset=0)
    leaderless_ms = samples.at_ms
    for _ in range(2):
        samples.then(LEADERLESS, [without_records, REPLICAS[1]])
    stopped = replace(without_records, answered_ms=leaderless_ms)
    election = samples.then(pair(leader=3, leader_epoch=6, isr=(3,)), [stopped, REPLICAS[1]])
    assert election is not None
    assert (election.lost, election.unsaved) == (0, ())


@pytest.mark.parametrize(("end", "unsaved"), [(0, ()), (151, (2,))], ids=["a new disk", "the longer log"])
def test_logs_that_were_compared_before_the_election_decide(end: int, unsaved: tuple[int, ...]) -> None:
    """Apache Kafka lists no offsets of a partition without a leader; the watch over liveness reads log ends as a
    debugging consumer.
    """
    samples = Samples()
    samples.then(LED_BY_2)
    for _ in range(2):
        samples.then(LEADERLESS, compared=EndangeredPartition(PAIR_0, 2, {2: (4, end), 3: (4, 150)}))
    election = samples.then(pair(leader=3, leader_epoch=6, isr=(3,)))
    assert election is not None
    assert election.unsaved == unsaved


def test_records_that_no_replica_has_any_more_are_said_to_be_lost() -> None:
    lost = UncleanElection("pair", 0, "id", NOW_MS, 3, 6, 100, 150, None, (), ())
    finding = candidates(context(unclean_elections=[lost]))["unclean-recovery", "pair-0"]
    assert (finding.severity, finding.action[:10]) == ("critical", "No replica")


def test_a_partition_whose_election_was_compared_is_not_told_twice() -> None:
    election = UncleanElection("pair", 0, "id", NOW_MS, 3, 6, 100, 150, 2, (2,), (2,))
    recoveries = [UncleanRecovery("pair", 0, 3, False, NOW_MS)]
    assert set(candidates(context(unclean_elections=[election], recoveries=recoveries))) == {
        ("unclean-recovery", "pair-0")
    }
