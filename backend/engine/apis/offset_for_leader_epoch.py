"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ends on the leader (KIP-101, KIP-279, KIP-320).

Kafka: `KafkaApis.handleOffsetForLeaderEpochRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.ports.time_slices import Steps
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError

API_KEY: Final = 23
MIN_VERSION: Final = 2
MAX_VERSION: Final = 4

_TopicResult = m.OffsetForLeaderEpochResponse.Topics


class OffsetForLeaderEpochServices(Protocol):
    """The parts of the node that these functions use."""

    replica_manager: ReplicaManager


def offset_for_leader_epoch(
    services: OffsetForLeaderEpochServices, context: RequestContext, request: m.OffsetForLeaderEpochRequest
) -> Steps[m.OffsetForLeaderEpochResponse]:
    """The leader answers from its epoch cache, which covers what is only remote too; undefined is -1 and -1."""
    response = m.OffsetForLeaderEpochResponse()
    for topic in request.topics:
        topic_result = _TopicResult(topic=topic.topic)
        response.topics.append(topic_result)
        for part in topic.partitions:
            topic_result.partitions.append(_response(services, topic.topic, part))
            yield
    return response


def _response(
    services: OffsetForLeaderEpochServices, topic: str, part: m.OffsetForLeaderEpochRequest.Topics.Partitions
) -> _TopicResult.Partitions:
    row = _TopicResult.Partitions(partition=part.partition)
    try:
        partition = services.replica_manager.partition(topic, part.partition)
        partition.check_epoch(part.current_leader_epoch)
        partition.check_leader()
        row.leader_epoch, row.end_offset = partition.log.end_offset_for_epoch(part.leader_epoch)
    except KafkaError as error:
        row.error_code = error.code
    return row


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, offset_for_leader_epoch),)
