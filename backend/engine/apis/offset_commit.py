"""OffsetCommit (8), versions 2-10: a group's positions, stored before they are acknowledged.

Version 10 names topics by id (KIP-848). Versions 2-4 may say how long to keep the offsets.
Kafka: `KafkaApis.handleOffsetCommitRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.controller.image.metadata_image import TopicImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.group.group_records import CommittedOffset
from backend.engine.ports import Ports
from backend.engine.ports.time_slices import TimeSlicer
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

API_KEY: Final = 8
MIN_VERSION: Final = 2
MAX_VERSION: Final = 10
FIRST_GROUP_NOT_FOUND: Final = 9
FIRST_BY_ID: Final = 10
BY_BROKER: Final = -1
FOR_EVER: Final = 2**63 - 1

_Request = m.OffsetCommitRequest.Topics.Partitions
_Topic = m.OffsetCommitResponse.Topics


class OffsetCommitServices(Protocol):
    """The parts of the node that these functions use."""

    ports: Ports
    metadata: MetadataCache
    group_coordinator: GroupCoordinator
    time_slicer: TimeSlicer


async def offset_commit(
    services: OffsetCommitServices, context: RequestContext, request: m.OffsetCommitRequest
) -> m.OffsetCommitResponse:
    """One code for each partition."""
    response = m.OffsetCommitResponse()
    time_slice = services.time_slicer.time_slice()
    offsets: dict[TopicPartition, CommittedOffset] = {}
    rows: list[tuple[TopicPartition, _Topic.Partitions]] = []
    now_ms = services.ports.clock.time_ms()
    # For ever is what no clock reaches.
    expire_ms = (
        BY_BROKER if request.retention_time_ms == BY_BROKER else min(now_ms + request.retention_time_ms, FOR_EVER)
    )
    for topic_request in request.topics:
        result = _Topic(topic_id=bytes(topic_request.topic_id), name=topic_request.name)
        response.topics.append(result)
        topic, error = _topic(services, context, topic_request)
        await time_slice.step()
        for partition in topic_request.partitions:
            await time_slice.step()
            row = _Topic.Partitions(partition_index=partition.partition_index, error_code=error)
            result.partitions.append(row)
            if topic is None:
                continue
            if partition.partition_index not in topic.partitions:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            key = TopicPartition(topic.name, partition.partition_index)
            offsets[key] = _committed(partition, topic, now_ms, expire_ms)
            rows.append((key, row))
    if not rows:
        return response
    try:
        codes = await services.group_coordinator.offsets.commit(
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            offsets=offsets,
            version=context.api_version,
        )
    except KafkaError as refused:
        code = refused.code
        if code is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < FIRST_GROUP_NOT_FOUND:
            code = ErrorCode.ILLEGAL_GENERATION
        codes = dict.fromkeys(offsets, code)
    for key, row in rows:
        row.error_code = codes[key]
    return response


def _topic(
    services: OffsetCommitServices, context: RequestContext, topic_request: m.OffsetCommitRequest.Topics
) -> tuple[TopicImage | None, ErrorCode]:
    image = services.metadata.image
    if context.api_version >= FIRST_BY_ID:
        topic = image.topics.get(bytes(topic_request.topic_id))
        return topic, ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_ID
    topic = image.topic(topic_request.name)
    return topic, ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _committed(partition: _Request, topic: TopicImage, now_ms: int, expire_ms: int) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
        expire_ms,
        topic.id,
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, offset_commit),)
