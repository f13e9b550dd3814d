"""Elections that people ask for: ElectLeaders (KIP-183, KIP-460)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway, until_settled
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError, error_for
from backend.tiering.ids import TopicPartition

PREFERRED: Final = 0
UNCLEAN: Final = 1
TIMEOUT_S: Final = 10.0


async def elect_preferred(gateway: Gateway, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
    """Makes the first replica of each list the leader. Returns the refusals by partition; a replica that leads already
    is none.

    Raises KafkaError when Kafka refuses the whole, GatewayError when it does not answer.
    """
    return await _elect(gateway, partitions, PREFERRED)


async def elect_unclean(gateway: Gateway, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
    """Lets a replica that is not in sync lead a partition without a leader: what only the old leader had is lost.

    Answers and raises as :func:`elect_preferred`.
    """
    return await _elect(gateway, partitions, UNCLEAN)


async def _elect(
    gateway: Gateway, partitions: Iterable[TopicPartition], election_type: int
) -> dict[TopicPartition, KafkaError]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        by_topic[tp.topic].append(tp.partition)
    topics = m.ElectLeadersRequest.TopicPartitions
    request = m.ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[topics(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
        timeout_ms=round(TIMEOUT_S * 1000),
    )

    async def once() -> dict[TopicPartition, KafkaError]:
        response = await gateway.ask_any(request, m.ElectLeadersResponse, lane=Lane.ACT)
        if response.error_code:
            raise error_for(response.error_code, "the election was refused")
        return {
            TopicPartition(topic.topic, p.partition_id): error_for(p.error_code, p.error_message)
            for topic in response.replica_election_results
            for p in topic.partition_result
            if p.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        }

    return await until_settled(once, timeout_s=TIMEOUT_S)
