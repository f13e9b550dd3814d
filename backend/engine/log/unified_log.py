"""The log of one partition: local segments, leader epochs, producers, offsets (`UnifiedLog` of Kafka; KIP-405).

    log start <= local log start <= high watermark <= log end

The records of `[log start, local log start)` are only in the remote tier. Nothing here waits: fsync of sealed
segments, removal of deleted files and checkpoints are done by `log_manager` on worker threads. Failures of the disk and
bytes that cannot be right take the partition offline: every later call raises KAFKA_STORAGE_ERROR with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from backend.engine.log.leader_epoch_cache import UNDEFINED_EPOCH
from backend.engine.log.local_log import ReadInfo
from backend.engine.log.log_errors import CorruptLog, DamagedIndex, OffsetOutOfRange, UnexpectedAppendOffset
from backend.engine.log.log_storage import LogStorage
from backend.engine.log.recovery.segment_recovery import end_txn_marker_of, feed_producers
from backend.engine.log.segments.log_segment import BatchEntry, LogSegment
from backend.engine.log.segments.timestamp_search import TimestampedOffset, first_at_or_after, latest_timestamp
from backend.engine.log.segments.transaction_index import AbortedTxn, search_aborted
from backend.engine.log.validation.produced_batch import ValidatedBatch, validate_produced
from backend.engine.log.validation.trusted_batches import validate_fetched, validate_trusted
from backend.protocol.buffers import Chunk
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.compression import DECOMPRESSED_BYTES_MAX
from backend.protocol.record_batches.record_batch import BatchHeader, patch_offset_and_epoch

Origin = Literal["client", "coordinator", "raft"]

R = TypeVar("R", bound=Chunk)

_log = logging.getLogger(__name__)


class AppendInfo(NamedTuple):
    """The result of an append. Offsets are -1 when there was nothing to append."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int  # -1 unless the topic uses log append time
    log_start_offset: int
    size_bytes: int = 0
    duplicate: bool = False  # an idempotent batch that is in the log already; offsets are those of then
    decompressed_bytes: int = 0  # what its validation took


