"""Possible leaders of partitions besides their ISR: eligible leader replicas (DescribeTopicPartitions, KIP-966)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.tiering.ids import TopicPartition

# One page of an answer: brokers give as many unless they are configured otherwise (max.request.partition.size.limit),
# 80 bytes each. For a cluster that is down as a whole, the rest is reported without these names.
PARTITIONS_MAX: Final = 2_000
# Of the backend's report, which is stored every few seconds: 80 bytes each.
ROWS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class EligibleReplicas:
    """`elr` have every acknowledged record. `last_known` had them when they were last seen, before they stopped
    uncleanly; with Apache Kafka that is the last leader alone. `leaderless_epoch`: the leader epoch that these are of,
    where the partition has no leader."""

    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    leaderless_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class EligiblePage:
    """The answers of one round. `complete`: of all partitions; `cause`: why something could not be asked."""

    by_partition: Mapping[TopicPartition, EligibleReplicas] = field(default_factory=dict)
    complete: bool = True
    cause: str | None = None

    def report(self, at_ms: int) -> dict[str, Any]:
        """As the backend reports it to the pages: what is not empty, at most ROWS_MAX (`tiering.eligible_leaders`)."""
        rows = [
            [tp.topic, tp.partition, list(eligible.elr), list(eligible.last_known)]
            for tp, eligible in self.by_partition.items()
            if eligible.elr or eligible.last_known
        ]
        complete = self.complete and len(rows) <= ROWS_MAX
        return {"seen_ms": at_ms, "complete": complete, "cause": self.cause, "rows": rows[:ROWS_MAX]}


async def fetch_eligible(gateway: Gateway, topics: Iterable[str], *, lane: Lane = Lane.SAMPLE) -> EligiblePage:
    """Of the first PARTITIONS_MAX partitions of these topics. Raises GatewayError."""
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequest.Topics(name=name) for name in sorted(set(topics))[:PARTITIONS_MAX]],
        response_partition_limit=PARTITIONS_MAX,
        cursor=None,
    )
    response = await gateway.ask_any(request, m.DescribeTopicPartitionsResponse, lane=lane)
    by_partition = {
        TopicPartition(topic.name or "", partition.partition_index): EligibleReplicas(
            tuple(partition.eligible_leader_replicas or ()),
            tuple(partition.last_known_elr or ()),
            partition.leader_epoch if partition.leader_id < 0 else None,
        )
        for topic in response.topics
        for partition in topic.partitions
    }
    return EligiblePage(by_partition, complete=response.next_cursor is None)
