"""Finding an offset by time on a tiered partition (ListOffsets; KIP-405, KIP-1075; `findOffsetByTimestamp`)."""

from __future__ import annotations

from backend.engine.log.timestamps import TimestampedOffset
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.rsm import RemoteStorageError
from backend.engine.remote.segment_scan import SegmentScan
from backend.engine.remote.tier import Tier
from backend.protocol.batch import iter_records
from backend.protocol.errors import DecodeError
from backend.protocol.remote_log_metadata import SegmentMetadata
from backend.tiering.lineage import segment_lineage, without_empty_epochs
from backend.tiering.segment_state import SegmentState


async def offset_for_timestamp(tier: Tier, log: UnifiedLog, timestamp_ms: int) -> TimestampedOffset | None:
    """The first record at or past log start whose timestamp is at least the one given, wherever it lies.

    Raises RemoteStorageError, and KafkaError(REPLICA_NOT_AVAILABLE) while metadata is still being read.
    """
    start_offset = log.log_start_offset
    lineage = without_empty_epochs(log.leader_epochs.entries)
    epoch = log.leader_epochs.epoch_for_offset(start_offset)
    while epoch is not None:
        for segment in tier.metadata.segments_of(log.topic_id_partition, epoch):
            if (
                segment.max_timestamp_ms < timestamp_ms
                or segment.end_offset < start_offset
                or segment.state is not SegmentState.COPY_SEGMENT_FINISHED
            ):
                continue
            if segment.start_offset >= log.segments.first_base_offset:
                # From here on the local log has everything.
                return log.offset_by_timestamp(timestamp_ms)
            if segment_lineage(segment.segment_leader_epochs, segment.end_offset, lineage, log.log_end_offset).within:
                found = await _search(tier, segment, timestamp_ms, start_offset)
                if found is not None:
                    return found
        epoch = log.leader_epochs.next_epoch(epoch)
    return log.offset_by_timestamp(timestamp_ms)


async def _search(
    tier: Tier, segment: SegmentMetadata, timestamp_ms: int, start_offset: int
) -> TimestampedOffset | None:
    indexes = await tier.indexes.get(segment)
    scan = SegmentScan(tier, segment)
    position = indexes.position_for_timestamp(timestamp_ms, start_offset)
    while (header := await scan.header_at(position)) is not None:
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            data = await scan.bytes_at(position, header.size_bytes)
            try:
                for record in iter_records(data):
                    if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                        epoch = header.leader_epoch if header.leader_epoch >= 0 else None
                        return TimestampedOffset(record.timestamp, record.offset, epoch)
            except DecodeError as error:
                raise RemoteStorageError(
                    f"Batch {header.base_offset} in the remote tier of {segment.topic_id_partition} is corrupt: {error}"
                ) from error
        position += header.size_bytes
    return None
