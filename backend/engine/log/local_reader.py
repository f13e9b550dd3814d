"""Reads of one partition's local records: by offset, by time, and the aborted transactions among them.

Kafka: `UnifiedLog.read`, `LocalLog.read` and `collectAbortedTransactions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from backend.engine.log.local_log import LocalLog, ReadInfo
from backend.engine.log.log_errors import CorruptLog, DamagedIndex, OffsetOutOfRange
from backend.engine.log.log_health import LogHealth
from backend.engine.log.log_offsets import LogOffsets
from backend.engine.log.segments.timestamp_search import TimestampedOffset, first_at_or_after, latest_timestamp
from backend.engine.log.segments.transaction_index import AbortedTxn, search_aborted
from backend.protocol.buffers import Chunk
from backend.tiering.ids import TopicPartition

R = TypeVar("R", bound=Chunk)


class LocalReader:
    """The readers' side of one log. A failure of the disk takes the log offline."""

    def __init__(self, partition: TopicPartition, local: LocalLog, offsets: LogOffsets, health: LogHealth) -> None:
        self._partition = partition
        self._local = local
        self._offsets = offsets
        self._health = health

    def read(self, start_offset: int, max_bytes: int, *, up_to_offset: int, min_one_message: bool) -> ReadInfo[bytes]:
        """Raw batches of one segment from the one that holds `start_offset`, below `up_to_offset`, up to `max_bytes`.

        With `min_one_message` the first batch comes whole even when it is larger, without it not at all. Raises
        OFFSET_OUT_OF_RANGE below log start, past the log end, and when no local segment reaches back to `start_offset`.
        """
        return self._read(self._local.read, start_offset, max_bytes, up_to_offset, min_one_message)

    def read_file_range(
        self, start_offset: int, max_bytes: int, *, up_to_offset: int, min_one_message: bool
    ) -> ReadInfo[Chunk]:
        """As `read`, but that many bytes stay in their file until a socket takes them."""
        return self._read(self._local.read_file_range, start_offset, max_bytes, up_to_offset, min_one_message)

    def _read(
        self,
        read: Callable[[int, int, int, bool], ReadInfo[R]],
        start_offset: int,
        max_bytes: int,
        up_to_offset: int,
        min_one_message: bool,
    ) -> ReadInfo[R]:
        health, local = self._health, self._local
        if health.offline_reason is not None:
            health.check_online()
        first = local.segments.first_base_offset
        if start_offset > local.end_offset or start_offset < self._offsets.log_start or start_offset < first:
            raise OffsetOutOfRange(
                f"Received request for offset {start_offset} for partition {self._partition}, "
                f"but we only have log segments from offset {first} up to {local.end_offset}"
            )
        try:
            return read(start_offset, max_bytes, up_to_offset, min_one_message)
        except DamagedIndex as error:
            health.note_damaged_index(error)
            raise
        except (OSError, CorruptLog) as error:
            raise health.failed("read", error) from error

    def aborted_in(self, start_offset: int, info: ReadInfo[Chunk]) -> Sequence[AbortedTxn]:
        """Aborted transactions among the records that a read from `start_offset` returned."""
        active = self._local.segments.active
        if not info.records or (info.segment_base_offset == active.base_offset and active.known_without_aborted):
            return ()
        return self.aborted_transactions(start_offset, self.read_end_bound(info))

    def read_end_bound(self, info: ReadInfo[Chunk]) -> int:
        """An offset at or past the end of what a read returned: the upper bound for :meth:`aborted_transactions`."""
        segment = self._local.segments.floor(info.segment_base_offset)
        if segment is None:
            return self._local.end_offset
        with self._health.disk_errors("read an index of"):
            bound = segment.offset_index.upper_bound(info.position + len(info.records))
        return segment.next_offset if bound is None else bound

    def aborted_transactions(self, start_offset: int, up_to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in `[start_offset, up_to_offset)` of the local log."""
        aborted: list[AbortedTxn] = []
        with self._health.disk_errors("read the transaction index of"):
            for segment in self._local.segments.from_offset(start_offset):
                part, complete = search_aborted(segment.aborted_transactions, start_offset, up_to_offset)
                aborted.extend(part)
                if complete:
                    break
        return aborted

    def offset_by_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first local record at or past log start with at least this timestamp."""
        self._health.check_online()
        with self._health.disk_errors("search"):
            return first_at_or_after(self._local.segments, timestamp, self._offsets.log_start)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The local record with the largest timestamp (ListOffsets -3)."""
        self._health.check_online()
        with self._health.disk_errors("search"):
            return latest_timestamp(self._local.segments)
