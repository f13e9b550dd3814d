"""Rebuilding what a log knows from the batches in its files.

`LogSegment.recover` and `UnifiedLog.rebuildProducerState` of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backend.engine.log.leader_epoch_cache import UNDEFINED_EPOCH, LeaderEpochCache
from backend.engine.log.log_config import INT32_MAX, LogConfig
from backend.engine.log.producers.producer_entry import EndTxnMarker
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.segments.log_segment import BatchEntry, LogSegment
from backend.engine.log.segments.log_segments import LogSegments
from backend.engine.log.segments.transaction_index import AbortedTxn
from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.control_records import ControlType, control_type, marker_epoch
from backend.protocol.record_batches.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    crc_valid,
    iter_records,
    parse_header,
)

# Bytes read at once: large enough that the scan is bound by the disk (3.6 GB/s from cache with 16 KiB batches), small
# enough that several recoveries at once stay under 10 MB.
CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """The first bytes of a segment that are no valid batch; all before are."""

    position: int
    reason: str
    valid_after: bool  # whether a valid batch follows the damaged one: then it is no cut-off tail


class DamagedFile(Exception):
    """Ends the iteration of :func:`valid_batches`."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.reason)
        self.damage = damage


def valid_batches(
    segment: LogSegment, start: int, size_bytes: int, first_offset: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each batch from byte `start`, CRC and order checked.

    Ends with `DamagedFile` at damage.
    """
    position, data, data_at, expected = start, memoryview(b""), start, first_offset
    while position < size_bytes:
        at = position - data_at
        problem = None
        header = None
        if at + HEADER_BYTES > len(data):
            data, data_at, at = (
                memoryview(segment.files.pread(min(CHUNK_BYTES, size_bytes - position), position)),
                position,
                0,
            )
        try:
            header = parse_header(data, at)
        except DecodeError as error:
            problem = str(error)
        if header is not None:
            problem = _impossible(header, segment.base_offset, expected, size_bytes - position)
            if problem is None:
                if at + header.size_bytes > len(data):
                    read_bytes = min(max(CHUNK_BYTES, header.size_bytes), size_bytes - position)
                    data, data_at, at = memoryview(segment.files.pread(read_bytes, position)), position, 0
                if not crc_valid(data, at, header):
                    problem = f"the CRC of the batch at offset {header.base_offset} does not match its bytes"
        if problem is not None or header is None:
            reason = f"{segment.files.log_path} at byte {position}: {problem}"
            raise DamagedFile(Damage(position, reason, _valid_after(segment, position, header, size_bytes)))
        yield position, header, data[at : at + header.size_bytes]
        position += header.size_bytes
        expected = header.next_offset


def _impossible(header: BatchHeader, base_offset: int, expected: int, left: int) -> str | None:
    if header.magic != MAGIC:
        return f"a batch has magic {header.magic}"
    if header.size_bytes > left:
        return f"a batch of {header.size_bytes} bytes is cut off after {left}"
    if header.last_offset_delta < 0 or header.base_offset < expected:
        return f"a batch has offsets {header.base_offset} to {header.last_offset}, expected {expected} or later"
    if header.last_offset - base_offset > INT32_MAX:
        return f"offset {header.last_offset} is too far from the segment's base"
    return None


def _valid_after(segment: LogSegment, position: int, damaged: BatchHeader | None, size_bytes: int) -> bool:
    if damaged is None or damaged.size_bytes > size_bytes - position - HEADER_BYTES:
        return False
    after = position + damaged.size_bytes
    try:
        header = parse_header(segment.files.pread(HEADER_BYTES, after))
    except DecodeError:
        return False
    if header.magic != MAGIC or header.size_bytes > size_bytes - after or header.base_offset < segment.base_offset:
        return False
    return crc_valid(segment.files.pread(header.size_bytes, after), 0, header)


def recover_segment(
    segment: LogSegment, producers: ProducerStateManager, epochs: LeaderEpochCache, config: LogConfig, size_bytes: int
) -> Damage | None:
    """Scans a whole segment and rebuilds its indexes, feeding epochs and producers; what it stopped at, None when all
    is valid.

    Expects the producers to be at the segment's base offset. The file is left as it is.
    """
    segment.reset()
    entries: list[BatchEntry] = []
    try:
        for _position, header, data in valid_batches(segment, 0, size_bytes, segment.base_offset):
            # Only what the checkpoint has missed: an epoch that it knows may have begun in an earlier segment.
            if header.leader_epoch > (-1 if epochs.latest_epoch is None else epochs.latest_epoch):
                epochs.assign(header.leader_epoch, header.base_offset)
            if header.has_producer and header.last_offset >= producers.map_end_offset:
                feed_producers(producers, header, data, 0, segment)
            entries.append(BatchEntry(header.last_offset, header.size_bytes, header.max_timestamp))
            if len(entries) >= 1024:
                segment.index_recovered(entries, index_interval_bytes=config.index_interval_bytes)
                entries.clear()
    except DamagedFile as damaged:
        return damaged.damage
    finally:
        segment.index_recovered(entries, index_interval_bytes=config.index_interval_bytes)
        segment.start_appending()
        producers.map_end_offset = max(producers.map_end_offset, segment.next_offset)
    return None


def feed_producers(
    producers: ProducerStateManager, header: BatchHeader, data: Buffer, position: int, segment: LogSegment | None
) -> None:
    """Takes a batch that is in the log into the producer state.

    An abort is noted in the segment's transaction index when given.
    """
    if not header.is_control:
        producers.update(header)
        return
    marker = end_txn_marker_of(data, position)
    if marker is None:
        return
    completed = producers.update_marker(header, marker)
    if completed is None:
        return
    if completed.aborted and segment is not None:
        stable = producers.stable_offset_after(completed)
        segment.add_aborted(AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable))
    producers.complete(completed)


def end_txn_marker_of(data: Buffer, position: int) -> EndTxnMarker | None:
    """Returns the marker in a control batch; None when the batch is of another kind."""
    for record in iter_records(data, position):
        kind = control_type(record.key)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            return EndTxnMarker(kind == ControlType.ABORT, marker_epoch(record.value))
    return None


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_end_offset: int,
    log_start_offset: int,
    *,
    now_ms: int | None = None,
) -> None:
    """Producer state at the log end: the latest snapshot at or below it and the batches from there."""
    producers.truncate_and_reload(log_end_offset, default_offset=log_start_offset, now_ms=now_ms)
    if producers.map_end_offset >= log_end_offset or not segments:
        return
    snapshot_bases = {segment.base_offset for segment in segments[-2:]}
    for segment in segments.from_offset(producers.map_end_offset):
        if segment.base_offset >= log_end_offset:
            break
        start = max(segment.base_offset, producers.map_end_offset)
        producers.map_end_offset = start
        if segment.base_offset in snapshot_bases:
            producers.take_snapshot()
        _feed_segment(producers, segment, start, log_end_offset)
        producers.map_end_offset = max(start, min(segment.next_offset, log_end_offset))
    producers.map_end_offset = log_end_offset
    producers.take_snapshot()


def _feed_segment(producers: ProducerStateManager, segment: LogSegment, start: int, end: int) -> None:
    for batch in segment.scan(segment.position_of(start)):
        if batch.last_offset >= end:
            return
        header = parse_header(segment.files.pread(HEADER_BYTES, batch.position))
        if header.has_producer:
            data = segment.files.pread(batch.size_bytes, batch.position) if header.is_control else b""
            feed_producers(producers, header, data, 0, None)


def epochs_in_batches(segments: LogSegments, start: int, end: int) -> LeaderEpochCache:
    """The leader epochs that the batches of `[start, end)` were written in. Raises `CorruptLog`."""
    epochs = LeaderEpochCache()
    for segment in segments.from_offset(start):
        for batch in segment.scan(segment.position_of(max(start, segment.base_offset))):
            if batch.base_offset >= end:
                return epochs
            epoch = parse_header(segment.files.pread(HEADER_BYTES, batch.position)).leader_epoch
            if epoch > (UNDEFINED_EPOCH if epochs.latest_epoch is None else epochs.latest_epoch):
                epochs.assign(epoch, max(start, batch.base_offset))
    return epochs
