"""Deleting remote segments (KIP-405; `RemoteLogManager.deleteRemoteLogSegment`, `deleteRemoteLogPartition`).

DELETE_SEGMENT_STARTED is on the metadata topic before the first object goes, DELETE_SEGMENT_FINISHED only after the
last: a crash in between leaves a segment that is known to be half deleted, never one that looks whole.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from backend.engine.remote.manager.tier import Tier
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError, RetriableRemoteStorageError
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.ids import TopicIdPartition, uuid_text
from backend.tiering.segment_state import SegmentState

_log = logging.getLogger(__name__)


def _update(tier: Tier, segment: SegmentMetadata, state: SegmentState) -> SegmentUpdate:
    # An update without custom metadata would erase it, and the storage may need it to find the objects.
    return SegmentUpdate(
        segment.topic_id_partition,
        segment.segment_id,
        tier.broker_id,
        tier.ports.clock.time_ms(),
        segment.custom_metadata,
        state,
    )


def _emit(tier: Tier, segment: SegmentMetadata, outcome: str, error: Exception | None = None) -> None:
    partition = segment.topic_id_partition
    tier.events.emit(
        "delete",
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=segment.segment_id,
        outcome=outcome,
        start=segment.start_offset,
        end=segment.end_offset,
        bytes=segment.segment_size_bytes,
        error=None if error is None else str(error),
    )


async def delete_segment(tier: Tier, segment: SegmentMetadata) -> None:
    """Deletes one segment. RemoteStorageError when it could not be done; it stays DELETE_SEGMENT_STARTED then."""
    await tier.metadata.update_segment(_update(tier, segment, SegmentState.DELETE_SEGMENT_STARTED))
    await _delete_data(tier, segment)
    await tier.metadata.update_segment(_update(tier, segment, SegmentState.DELETE_SEGMENT_FINISHED))
    _emit(tier, segment, "finished")


async def _delete_data(tier: Tier, segment: SegmentMetadata) -> None:
    topic = segment.topic_id_partition.topic
    _emit(tier, segment, "started")
    tier.meters.mark(topic, "remotedeleterequests")
    try:
        await tier.workers.run(lambda: tier.storage.delete_log_segment_data(segment))
    except RemoteStorageError as error:
        if not isinstance(error, RetriableRemoteStorageError):
            tier.meters.mark(topic, "remotedeleteerrors")
        _emit(tier, segment, "failed", error)
        raise
    await tier.indexes.remove([segment.segment_id])


async def delete_partition(tier: Tier, partition: TopicIdPartition) -> int:
    """Deletes every remote segment of a hosted partition that is not tiered any more; returns how many."""
    segments = list(tier.metadata.segments(partition))
    await delete_all(tier, segments, tier.metadata.update_segment)
    if segments:
        ids = ", ".join(uuid_text(segment.segment_id) for segment in segments[:3])
        _log.info("Deleted %d remote segments of %s (%s …)", len(segments), partition, ids)
    return len(segments)


async def delete_all(
    tier: Tier, segments: Sequence[SegmentMetadata], publish: Callable[[SegmentUpdate], Awaitable[None]]
) -> None:
    """Deletes all segments of a partition, with the events in Kafka's order.

    All are marked DELETE_SEGMENT_STARTED first, then the objects go, then all are marked finished. Segments that an
    earlier attempt marked are not marked again.
    """
    for segment in segments:
        if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
            await publish(_update(tier, segment, SegmentState.DELETE_SEGMENT_STARTED))
    for segment in segments:
        await _delete_data(tier, segment)
    for segment in segments:
        await publish(_update(tier, segment, SegmentState.DELETE_SEGMENT_FINISHED))
        _emit(tier, segment, "finished")
