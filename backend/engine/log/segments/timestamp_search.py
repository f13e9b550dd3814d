"""Finding offsets by time in the local segments of a log (ListOffsets with a timestamp or -3; KIP-734)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.engine.log.segments.log_segment import LogSegment
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_batch import Record, iter_records, parse_header


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record's offset and timestamp (ms), and the leader epoch of its batch (None when it has none)."""

    timestamp: int
    offset: int
    leader_epoch: int | None


def _records(segment: LogSegment, position: int, size_bytes: int) -> tuple[list[Record], int | None]:
    """Returns a batch's records, none when they cannot be read, and its leader epoch."""
    data = segment.files.pread(size_bytes, position)
    epoch = parse_header(data).leader_epoch
    try:
        records = list(iter_records(data))
    except DecodeError:  # of a log that an earlier version wrote; nobody can read them
        records = []
    return records, (epoch if epoch >= 0 else None)


def first_at_or_after(segments: Sequence[LogSegment], timestamp: int, start_offset: int) -> TimestampedOffset | None:
    """The first record at or past `start_offset` whose timestamp is at least `timestamp`; local segments only."""
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.next_offset <= start_offset:
            continue
        match = _first_in_segment(segment, timestamp, start_offset)
        if match is not None:
            return match
    return None


def _first_in_segment(segment: LogSegment, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    from_offset = max(segment.time_index.lookup(timestamp)[1], start_offset)
    position = segment.offset_index.lookup(from_offset)[1]
    for batch, batch_timestamp in segment.scan_timestamps(position):
        if batch_timestamp < timestamp or batch.last_offset < start_offset:
            continue
        records, epoch = _records(segment, batch.position, batch.size_bytes)
        for record in records:
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampedOffset(record.timestamp, record.offset, epoch)
    return None


def latest_timestamp(segments: Sequence[LogSegment]) -> TimestampedOffset | None:
    """The record with the largest timestamp of the local segments, the first of several.

    None when no record has one.
    """
    best: LogSegment | None = None
    for segment in segments:
        if segment.max_timestamp >= 0 and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None:
        return None
    timestamp, last_offset = best.max_timestamp_and_offset
    position = best.offset_index.lookup(last_offset)[1]
    for batch, batch_timestamp in best.scan_timestamps(position):
        if batch_timestamp == timestamp:
            records, epoch = _records(best, batch.position, batch.size_bytes)
            for record in records:
                if record.timestamp == timestamp:
                    return TimestampedOffset(timestamp, record.offset, epoch)
            return TimestampedOffset(timestamp, batch.last_offset, epoch)
    return None