class UnifiedLog(LogStorage):
    """One partition's log. Build with `loader.open_log`. All calls on the loop's thread.

    `LogState` has its offsets and failures, `LogStorage` what happens to its files; here records come and go.
    """

    # --- append

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = "client",
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> AppendInfo:
        """Gives the records their offsets and writes them.

        A client's records are one batch and are validated as Kafka does (see `validation`); those of a coordinator or
        of the metadata quorum are batches of our own making. The buffer is patched in place when it is writable.
        """
        self.check_online()
        if origin != "client":
            return self._append_own(records, leader_epoch, now_ms)
        batch = validate_produced(
            records,
            self._local.config,
            self.topic_partition,
            now_ms=now_ms,
            decompressed_bytes_max=decompressed_bytes_max,
        )
        return self._append_validated(batch, leader_epoch, now_ms)

    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, *, now_ms: int) -> AppendInfo:
        """The second half of `append_as_leader` for a client's batch, which :func:`validate_produced` found good; that
        half may have been done elsewhere meanwhile, and needs the log's settings alone.
        """
        self.check_online()
        return self._append_validated(batch, leader_epoch, now_ms)

    def _append_validated(self, batch: ValidatedBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        config = self._local.config
        records, header, decompressed_bytes = batch
        if header.producer_id >= 0:
            duplicate = self._duplicate(header)
            if duplicate is not None:
                return duplicate
            self.producer_state.check(header)
        offset = self._local.end_offset
        last_offset = offset + header.last_offset_delta
        patch_offset_and_epoch(records, 0, offset, leader_epoch)
        entry = BatchEntry(last_offset, header.size_bytes, header.max_timestamp)
        segment = self._write(records, (entry,), offset, header.max_timestamp, now_ms)
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.assign_epoch_start_offset(leader_epoch, offset)
        if header.producer_id >= 0:
            self._feed(header._replace(base_offset=offset), records, 0, segment)
        self.producer_state.map_end_offset = last_offset + 1
        append_time = now_ms if config.is_log_append_time else -1
        return AppendInfo(
            offset,
            last_offset,
            header.max_timestamp,
            append_time,
            self._log_start_offset,
            header.size_bytes,
            False,
            decompressed_bytes,
        )

    def _duplicate(self, header: BatchHeader) -> AppendInfo | None:
        appended = self.producer_state.duplicate_of(header)
        if appended is None:
            return None
        append_time = appended.timestamp_ms if self.config.is_log_append_time else -1
        start = self._log_start_offset
        return AppendInfo(
            appended.first_offset, appended.last_offset, appended.timestamp_ms, append_time, start, duplicate=True
        )

    def _append_own(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        if records.readonly:
            records = memoryview(bytearray(records))
        records, batches = validate_trusted(records)
        if not batches:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"There is no whole batch to append to {self}")
        offset = self.log_end_offset
        placed: list[tuple[int, BatchHeader]] = []
        for position, header in batches:
            if header.producer_id >= 0:
                self._check_own(records, position, header)
            patch_offset_and_epoch(records, position, offset, leader_epoch)
            placed.append((position, header._replace(base_offset=offset, leader_epoch=leader_epoch)))
            offset += header.last_offset_delta + 1
        return self._append_placed(records, placed, now_ms)

    def _check_own(self, records: memoryview, position: int, header: BatchHeader) -> None:
        marker = end_txn_marker_of(records, position) if header.is_control else None
        if marker is not None:
            self.producer_state.check_marker(header, marker)
        else:
            self.producer_state.check_epoch(header)

    def append_as_follower(self, records: memoryview, leader_epoch: int, *, now_ms: int = 0) -> AppendInfo:
        """Writes batches of the leader as they are; a batch cut off at the end is ignored.

        Batches of an epoch above `leader_epoch`, the one known when they were fetched, are left out with all that
        follow. An empty log whose start lies inside the first batch, where DeleteRecords has put the leader's, goes
        back to that batch's first offset (`Partition.doAppendRecordsToFollowerOrFutureReplica`). Raises
        CORRUPT_MESSAGE, INVALID_RECORD, or `UnexpectedAppendOffset` when they start below the log end otherwise.
        """
        self.check_online()
        records, batches = validate_fetched(records, leader_epoch)
        if not batches:
            return AppendInfo(-1, -1, -1, -1, self._log_start_offset)
        first, end = batches[0][1], self.log_end_offset
        first_offset = first.base_offset
        if first_offset < end:
            if end == self._log_start_offset and end <= first_offset + first.last_offset_delta:
                self.truncate_fully_and_start_at(first_offset)
                return self._append_placed(records, batches, now_ms)
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {self}: {first_offset} is below the log end {end}"
            )
        return self._append_placed(records, batches, now_ms)

    def _append_placed(
        self, records: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int
    ) -> AppendInfo:
        entries = [BatchEntry(h.base_offset + h.last_offset_delta, h.size_bytes, h.max_timestamp) for _, h in batches]
        first_offset, last_offset = batches[0][1].base_offset, entries[-1].last_offset
        maximum = max([entry.max_timestamp for entry in entries])
        segment = self._write(records, entries, first_offset, maximum, now_ms)
        epoch = self.leader_epochs.latest_epoch
        for position, header in batches:
            if header.leader_epoch != epoch and header.leader_epoch >= 0:
                epoch = header.leader_epoch
                self.assign_epoch_start_offset(epoch, header.base_offset)
            if header.producer_id >= 0:
                self._feed(header, records, position, segment)
        self.producer_state.map_end_offset = last_offset + 1
        return AppendInfo(first_offset, last_offset, maximum, -1, self._log_start_offset, len(records))

    def _write(
        self, records: memoryview, entries: Sequence[BatchEntry], first_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        local = self._local
        try:
            if self.leader_epochs.begun:
                self.leader_epochs.save_begun()
            if local.must_roll(len(records), timestamp, entries[-1].last_offset, now_ms):
                if self.flush_before_roll:
                    self.flush()
                self.roll(first_offset)
            segment = local.append(records, entries, now_ms)
            if local.end_offset - self.recovery_point >= local.config.flush_messages:
                self.flush()
        except (OSError, CorruptLog) as error:
            raise self._not_written("append to", error) from error
        if self._disk_full:
            self._disk_full = False
            _log.info("Partition %s takes records again", self)
        return segment

    def _feed(self, header: BatchHeader, records: memoryview, position: int, segment: LogSegment) -> None:
        with self._disk_errors("write the transaction index of"):
            feed_producers(self.producer_state, header, records, position, segment)

    # --- read

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
        self.check_online()
        local = self._local
        first = local.segments.first_base_offset
        if start_offset > local.end_offset or start_offset < self._log_start_offset or start_offset < first:
            raise OffsetOutOfRange(
                f"Received request for offset {start_offset} for partition {self}, "
                f"but we only have log segments from offset {first} up to {local.end_offset}"
            )
        try:
            return read(start_offset, max_bytes, up_to_offset, min_one_message)
        except DamagedIndex as error:
            self.note_damaged_index(error)
            raise
        except (OSError, CorruptLog) as error:
            raise self._failed("read", error) from error

    def aborted_in(self, start_offset: int, info: ReadInfo[Chunk]) -> Sequence[AbortedTxn]:
        """Aborted transactions among the records that a read from `start_offset` returned."""
        active = self.segments.active
        if not info.records or (info.segment_base_offset == active.base_offset and active.known_without_aborted):
            return ()
        return self.aborted_transactions(start_offset, self.read_end_bound(info))

    def read_end_bound(self, info: ReadInfo[Chunk]) -> int:
        """An offset at or past the end of what a read returned: the upper bound for :meth:`aborted_transactions`."""
        segment = self.segments.floor(info.segment_base_offset)
        if segment is None:
            return self.log_end_offset
        with self._disk_errors("read an index of"):
            bound = segment.offset_index.upper_bound(info.position + len(info.records))
        return segment.next_offset if bound is None else bound

    def aborted_transactions(self, start_offset: int, up_to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in `[start_offset, up_to_offset)` of the local log."""
        aborted: list[AbortedTxn] = []
        with self._disk_errors("read the transaction index of"):
            for segment in self.segments.from_offset(start_offset):
                part, complete = search_aborted(segment.aborted_transactions, start_offset, up_to_offset)
                aborted.extend(part)
                if complete:
                    break
        return aborted

    def offset_by_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first local record at or past log start with at least this timestamp."""
        self.check_online()
        with self._disk_errors("search"):
            return first_at_or_after(self.segments, timestamp, self._log_start_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The local record with the largest timestamp (ListOffsets -3)."""
        self.check_online()
        with self._disk_errors("search"):
            return latest_timestamp(self.segments)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch <= the one asked for; (-1, -1) when undefined."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    @property
    def last_record_epoch(self) -> int:
        """Leader epoch of the last record, -1 when there was none: of two logs the one with the higher epoch is the
        better one, and of those with the same one the longer. An epoch that has begun without a record does not count.
        """
        if self.log_end_offset == 0:
            return UNDEFINED_EPOCH
        epoch = self.leader_epochs.epoch_for_offset(self.log_end_offset - 1)
        if epoch is None and self.leader_epochs.earliest_entry is not None:
            # All records are deleted; what is left of the entries says in which epoch the last one was written.
            epoch = self.leader_epochs.earliest_entry[0]
        return UNDEFINED_EPOCH if epoch is None else epoch
