"""Offsets of replicas: ListOffsets with Kafka's special timestamps, asked of the broker that holds the replica.

Replica id -2 makes a broker answer for its own replica, leader or not; every other id is answered by the leader alone.
The same partition twice in a request is an error for both, so each timestamp has its own request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.last_response import LastResponse
from backend.protocol import messages as m
from backend.protocol import offset_timestamps
from backend.protocol.errors import ErrorCode, error_code
from backend.tiering.ids import TopicPartition

CONSUMER: Final = -1
THIS_REPLICA: Final = -2
READ_UNCOMMITTED: Final = 0
# The latest offset is the last stable one then: below the first record of an open transaction.
READ_COMMITTED: Final = 1
ISOLATION_VERSION: Final = 2
# 2,000 partitions x 14 bytes + names: about 60 kB a request; decoding its answer takes a few milliseconds.
PARTITIONS_PER_REQUEST: Final = 2_000
TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """One partition's answer; `offset` and `epoch` are -1 where Kafka says so, and when `error` is not NONE."""

    offset: int
    epoch: int
    error: ErrorCode = ErrorCode.NONE


ListedOffsets = dict[TopicPartition, ListedOffset]


@dataclass(slots=True)
class _Chunk:
    """One request of a question, and its newest answer."""

    request: m.ListOffsetsRequest
    listed: ListedOffsets
    last: LastResponse[m.ListOffsetsResponse, ListedOffsets] = field(default_factory=LastResponse)

    def read(self, response: m.ListOffsetsResponse) -> None:
        """Stores the responses; an equal one keeps its object."""
        self.listed = self.last.made(response, partial(_listed_offsets, previous=self.listed))


class OffsetListing:
    """One special timestamp, asked of one broker again and again about nearly always the same partitions.

    `ask` returns the same object until a response changes.
    """

    def __init__(
        self, node_id: int, timestamp: int, replica_id: int = THIS_REPLICA, isolation_level: int = READ_UNCOMMITTED
    ) -> None:
        self._node_id = node_id
        self._timestamp = timestamp
        self._replica_id = replica_id
        self._isolation_level = isolation_level
        self._version_min = max(offset_timestamps.FIRST_VERSION[timestamp], ISOLATION_VERSION if isolation_level else 0)
        self._chunks: list[_Chunk] = []
        self._partitions: Sequence[TopicPartition] = ()
        self._merged: ListedOffsets = {}
        self._merged_of: list[ListedOffsets] = []

    async def ask(
        self, gateway: Gateway, partitions: Sequence[TopicPartition], *, lane: Lane = Lane.SAMPLE
    ) -> ListedOffsets:
        """The broker's answers, by partition. Raises GatewayError (UnsupportedByBroker for a broker too old)."""
        if partitions != self._partitions:
            begins = range(0, len(partitions), PARTITIONS_PER_REQUEST)
            parts = [partitions[begin : begin + PARTITIONS_PER_REQUEST] for begin in begins]
            self._chunks = [
                _Chunk(_request(self._timestamp, part, self._replica_id, self._isolation_level), listed=self._merged)
                for part in parts
            ]
        self._partitions = partitions
        for chunk in self._chunks:
            response, _ = await gateway.ask_node(
                self._node_id,
                chunk.request,
                m.ListOffsetsResponse,
                timeout_s=TIMEOUT_S,
                at_least=self._version_min,
                lane=lane,
                last=chunk.last,
            )
            chunk.read(response)
        chunk_listed = [chunk.listed for chunk in self._chunks]
        if [id(listed) for listed in chunk_listed] != [id(listed) for listed in self._merged_of]:
            self._merged_of = chunk_listed
            self._merged = {tp: offset for listed in chunk_listed for tp, offset in listed.items()}
        return self._merged


async def list_offsets(
    gateway: Gateway,
    node_id: int,
    timestamp: int,
    partitions: Sequence[TopicPartition],
    *,
    replica_id: int = THIS_REPLICA,
    lane: Lane = Lane.SAMPLE,
) -> ListedOffsets:
    """Answers of broker `node_id`, by partition. Raises GatewayError (UnsupportedByBroker for a broker too old)."""
    return await OffsetListing(node_id, timestamp, replica_id).ask(gateway, partitions, lane=lane)


def _listed_offsets(response: m.ListOffsetsResponse, previous: ListedOffsets) -> ListedOffsets:
    result: ListedOffsets = {}
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            offset = ListedOffset(p.offset, p.leader_epoch, error_code(p.error_code))
            before = previous.get(tp)
            result[tp] = before if before is not None and before == offset else offset
    return result


def _request(
    timestamp: int, partitions: Iterable[TopicPartition], replica_id: int, isolation_level: int
) -> m.ListOffsetsRequest:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in dict.fromkeys(partitions):
        by_topic[tp.topic].append(tp.partition)
    topic_type = m.ListOffsetsRequest.Topics
    return m.ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        timeout_ms=round(TIMEOUT_S * 1000),
        topics=[
            topic_type(
                name=topic,
                partitions=[
                    topic_type.Partitions(partition_index=p, current_leader_epoch=-1, timestamp=timestamp)
                    for p in indexes
                ],
            )
            for topic, indexes in by_topic.items()
        ],
    )
