"""Deletions that do not end are one finding of what they share: the store, a broker, else their partition."""

from __future__ import annotations

from typing import Any

from tests.unit.control.findings.rule_cases import DELETING, rules
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, segment


def deletion(partition: int, broker_id: int, age_ms: int) -> Any:
    begun: dict[str, Any] = {"delete_started_ms": NOW_MS - age_ms, "broker_id": broker_id}
    return segment(segment_id=f"s-{partition}-{age_ms}", partition=partition, **begun, **DELETING)


def test_deletions_of_several_brokers_are_refused_by_the_store() -> None:
    late = [deletion(number, 1 + number % 3, MINUTE_MS + 1) for number in range(6)]
    finding = rules(open_segments=late)["delete-lag"]
    assert (finding.object, finding.broker_id, finding.topic) == ("remote storage", None, None)
    assert finding.sentence == "Deletions from the remote storage do not end"
    assert "of 6 partitions of broker 1, 2, 3 began 1 m ago and has not ended: orders-0, orders-1" in finding.why
    assert "may delete" in finding.action


def test_the_others_need_not_be_overdue_by_then() -> None:
    """Each broker begins in its turn: the first one that is overdue would be a finding of its partition."""
    mixed = [deletion(0, 1, MINUTE_MS + 1), deletion(1, 2, 21_000), deletion(2, 3, 5_000)]
    finding = rules(open_segments=mixed)["delete-lag"]
    assert (finding.object, finding.facts["brokers"]) == ("remote storage", [1, 2])
    assert "delete-lag" not in rules(open_segments=[deletion(0, 1, MINUTE_MS), deletion(1, 2, 21_000)])


def test_deletions_of_one_broker_are_its_finding_and_of_one_partition_that_partition_s() -> None:
    broker = rules(open_segments=[deletion(0, 2, MINUTE_MS + 1), deletion(3, 2, MINUTE_MS + 1)])["delete-lag"]
    assert (broker.object, broker.broker_id) == ("broker 2", 2)
    two_of_one = [deletion(0, 2, MINUTE_MS + 1), deletion(0, 2, MINUTE_MS + 2)]
    partition = rules(open_segments=two_of_one)["delete-lag"]
    assert (partition.object, partition.topic, partition.partition) == ("orders-0", "orders", 0)
    assert partition.sentence == "Deletion overdue: orders-0"
