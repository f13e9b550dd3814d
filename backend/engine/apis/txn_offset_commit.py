"""TxnOffsetCommit (28), versions 0-5: a group's positions as part of a producer's transaction (KIP-98, KIP-447).

With version 5 the group's coordinator has the partition of the offsets added to the transaction (KIP-890).
Kafka: `KafkaApis.handleTxnOffsetCommitRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.group.group_records import CommittedOffset
from backend.engine.coordinator.group.transactional_offsets import TransactionalCommit
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.ports import Ports
from backend.engine.ports.time_slices import TimeSlicer
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

API_KEY: Final = 28
MIN_VERSION: Final = 0
MAX_VERSION: Final = 5
ABORTABLE_SINCE: Final = 4
ADDED_BY_COORDINATOR_SINCE: Final = 5

_Topic = m.TxnOffsetCommitResponse.Topics


class TxnOffsetCommitServices(Protocol):
    """The parts of the node that these functions use."""

    ports: Ports
    metadata: MetadataCache
    group_coordinator: GroupCoordinator
    time_slicer: TimeSlicer


async def txn_offset_commit(
    services: TxnOffsetCommitServices, context: RequestContext, request: m.TxnOffsetCommitRequest
) -> m.TxnOffsetCommitResponse:
    """One code for each partition."""
    response = m.TxnOffsetCommitResponse()
    time_slice = services.time_slicer.time_slice()
    offsets: dict[TopicPartition, CommittedOffset] = {}
    rows: list[tuple[TopicPartition, _Topic.Partitions]] = []
    now_ms = services.ports.clock.time_ms()
    for topic_request in request.topics:
        result = _Topic(name=topic_request.name)
        response.topics.append(result)
        topic = services.metadata.image.topic(topic_request.name)
        await time_slice.step()
        for partition in topic_request.partitions:
            await time_slice.step()
            row = _Topic.Partitions(partition_index=partition.partition_index)
            result.partitions.append(row)
            if topic is None or partition.partition_index not in topic.partitions:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            key = TopicPartition(topic_request.name, partition.partition_index)
            metadata = partition.committed_metadata or ""
            offsets[key] = CommittedOffset(
                partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, topic_id=topic.id
            )
            rows.append((key, row))
    codes = await _commit(services, context, request, offsets) if rows else {}
    for key, row in rows:
        row.error_code = codes[key]
    return response


async def _commit(
    services: TxnOffsetCommitServices,
    context: RequestContext,
    request: m.TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, ErrorCode]:
    if not request.group_id:
        return dict.fromkeys(offsets, ErrorCode.INVALID_GROUP_ID)
    commit = TransactionalCommit(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        adds_partition=context.api_version >= ADDED_BY_COORDINATOR_SINCE,
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
    )
    try:
        return await services.group_coordinator.offsets.commit_in_transaction(
            request.group_id,
            commit,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            offsets=offsets,
        )
    except KafkaError as refused:
        return dict.fromkeys(offsets, refused.code)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, txn_offset_commit),)
