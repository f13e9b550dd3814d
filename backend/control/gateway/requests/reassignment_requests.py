"""Moves of replicas: ListPartitionReassignments, AlterPartitionReassignments (KIP-455, KIP-860)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway, until_settled
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError, error_for
from backend.tiering.ids import TopicPartition

TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition whose replicas change; `replicas` holds the added and the leaving ones too."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def list_reassignments(
    gateway: Gateway, *, lane: Lane = Lane.SAMPLE
) -> dict[TopicPartition, PartitionReassignment]:
    """All moves in progress. Raises GatewayError or KafkaError."""
    request = m.ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None)
    response = await gateway.ask_any(request, m.ListPartitionReassignmentsResponse, lane=lane)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, p.partition_index): PartitionReassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in response.topics
        for p in topic.partitions
    }


async def alter_reassignments(
    gateway: Gateway, targets: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, KafkaError]:
    """Asks for these replica lists, first one preferred; None cancels a move. Returns the refusals by partition.

    Raises KafkaError when Kafka refuses the whole, GatewayError when it does not answer: what it did is then not known.
    """
    topic_type = m.AlterPartitionReassignmentsRequest.Topics
    by_topic: dict[str, list[m.AlterPartitionReassignmentsRequest.Topics.Partitions]] = defaultdict(list)
    for tp, replicas in targets.items():
        topics = None if replicas is None else list(replicas)
        by_topic[tp.topic].append(topic_type.Partitions(partition_index=tp.partition, replicas=topics))
    request = m.AlterPartitionReassignmentsRequest(
        timeout_ms=round(TIMEOUT_S * 1000),
        topics=[topic_type(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )

    async def once() -> dict[TopicPartition, KafkaError]:
        response = await gateway.ask_any(request, m.AlterPartitionReassignmentsResponse, lane=Lane.ACT)
        if response.error_code:
            raise error_for(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, p.partition_index): error_for(p.error_code, p.error_message)
            for topic in response.responses
            for p in topic.partitions
            if p.error_code
        }

    return await until_settled(once, timeout_s=TIMEOUT_S)
