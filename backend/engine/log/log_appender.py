"""Appends to one partition's log: offsets, validation, leader epochs and producers (`UnifiedLog.append` of Kafka)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from backend.engine.log.epoch_checkpoint import EpochCheckpoint
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_errors import CorruptLog, UnexpectedAppendOffset
from backend.engine.log.log_flusher import LogFlusher
from backend.engine.log.log_health import LogHealth
from backend.engine.log.log_offsets import LogOffsets
from backend.engine.log.log_truncation import LogTruncation
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.recovery.segment_recovery import end_txn_marker_of, feed_producers
from backend.engine.log.segments.log_segment import BatchEntry, LogSegment
from backend.engine.log.validation.produced_batch import ValidatedBatch, validate_produced
from backend.engine.log.validation.trusted_batches import validate_fetched, validate_trusted
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.compression import DECOMPRESSED_BYTES_MAX
from backend.protocol.record_batches.record_batch import BatchHeader, patch_offset_and_epoch
from backend.tiering.ids import TopicPartition

Origin = Literal["client", "coordinator", "raft"]


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


class LogAppender:
    """The writers' side of one log. A failure of the disk takes the log offline, a full disk does not."""

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        offsets: LogOffsets,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        health: LogHealth,
        flusher: LogFlusher,
        truncation: LogTruncation,
        epoch_checkpoint: EpochCheckpoint,
        *,
        flush_before_roll: bool,
    ) -> None:
        """With `flush_before_roll` only the last segment may be torn by a power failure, whatever the log promises."""
        self._partition = partition
        self._local = local
        self._offsets = offsets
        self._leader_epochs = leader_epochs
        self._producer_state = producer_state
        self._health = health
        self._flusher = flusher
        self._truncation = truncation
        self._epoch_checkpoint = epoch_checkpoint
        self._flush_before_roll = flush_before_roll

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
        if self._health.offline_reason is not None:
            self._health.check_online()
        if origin != "client":
            return self._append_own(records, leader_epoch, now_ms)
        batch = validate_produced(
            records,
            self._local.config,
            self._partition,
            now_ms=now_ms,
            decompressed_bytes_max=decompressed_bytes_max,
        )
        return self.append_validated(batch, leader_epoch, now_ms=now_ms)

    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, *, now_ms: int) -> AppendInfo:
        """The second half of `append_as_leader` for a client's batch, which :func:`validate_produced` found good; that
        half may have been done elsewhere meanwhile, and needs the log's settings alone.
        """
        if self._health.offline_reason is not None:
            self._health.check_online()
        config = self._local.config
        records, header, decompressed_bytes = batch
        if header.producer_id >= 0:
            duplicate = self._duplicate(header)
            if duplicate is not None:
                return duplicate
            self._producer_state.check(header)
        offset = self._local.end_offset
        last_offset = offset + header.last_offset_delta
        patch_offset_and_epoch(records, 0, offset, leader_epoch)
        entry = BatchEntry(last_offset, header.size_bytes, header.max_timestamp)
        segment = self._write(records, (entry,), offset, header.max_timestamp, now_ms)
        if leader_epoch != self._leader_epochs.latest_epoch:
            self._epoch_checkpoint.assign(leader_epoch, offset)
        if header.producer_id >= 0:
            self._feed(header._replace(base_offset=offset), records, 0, segment)
        self._producer_state.map_end_offset = last_offset + 1
        append_time = now_ms if config.is_log_append_time else -1
        return AppendInfo(
            offset,
            last_offset,
            header.max_timestamp,
            append_time,
            self._offsets.log_start,
            header.size_bytes,
            False,
            decompressed_bytes,
        )

    def _duplicate(self, header: BatchHeader) -> AppendInfo | None:
        appended = self._producer_state.duplicate_of(header)
        if appended is None:
            return None
        append_time = appended.timestamp_ms if self._local.config.is_log_append_time else -1
        start = self._offsets.log_start
        return AppendInfo(
            appended.first_offset, appended.last_offset, appended.timestamp_ms, append_time, start, duplicate=True
        )

    def _append_own(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        if records.readonly:
            records = memoryview(bytearray(records))
        records, batches = validate_trusted(records)
        if not batches:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"There is no whole batch to append to {self._partition}")
        offset = self._local.end_offset
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
            self._producer_state.check_marker(header, marker)
        else:
            self._producer_state.check_epoch(header)

    def append_as_follower(self, records: memoryview, leader_epoch: int, *, now_ms: int = 0) -> AppendInfo:
        """Writes batches of the leader as they are; a batch cut off at the end is ignored.

        Batches of an epoch above `leader_epoch`, the one known when they were fetched, are left out with all that
        follow. An empty log whose start lies inside the first batch, where DeleteRecords has put the leader's, goes
        back to that batch's first offset (`Partition.doAppendRecordsToFollowerOrFutureReplica`). Raises
        CORRUPT_MESSAGE, INVALID_RECORD, or `UnexpectedAppendOffset` when they start below the log end otherwise.
        """
        self._health.check_online()
        records, batches = validate_fetched(records, leader_epoch)
        if not batches:
            return AppendInfo(-1, -1, -1, -1, self._offsets.log_start)
        first, end = batches[0][1], self._local.end_offset
        first_offset = first.base_offset
        if first_offset < end:
            if end == self._offsets.log_start and end <= first_offset + first.last_offset_delta:
                self._truncation.truncate_fully_and_start_at(first_offset)
                return self._append_placed(records, batches, now_ms)
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {self._partition}: {first_offset} is below the log end {end}"
            )
        return self._append_placed(records, batches, now_ms)

    def _append_placed(
        self, records: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int
    ) -> AppendInfo:
        entries = [BatchEntry(h.base_offset + h.last_offset_delta, h.size_bytes, h.max_timestamp) for _, h in batches]
        first_offset, last_offset = batches[0][1].base_offset, entries[-1].last_offset
        maximum = max([entry.max_timestamp for entry in entries])
        segment = self._write(records, entries, first_offset, maximum, now_ms)
        epoch = self._leader_epochs.latest_epoch
        for position, header in batches:
            if header.leader_epoch != epoch and header.leader_epoch >= 0:
                epoch = header.leader_epoch
                self._epoch_checkpoint.assign(epoch, header.base_offset)
            if header.producer_id >= 0:
                self._feed(header, records, position, segment)
        self._producer_state.map_end_offset = last_offset + 1
        return AppendInfo(first_offset, last_offset, maximum, -1, self._offsets.log_start, len(records))

    def _write(
        self, records: memoryview, entries: Sequence[BatchEntry], first_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        local = self._local
        try:
            if self._leader_epochs.begun:
                self._leader_epochs.save_begun()
            if local.must_roll(len(records), timestamp, entries[-1].last_offset, now_ms):
                if self._flush_before_roll:
                    self._flusher.flush()
                self.roll(first_offset)
            segment = local.append(records, entries, now_ms)
            if local.end_offset - self._flusher.recovery_point >= local.config.flush_messages:
                self._flusher.flush()
        except (OSError, CorruptLog) as error:
            raise self._health.not_written("append to", error) from error
        if self._health.disk_full:
            self._health.written_again()
        return segment

    def _feed(self, header: BatchHeader, records: memoryview, position: int, segment: LogSegment) -> None:
        with self._health.disk_errors("write the transaction index of"):
            feed_producers(self._producer_state, header, records, position, segment)

    def roll(self, expected_base: int | None = None) -> LogSegment:
        """Seals the active segment and starts a new one at the log end (or at `expected_base`, past a gap).

        An empty active segment at that offset is started afresh instead.
        """
        self._health.check_online()
        base = max(expected_base or 0, self._local.end_offset)
        try:
            segment = self._local.roll(base)
        except OSError as error:
            raise self._health.not_written("roll a segment of", error) from error
        with self._health.disk_errors("roll a segment of"):
            self._producer_state.map_end_offset = base
            self._producer_state.take_snapshot()
        return segment
