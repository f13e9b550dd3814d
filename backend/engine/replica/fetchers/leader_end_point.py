"""A follower's connection to its leader, and the requests of a plan over it: ListOffsets, OffsetForLeaderEpoch.

Kafka: `BlockingSend` and `RemoteLeaderEndPoint`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from backend.engine.replica.fetch_data import EpochEnd
from backend.engine.replica.fetchers.tier_state import LeaderOffset
from backend.protocol import messages as m
from backend.protocol.errors import NONE, ErrorCode, KafkaError, error_for
from backend.protocol.messages import Message
from backend.tiering.ids import TopicIdPartition

EPOCH_VERSION: Final = 4


class LeaderConnection(Protocol):
    """Requests to one broker's inter-broker listener, answered in order. Both ends run the same software.

    ``net``'s peer client is one.
    """

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The answer. Raises KafkaError (NETWORK_EXCEPTION, REQUEST_TIMED_OUT) or DecodeError for an unreadable one."""
        ...

    def close(self) -> None:
        """Requests in flight fail with NETWORK_EXCEPTION."""
        ...


# (host, port) → the connection to the broker there, which is opened when it is first used.
ConnectToLeader = Callable[[str, int], LeaderConnection]


class LeaderEndPoint:
    """Questions of one follower broker over one connection. All raise KafkaError, also for an error in the answer."""

    def __init__(
        self, endpoint: LeaderConnection, node_id: int, *, list_offsets_version: int, timeout_ms: float
    ) -> None:
        self._endpoint = endpoint
        self._node_id = node_id
        self._list_offsets_version = list_offsets_version
        self._timeout_ms = timeout_ms

    async def offset(self, tip: TopicIdPartition, leader_epoch: int, timestamp: int) -> LeaderOffset:
        """The offset that a ListOffsets timestamp names on the leader, -1 and -1 when it names none."""
        topics = m.ListOffsetsRequest.Topics
        request = m.ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[
                topics(
                    name=tip.topic,
                    partitions=[
                        topics.Partitions(
                            partition_index=tip.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
                        )
                    ],
                )
            ],
        )
        response = await self._endpoint.send(request, self._list_offsets_version, timeout_ms=self._timeout_ms)
        assert isinstance(response, m.ListOffsetsResponse)
        for topic in response.topics:
            for row in topic.partitions:
                if topic.name == tip.topic and row.partition_index == tip.partition:
                    self._check(row.error_code, tip, f"ListOffsets {timestamp}")
                    return LeaderOffset(row.offset, row.leader_epoch)
        raise self._missing(tip, f"ListOffsets {timestamp}")

    async def epoch_end(self, tip: TopicIdPartition, leader_epoch: int, epoch: int) -> EpochEnd:
        """The end of an epoch on the leader; -1 and -1 when undefined."""
        topics = m.OffsetForLeaderEpochRequest.Topics
        request = m.OffsetForLeaderEpochRequest(
            replica_id=self._node_id,
            topics=[
                topics(
                    topic=tip.topic,
                    partitions=[
                        topics.Partitions(
                            partition=tip.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
                        )
                    ],
                )
            ],
        )
        response = await self._endpoint.send(request, EPOCH_VERSION, timeout_ms=self._timeout_ms)
        assert isinstance(response, m.OffsetForLeaderEpochResponse)
        for topic in response.topics:
            for row in topic.partitions:
                if topic.topic == tip.topic and row.partition == tip.partition:
                    self._check(row.error_code, tip, f"OffsetForLeaderEpoch {epoch}")
                    return EpochEnd(row.leader_epoch, row.end_offset)
        raise self._missing(tip, f"OffsetForLeaderEpoch {epoch}")

    def close(self) -> None:
        """Questions in flight fail."""
        self._endpoint.close()

    def _check(self, code: int, tip: TopicIdPartition, request_name: str) -> None:
        if code != NONE:
            raise error_for(code, f"the leader answered {request_name} of {tip.topic_partition} with an error")

    def _missing(self, tip: TopicIdPartition, request_name: str) -> KafkaError:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the leader's answer to {request_name} does not mention {tip.topic_partition}",
        )
