"""Advice while a last leader lacks records: at every step the one thing that loses nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.control.findings.causes import with_causes
from backend.control.findings.endangered_partitions import EndangeredPartition, EndangeredPartitions
from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate, FindingKey
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.tiering.ids import TopicPartition
from tests.unit.control.findings.sights import NOW_MS, broker, context, partition

ORDERS_0 = TopicPartition("orders", 0)
# Broker 3 led last and is back with an empty disk.
EMPTY_3 = EndangeredPartition(ORDERS_0, 3, {3: (-1, 0), 1: (4, 1000), 2: (3, 2000)})
LOST_DISK: dict[str, Any] = {
    "kafka_rules": True,
    "partitions": [partition(leader=-1, isr=(), replicas=(3, 1, 2), tiered=False)],
    "eligible": {ORDERS_0: EligibleReplicas((), (3,))},
    "endangered": EndangeredPartitions({ORDERS_0: EMPTY_3}),
    "listed": frozenset({1, 2, 3}),
}
STOPPED: dict[str, Any] = {"brokers": [broker(1), broker(2), broker(3, reachable=False)], "listed": frozenset({1, 2})}
KEY = ("last-leader-behind", "broker 3")


def explained(**more: Any) -> dict[FindingKey, Candidate]:
    return with_causes(candidates(context(**LOST_DISK | more)))


def test_a_last_leader_with_a_new_disk_is_told_with_the_only_steps_that_lose_nothing() -> None:
    findings = explained()
    assert set(findings) == {KEY, ("offline", "orders-0")}
    danger = findings[KEY]
    assert (danger.severity, danger.for_ms, danger.sentence.startswith("Stop broker 3 now")) == ("critical", 0, True)
    assert (
        "orders-0 (its log ends at 0, that of broker 1 at 1000 of epoch 4, the best, that of broker 2 at 2000 of epoch"
        " 3)"
    ) in danger.why
    assert (
        "by itself within 300 s (leader.imbalance.check.interval.seconds; no broker tells its value, so this is Kafka's"
        " default) or at any moment before"
    ) in danger.why
    assert danger.action.startswith("Stop broker 3. Elect nothing, move nothing")
    assert findings["offline", "orders-0"].cause == KEY


@pytest.mark.parametrize(
    ("waited_s", "within_s", "said"),
    [
        (0, 60, "within 60 s (leader.imbalance.check.interval.seconds) or at any moment before"),
        (50, 10, "within 10 s (leader.imbalance.check.interval.seconds) or at any moment before"),
        (60, 0, "by itself at any moment, and"),
        (3_600, 0, "by itself at any moment, and"),
        # The wall clock was set back.
        (-100, 60, "within 60 s"),
    ],
)
def test_the_clock_runs_down_from_the_setting_of_the_brokers(waited_s: int, within_s: int, said: str) -> None:
    waits = EndangeredPartitions({ORDERS_0: replace(EMPTY_3, since_ms=NOW_MS - 1_000 * waited_s)})
    danger = explained(endangered=waits, election_try_ms=60_000)[KEY]
    assert (danger.facts["within_s"], said in danger.why) == (within_s, True), danger.why


def test_every_replica_is_in_the_evidence_with_its_epoch_and_log_end() -> None:
    (row,) = explained()[KEY].facts["partitions"]
    assert row["best_broker_id"] == 1
    assert row["replicas"] == [
        {"broker_id": 3, "leader_epoch": -1, "log_end_offset": 0},
        {"broker_id": 1, "leader_epoch": 4, "log_end_offset": 1000},
        {"broker_id": 2, "leader_epoch": 3, "log_end_offset": 2000},
    ]


def test_partitions_whose_logs_were_not_compared_are_counted() -> None:
    danger = explained(endangered=EndangeredPartitions({ORDERS_0: EMPTY_3}, unread=7))[KEY]
    assert danger.why.endswith(
        "7 partitions more without a leader: too many to compare their logs. Explains 1 partition without a leader."
    )
    assert danger.facts["not_compared"] == 7
    assert "too many" not in explained()[KEY].why


def test_a_stopped_broker_stays_stopped_until_another_one_leads() -> None:
    findings = explained(**STOPPED)
    danger = findings[KEY]
    assert danger.severity == "critical"
    assert danger.sentence == "Broker 3 is stopped: 1 partition must be led by another before it starts"
    assert "put broker 1 first" not in danger.action, "it is the first that lives"
    assert danger.action == (
        "Broker 3 is stopped. Now let broker 1 lead orders-0: kafka-leader-election.sh --bootstrap-server"
        " 127.0.0.1:9092 --election-type unclean --topic orders --partition 0. Do not start broker 3 before that."
    )
    assert {key: finding.cause for key, finding in findings.items()} == {
        KEY: None,
        ("broker-away", "broker 3"): KEY,
        ("offline", "orders-0"): KEY,
    }


def test_no_finding_advises_to_start_a_broker_that_would_lead_without_records() -> None:
    # Of another partition broker 3 has all that there is: to start it now would still end the first one.
    rows = [*LOST_DISK["partitions"], partition("empty", leader=-1, isr=(), replicas=(3, 1), tiered=False)]
    eligible = LOST_DISK["eligible"] | {TopicPartition("empty", 0): EligibleReplicas((), (3,))}
    for finding in explained(**STOPPED, partitions=rows, eligible=eligible).values():
        for part in finding.action.lower().split(". "):
            assert "start it again" not in part
            assert "start broker 3" not in part or "do not start broker 3" in part, finding.action


def test_a_dead_broker_that_is_listed_is_waited_for_before_anybody_elects() -> None:
    danger = explained(brokers=STOPPED["brokers"])[KEY]
    assert "kafka-leader-election" not in danger.action
    assert "wait until it is gone from the list of brokers" in danger.action
    assert "Elect nothing" in danger.action


def test_the_best_log_is_put_first_or_started_first_where_an_election_would_take_another() -> None:
    best_2 = EndangeredPartition(ORDERS_0, 3, {3: (-1, 0), 1: (3, 1000), 2: (4, 900)})
    endangered = EndangeredPartitions({ORDERS_0: best_2})
    danger = explained(**STOPPED, endangered=endangered)[KEY]
    assert danger.action.startswith("Broker 3 is stopped. Now put broker 2 first in the replica list of orders-0")
    without_2: dict[str, Any] = {"brokers": [broker(1), broker(3, reachable=False)], "listed": frozenset({1})}
    danger = explained(**without_2, endangered=endangered)[KEY]
    assert danger.action.startswith("Broker 3 is stopped. Now start broker 2, which has the best log of orders-0.")
    equal = EndangeredPartition(ORDERS_0, 3, {3: (-1, 0), 1: (4, 1000), 2: (4, 1000)})
    without_1: dict[str, Any] = {"brokers": [broker(2), broker(3, reachable=False)], "listed": frozenset({2})}
    danger = explained(**without_1, endangered=EndangeredPartitions({ORDERS_0: equal}))[KEY]
    assert "let broker 2 lead orders-0" in danger.action


@pytest.mark.parametrize(
    "changed",
    [
        {"kafka_rules": False},
        {"endangered": EndangeredPartitions()},
        {"partitions": [partition(leader=1, isr=(1,), tiered=False)]},
    ],
)
def test_no_clock_runs_where_nothing_is_endangered(changed: dict[str, Any]) -> None:
    assert KEY not in explained(**changed)


@pytest.mark.parametrize(
    ("isr", "eligible"),
    [((), EligibleReplicas((), (3,))), ((), EligibleReplicas((3,), (3,))), ((3,), EligibleReplicas())],
)
def test_a_broker_is_started_with_its_own_disk_only_on_apache_kafka(
    isr: tuple[int, ...], eligible: EligibleReplicas
) -> None:
    away: dict[str, Any] = {
        "partitions": [partition(leader=-1, isr=isr)],
        "brokers": [broker(1), broker(2), broker(3, reachable=False)],
        "eligible": {ORDERS_0: eligible},
    }
    kafka = candidates(context(**away, kafka_rules=True))["offline", "orders-0"]
    assert kafka.action.startswith(
        "Start broker 3, only with the disk that it had; if that is new or lost, do not start it"
    )
    assert candidates(context(**away))["offline", "orders-0"].action.startswith("Start broker 3;")
