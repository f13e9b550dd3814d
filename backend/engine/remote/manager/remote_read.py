"""Reading records back from the remote tier for consumers (KIP-405; `RemoteLogManager.read`).

The replica's own leader epochs say in which epoch an offset was written, the metadata cache which segment holds it,
the index cache where in the segment to begin. A read returns bytes of one segment only and may end in a cut batch,
which clients expect.

Everything that the storage returns is checked: an index that leads past the offset would hide records, and a log that
ends early would leave a client without a whole batch. Both are errors, and a damaged index is fetched again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backend.engine.log.log_errors import OffsetOutOfRange
from backend.engine.log.segments.transaction_index import AbortedTxn, search_aborted
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.indexes.remote_indexes import RemoteIndexes
from backend.engine.remote.manager.copied_offsets import complete_epochs
from backend.engine.remote.manager.segment_scan import CHUNK_BYTES, CorruptSegment, SegmentScan
from backend.engine.remote.manager.tier import Tier
from backend.protocol.record_batches.record_batch import BatchHeader, iter_batches
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.epoch_lineage import segment_lineage

# Kafka's default of max.message.bytes. Index entries that are far apart may make one read so many bytes in vain.
BATCH_BYTES_DEFAULT_MAX: Final = 1_048_588


@dataclass(frozen=True, slots=True)
class RemoteRead:
    """Raw batches. `aborted` is None unless the reader asked for committed records only."""

    records: bytes | memoryview
    aborted: tuple[AbortedTxn, ...] | None = None


async def read(
    tier: Tier, log: UnifiedLog, offset: int, max_bytes: int, *, min_one_message: bool, read_committed: bool
) -> RemoteRead:
    """Batches from the one that holds `offset`, at most `max_bytes`; with `min_one_message` at least the first one
    whole.

    Raises OffsetOutOfRange when the remote tier does not hold the offset, KafkaError(REPLICA_NOT_AVAILABLE) while its
    metadata is still being read, RemoteStorageError.
    """
    partition = log.topic_id_partition
    complete_epochs(log, tier.metadata, partition)
    epoch = log.leader_epochs.epoch_for_offset(offset)
    segment = None if epoch is None else tier.metadata.lookup(partition, epoch, offset)
    if segment is None:
        raise OffsetOutOfRange(
            f"Offset {offset} of {partition} (leader epoch {epoch}) does not exist in the remote tier"
        )
    none_aborted: tuple[AbortedTxn, ...] | None = () if read_committed else None
    while segment is not None:
        scan = SegmentScan(tier, segment)
        indexes = await tier.indexes.get(segment)
        ahead = max(0, max_bytes) + CHUNK_BYTES
        batch = await _find_large(scan, indexes, offset, ahead=ahead) or await _find(
            tier, scan, indexes, offset, ahead=ahead
        )
        if batch is None:
            # Compaction may have left a gap at the segment's end.
            segment = _next_segment(tier, log, segment)
            continue
        position, header = batch
        if header.size_bytes > max_bytes and not min_one_message:
            return RemoteRead(b"", none_aborted)
        records = await scan.bytes_at(position, max(header.size_bytes, max_bytes))
        if len(records) < header.size_bytes:
            raise scan.corrupt(position, f"the log has {len(records)} of its {header.size_bytes} bytes")
        records = _of_own_history(log, segment, records)
        if not read_committed:
            return RemoteRead(records)
        bound = indexes.offset_past(position + len(records))
        upper_bound = segment.end_offset + 1 if bound is None else bound
        return RemoteRead(records, await _aborted(tier, log, segment, offset, upper_bound))
    return RemoteRead(b"", none_aborted)


def _of_own_history(log: UnifiedLog, segment: SegmentMetadata, records: memoryview) -> memoryview:
    """Without the batches of a deposed leader behind the point where this log's history parts from the segment's.

    Kafka returns them: after an unclean election its consumers read other records from the tier than from the log.
    """
    epochs = log.leader_epochs
    own = segment_lineage(segment.segment_leader_epochs, segment.end_offset, epochs.entries, log.log_end_offset)
    if own.within:
        return records
    for position, header in iter_batches(records):
        if epochs.epoch_for_offset(header.base_offset) not in (header.leader_epoch, None):
            return records[:position]
    return records


async def _find_large(
    scan: SegmentScan, indexes: RemoteIndexes, offset: int, *, ahead: int
) -> tuple[int, BatchHeader] | None:
    """The batch of the offset where batches are large and each has an entry, in one read of the storage; else None.

    `_find` would read the batch before it, its header and its body: three reads.
    """
    place = indexes.large_batch_of(offset, bytes_min=CHUNK_BYTES)
    if place is None:
        return None
    position, end = place
    reaches_bytes = (scan.size_bytes if end is None else end) - position
    try:
        header = await scan.header_at(position, ahead=max(ahead, min(reaches_bytes, BATCH_BYTES_DEFAULT_MAX)))
    except CorruptSegment:
        # `_find` finds out whether the index is damaged.
        return None
    if header is None or not header.base_offset <= offset <= header.last_offset <= scan.metadata.end_offset:
        return None
    return position, header


async def _find(
    tier: Tier, scan: SegmentScan, indexes: RemoteIndexes, offset: int, *, ahead: int
) -> tuple[int, BatchHeader] | None:
    """The first batch of the segment that ends at or past the offset."""
    indexed, position = indexes.entry_of(offset)
    try:
        await scan.check_entry(indexed, position, ahead=ahead)
        return await scan.find(position, offset, ahead=ahead)
    except CorruptSegment:
        # It may be our copy of the index: the next read fetches it again.
        await tier.indexes.remove([scan.metadata.segment_id])
        raise


def _next_segment(tier: Tier, log: UnifiedLog, segment: SegmentMetadata) -> SegmentMetadata | None:
    """The segment that continues after this one, in its last epoch or a later one."""
    epoch: int | None = segment.segment_leader_epochs[-1][0]
    while epoch is not None:
        following = tier.metadata.lookup(log.topic_id_partition, epoch, segment.end_offset + 1)
        if following is not None:
            return following
        epoch = log.leader_epochs.next_epoch(epoch)
    return None


async def _aborted(
    tier: Tier, log: UnifiedLog, first: SegmentMetadata, start_offset: int, upper_bound: int
) -> tuple[AbortedTxn, ...]:
    """Aborted transactions with records in [start offset, upper bound): their markers may lie in later segments,
    remote or local.
    """
    aborted: dict[AbortedTxn, None] = {}
    segment: SegmentMetadata | None = first
    while segment is not None:
        if not segment.txn_index_empty:
            indexes = await tier.indexes.get(segment)
            part, complete = search_aborted(indexes.aborted(), start_offset, upper_bound)
            aborted.update(dict.fromkeys(part))
            if complete:
                return tuple(aborted)
        segment = _next_with_txn_index(tier, log, segment.end_offset + 1)
    for local in log.segments:
        part, complete = search_aborted(local.aborted_transactions, start_offset, upper_bound)
        aborted.update(dict.fromkeys(part))
        if complete:
            break
    return tuple(aborted)


def _next_with_txn_index(tier: Tier, log: UnifiedLog, offset: int) -> SegmentMetadata | None:
    epoch = log.leader_epochs.epoch_for_offset(offset)
    while epoch is not None:
        segment = tier.metadata.next_with_txn_index(log.topic_id_partition, epoch, offset)
        if segment is not None and segment.end_offset >= offset:
            return segment
        epoch = log.leader_epochs.next_epoch(epoch)
    return None
