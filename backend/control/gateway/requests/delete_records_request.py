"""Removal of a log's beginning: DeleteRecords (KIP-107), asked of the partition's leader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError, error_for
from backend.tiering.ids import TopicPartition

TIMEOUT_S: Final = 15.0


async def delete_records(
    gateway: Gateway, leaders: Mapping[TopicPartition, int], before: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
    """Removes everything below the offsets. The new log starts, and what was refused, by partition.

    Raises GatewayError when a leader does not answer: what it did is then not known.
    """
    low: dict[TopicPartition, int] = {}
    refused: dict[TopicPartition, KafkaError] = {}
    for leader in sorted(set(leaders.values())):
        own = {tp: offset for tp, offset in before.items() if leaders[tp] == leader}
        response, _ = await gateway.ask_node(
            leader, _request(own), m.DeleteRecordsResponse, timeout_s=TIMEOUT_S, lane=Lane.ACT
        )
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if p.error_code:
                    refused[tp] = error_for(p.error_code, f"records of {tp.topic}-{tp.partition} were not deleted")
                else:
                    low[tp] = p.low_watermark
    return low, refused


def _request(before: Mapping[TopicPartition, int]) -> m.DeleteRecordsRequest:
    topic_type = m.DeleteRecordsRequest.Topics
    by_topic: dict[str, list[m.DeleteRecordsRequest.Topics.Partitions]] = defaultdict(list)
    for tp, offset in before.items():
        by_topic[tp.topic].append(topic_type.Partitions(partition_index=tp.partition, offset=offset))
    return m.DeleteRecordsRequest(
        topics=[topic_type(name=topic, partitions=topic_partitions) for topic, topic_partitions in by_topic.items()],
        timeout_ms=round(TIMEOUT_S * 1000) - 5_000,
    )
