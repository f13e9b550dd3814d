"""Who may lead partitions that nobody leads: their eligible leader replicas (DescribeTopicPartitions, KIP-966)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.client import Gateway
from backend.protocol import messages as m
from backend.tiering.ids import TopicPartition

# One page of an answer: brokers give as many unless they are told otherwise (max.request.partition.size.limit), 80
# bytes each. Of a cluster that is down as a whole the rest is told without these names.
PARTITIONS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class EligibleReplicas:
    """`elr` have every acknowledged record. `last_known` had them when they were last seen, before they stopped
    uncleanly; with Apache Kafka that is the last leader alone."""

    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


async def fetch_eligible(gateway: Gateway, topics: Iterable[str]) -> Mapping[TopicPartition, EligibleReplicas]:
    """Of the first PARTITIONS_MAX partitions of these topics. Raises GatewayError."""
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequest.Topics(name=name) for name in sorted(set(topics))[:PARTITIONS_MAX]],
        response_partition_limit=PARTITIONS_MAX,
        cursor=None,
    )
    answer = await gateway.ask_any(request, m.DescribeTopicPartitionsResponse)
    return {
        TopicPartition(topic.name or "", one.partition_index): EligibleReplicas(
            tuple(one.eligible_leader_replicas or ()), tuple(one.last_known_elr or ())
        )
        for topic in answer.topics
        for one in topic.partitions
    }
