"""Moves of replicas in progress: ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

from dataclasses import dataclass

from backend.control.gateway.client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import error_for
from backend.tiering.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Move:
    """A partition whose replicas change; `replicas` holds the added and the leaving ones too."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def list_reassignments(gateway: Gateway) -> dict[TopicPartition, Move]:
    """All moves in progress. Raises GatewayError or KafkaError."""
    request = m.ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None)
    answer = await gateway.ask_any(request, m.ListPartitionReassignmentsResponse)
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message)
    return {
        TopicPartition(topic.name, p.partition_index): Move(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in answer.topics
        for p in topic.partitions
    }
