"""Offsets of replicas: ListOffsets with Kafka's sentinels (-1 … -6), asked of the broker that holds the replica.

Replica id -2 makes a broker answer for its own replica, leader or not; every other id is answered by the leader alone.
The same partition twice in a request is an error for both, so each sentinel is a request of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from backend.control.gateway.client import Gateway
from backend.control.gateway.pool import Lane
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, error_code
from backend.tiering.ids import TopicPartition

CONSUMER: Final = -1
THIS_REPLICA: Final = -2
# 2,000 partitions x 14 bytes + names: about 60 kB a request; decoding its answer takes a few milliseconds.
PARTITIONS_PER_REQUEST: Final = 2_000
TIMEOUT_S: Final = 10.0


class Sentinel(IntEnum):
    """Kafka's special timestamps."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


# KIP-405, KIP-734, KIP-1005, KIP-1023: the version that brought each of them.
MIN_VERSION: Final = {
    Sentinel.LATEST: 1,
    Sentinel.EARLIEST: 1,
    Sentinel.MAX_TIMESTAMP: 7,
    Sentinel.EARLIEST_LOCAL: 8,
    Sentinel.LATEST_TIERED: 9,
    Sentinel.EARLIEST_PENDING_UPLOAD: 11,
}


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """One partition's answer; `offset` and `epoch` are -1 where Kafka says so, and when `error` is not NONE."""

    offset: int
    epoch: int
    error: ErrorCode = ErrorCode.NONE


async def list_offsets(
    gateway: Gateway,
    node_id: int,
    sentinel: Sentinel,
    partitions: Sequence[TopicPartition],
    *,
    replica_id: int = THIS_REPLICA,
    lane: Lane = Lane.SAMPLE,
) -> dict[TopicPartition, OffsetAnswer]:
    """Answers of broker `node_id`, by partition. Raises GatewayError (UnsupportedByBroker for a broker too old)."""
    found: dict[TopicPartition, OffsetAnswer] = {}
    for begin in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        request = _request(sentinel, partitions[begin : begin + PARTITIONS_PER_REQUEST], replica_id)
        answer, _ = await gateway.ask_node(
            node_id,
            request,
            m.ListOffsetsResponse,
            timeout_s=TIMEOUT_S,
            at_least=MIN_VERSION[sentinel],
            lane=lane,
        )
        for topic in answer.topics:
            for p in topic.partitions:
                found[TopicPartition(topic.name, p.partition_index)] = OffsetAnswer(
                    p.offset, p.leader_epoch, error_code(p.error_code)
                )
    return found


def _request(sentinel: Sentinel, partitions: Iterable[TopicPartition], replica_id: int) -> m.ListOffsetsRequest:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in dict.fromkeys(partitions):
        by_topic[tp.topic].append(tp.partition)
    topic_type = m.ListOffsetsRequest.Topics
    return m.ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=0,
        timeout_ms=round(TIMEOUT_S * 1000),
        topics=[
            topic_type(
                name=topic,
                partitions=[
                    topic_type.Partitions(partition_index=p, current_leader_epoch=-1, timestamp=int(sentinel))
                    for p in indexes
                ],
            )
            for topic, indexes in by_topic.items()
        ],
    )
