"""The log of one partition: local segments, leader epochs, producers, offsets (`UnifiedLog` of Kafka; KIP-405).

    log start <= local log start <= high watermark <= log end

The records of `[log start, local log start)` are only in the remote tier. Nothing here waits: fsync of sealed
segments, removal of deleted files and checkpoints are done by `log_manager` on worker threads. Failures of the disk and
bytes that cannot be right take the partition offline: every later call raises KAFKA_STORAGE_ERROR with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple

from backend.engine.log.file_names import DAMAGED_EPOCH_FILE, LEADER_EPOCH_FILE, dir_name_for_delete
from backend.engine.log.index_repair import IndexRepair
from backend.engine.log.leader_epoch_cache import UNDEFINED_EPOCH, LeaderEpochCache
from backend.engine.log.local_log import LocalLog, sync_files
from backend.engine.log.local_reader import LocalReader
from backend.engine.log.local_retention import LocalRetention
from backend.engine.log.log_config import INT64_MAX, LogConfig, is_remote_enabled
from backend.engine.log.log_errors import (
    FULL_ERRNOS,
    CorruptLog,
    OffsetOutOfRange,
    UnexpectedAppendOffset,
)
from backend.engine.log.log_flusher import LogFlusher
from backend.engine.log.log_health import LogHealth
from backend.engine.log.log_offsets import NO_REMOTE_OFFSET, LogOffsets
from backend.engine.log.manager.stray_replicas import set_aside
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.recovery.segment_recovery import end_txn_marker_of, feed_producers, rebuild_producer_state
from backend.engine.log.segments.log_segment import BatchEntry, LogSegment
from backend.engine.log.segments.log_segments import LogSegments
from backend.engine.log.validation.produced_batch import ValidatedBatch, validate_produced
from backend.engine.log.validation.trusted_batches import validate_fetched, validate_trusted
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.compression import DECOMPRESSED_BYTES_MAX
from backend.protocol.record_batches.record_batch import BatchHeader, patch_offset_and_epoch
from backend.tiering.ids import TopicIdPartition

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


def _ignore(*_: object) -> None:
    """Nobody follows the event."""


@dataclass(frozen=True, slots=True)
class LogListener:
    """The events of a log that its owner follows. Kafka: `LogOffsetsListener`; for failures `LogDirFailureChannel`.

    Called in the middle of the log's own change, and on a worker thread while a log is opened or closed there: a
    listener only notes the event.
    """

    on_offline: Callable[[UnifiedLog, str], None] = _ignore  # with the reason; at most once for each log
    on_log_start: Callable[[UnifiedLog], None] = _ignore  # the log start was raised
    on_high_watermark: Callable[[], None] = _ignore  # some log has another high watermark
    on_work: Callable[[UnifiedLog], None] = _ignore  # `has_work` may have become true; not for a new topic id


IGNORE_EVENTS: Final = LogListener()


class UnifiedLog:
    """One partition's log. Build with `log_loader.open_log`. All calls on the loop's thread.

    Records are appended and dropped here. Its parts: `LocalLog` has the segments, `LogOffsets` the offsets; `reader` is
    for those who read, `health` has the failures, `flusher` knows what is on the device, `index_repair` makes damaged
    indexes again.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        random: Random,
        log_dir: str,
        topic_id_partition: TopicIdPartition,
        config: LogConfig,
        segments: LogSegments,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        log_start_offset: int,
        recovery_point: int,
        remote_system_enabled: bool,
        epochs_lost: bool = False,
        flush_before_roll: bool = False,
        listener: LogListener = IGNORE_EVENTS,
    ) -> None:
        self._disk = disk
        self._random = random
        self._listener = listener
        self.topic_id_partition = topic_id_partition
        # Checkpoints and lists of all logs are made of it every few seconds: once made, it costs nothing.
        self.topic_partition = topic_id_partition.topic_partition
        self.remote_system_enabled = remote_system_enabled
        self.leader_epochs = leader_epochs
        # Whether a damaged checkpoint was made again from what is local: what is remote has epochs that are not here.
        self.epochs_lost = epochs_lost
        self.producer_state = producer_state
        on_work = partial(listener.on_work, self)
        self._local = LocalLog(disk, random, log_dir, segments, config, on_work, self._unreadable)
        self.health = LogHealth(self.topic_partition, self._local, partial(listener.on_offline, self), on_work)
        local_start = max(log_start_offset, segments.first_base_offset)
        log_start = log_start_offset if self.remote_enabled else local_start
        self._offsets = LogOffsets(log_start, local_start, listener.on_high_watermark)
        self.reader = LocalReader(self.topic_partition, self._local, self._offsets, self.health)
        self._retention = LocalRetention(self._local, self._offsets)
        self.flusher = LogFlusher(self._local, leader_epochs, producer_state, self.health, recovery_point)
        self.index_repair = IndexRepair(self._local, leader_epochs, producer_state, self.health)
        # The metadata log: only its last segment may be torn by a power failure, whatever it has promised.
        self._flush_before_roll = flush_before_roll
        # Compaction: first offset that has never been cleaned (None: all), how often the log was truncated, and whether
        # a cleaning is under way, during which retention waits.
        self.cleaner_checkpoint: int | None = None
        self.truncations = 0
        self.cleaning = False
        # Whether cleaning has to wait, since the log is being moved to another directory.
        self.cleaning_paused = False

    def __str__(self) -> str:
        return str(self.topic_partition)

    @property
    def dir(self) -> str:
        """The partition's folder."""
        return self._local.dir

    @property
    def config(self) -> LogConfig:
        """May be replaced at any time."""
        return self._local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._local.config = config
        self._listener.on_work(self)

    @property
    def remote_enabled(self) -> bool:
        """Whether this log may have a remote part.

        The broker's and the topic's switch are on, and the topic is neither compacted nor internal.
        """
        return self.remote_system_enabled and is_remote_enabled(self.topic_id_partition.topic, self.config)

    @property
    def segments(self) -> LogSegments:
        """Ordered; not to be changed."""
        return self._local.segments

    @property
    def active_segment(self) -> LogSegment:
        return self._local.segments.active

    @property
    def size_bytes(self) -> int:
        """Bytes of the local `.log` files."""
        return self._local.segments.size_bytes

    @property
    def only_local_segments(self) -> list[LogSegment]:
        """Segments that start at or past the highest remote offset (KIP-405 metrics and size retention)."""
        highest = self._offsets.highest_remote
        return [segment for segment in self.segments if segment.base_offset >= highest]

    # --- failures

    @property
    def offline_reason(self) -> str | None:
        """Why the log cannot be used; None when it can."""
        return self.health.offline_reason

    def mark_offline(self, reason: str) -> None:
        """From now on every call raises KAFKA_STORAGE_ERROR with the first reason given."""
        self.health.mark_offline(reason)

    def check_online(self) -> None:
        """KAFKA_STORAGE_ERROR when the log's disk failed."""
        self.health.check_online()

    def _unreadable(self, error: OSError) -> None:
        """Takes the log offline: records could not be read while they were being sent."""
        self.health.failed("read", error)

    # --- offsets

    @property
    def log_start_offset(self) -> int:
        """First offset of the partition, remote part included."""
        return self._offsets.log_start

    @property
    def local_log_start_offset(self) -> int:
        """First offset on the local disk."""
        return self._offsets.local_log_start if self.remote_enabled else self._offsets.log_start

    @property
    def log_end_offset(self) -> int:
        """The next offset to be written."""
        return self._local.end_offset

    @property
    def high_watermark(self) -> int:
        """Offsets below are replicated to the in-sync replicas."""
        return self._offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offsets below are replicated and belong to no open transaction."""
        unstable, high_watermark = self.producer_state.first_unstable_offset, self._offsets.high_watermark
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self._offsets.log_start)

    @property
    def highest_remote_offset(self) -> int:
        """Last offset known to be in the remote tier, -1 when none is; never persisted."""
        return self._offsets.highest_remote

    @property
    def recovery_point(self) -> int:
        """Records below are on the device."""
        return self.flusher.recovery_point

    def update_highest_remote_offset(self, offset: int) -> None:
        """Only moves up; a truncation below it takes it back."""
        self._offsets.highest_remote = max(self._offsets.highest_remote, offset)

    def forget_highest_remote_offset(self) -> None:
        """The topic is not tiered any more: what was copied does not count if it ever is again."""
        self._offsets.highest_remote = NO_REMOTE_OFFSET

    def update_high_watermark(self, offset: int) -> bool:
        """Sets it, moved into `[log start, log end]`; True when it changed. May lower it."""
        offsets = self._offsets
        clamped = min(max(offset, offsets.log_start), self._local.end_offset)
        if clamped == offsets.high_watermark:
            return False
        offsets.set_high_watermark(clamped)
        self.producer_state.on_high_watermark(clamped)
        return True

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raises it; True when it moved. A value past the log end is the caller's mistake."""
        if offset > self._local.end_offset:
            raise ValueError(f"high watermark {offset} of {self} is past its log end {self.log_end_offset}")
        return offset > self._offsets.high_watermark and self.update_high_watermark(offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raises log start, and local start with it; True when it moved.

        Raises OFFSET_OUT_OF_RANGE past the high watermark. A full disk is no reason not to: then
        :meth:`require_saved_epochs` raises where it would not outlast a restart.
        """
        self.check_online()
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset of {self} to {offset}, "
                f"past its high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self._offsets.raise_log_start(offset)
        self.flusher.recovery_point = max(self.flusher.recovery_point, offset)
        with self.health.disk_errors("raise the log start of"):
            try:
                self.leader_epochs.truncate_from_start(offset)
            except OSError as error:
                # On a full disk the file keeps the entries below the log start; its readers leave them out.
                if error.errno not in FULL_ERRNOS:
                    raise
            self.producer_state.on_log_start(offset)
        self._listener.on_log_start(self)
        return True

    def maybe_increment_local_log_start_offset(self, offset: int) -> bool:
        """Raises local start only (tiered topics); True when it moved."""
        if offset <= self.local_log_start_offset:
            return False
        self._offsets.local_log_start = offset
        return True

    def check(self) -> None:
        """Invariants; AssertionError when one is broken."""
        bases = [segment.base_offset for segment in self.segments]
        assert 0 <= self.log_start_offset <= self.local_log_start_offset <= self.log_end_offset, self.describe()
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark, self.describe()
        assert self.high_watermark <= self.log_end_offset == self.active_segment.next_offset, self.describe()
        assert bases == sorted(set(bases)), bases

    def describe(self) -> str:
        """All offsets on one line, for messages."""
        return (
            f"{self}: log start {self.log_start_offset}, local start {self.local_log_start_offset}, "
            f"high watermark {self.high_watermark}, log end {self.log_end_offset}, "
            f"remote up to {self.highest_remote_offset}, {len(self.segments)} segments"
        )

    # --- leader epochs

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Notes where a leader's epoch starts."""
        with self.health.disk_errors("write the leader epochs of"):
            self.leader_epochs.assign(epoch, start_offset)

    def require_saved_epochs(self) -> None:
        """Sees to it that a restart finds the log start: before what lies below it goes from the remote tier.

        Raises NoSpace.
        """
        self.check_online()
        try:
            self.leader_epochs.save_again()
        except OSError as error:
            raise self.health.no_space("write the leader epochs of", error) from error

    def found_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        """The leader epochs that a damaged checkpoint had, as far as they are known again: it counts from now on."""
        with self.health.disk_errors("write the leader epochs of"):
            self.leader_epochs.prepend(entries)
            self._disk.remove(f"{self.dir}/{DAMAGED_EPOCH_FILE}")
        self.epochs_lost = False

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
        self.health.check_online()
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
        self.health.check_online()
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
            self._offsets.log_start,
            header.size_bytes,
            False,
            decompressed_bytes,
        )

    def _duplicate(self, header: BatchHeader) -> AppendInfo | None:
        appended = self.producer_state.duplicate_of(header)
        if appended is None:
            return None
        append_time = appended.timestamp_ms if self.config.is_log_append_time else -1
        start = self._offsets.log_start
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
        self.health.check_online()
        records, batches = validate_fetched(records, leader_epoch)
        if not batches:
            return AppendInfo(-1, -1, -1, -1, self._offsets.log_start)
        first, end = batches[0][1], self.log_end_offset
        first_offset = first.base_offset
        if first_offset < end:
            if end == self._offsets.log_start and end <= first_offset + first.last_offset_delta:
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
        return AppendInfo(first_offset, last_offset, maximum, -1, self._offsets.log_start, len(records))

    def _write(
        self, records: memoryview, entries: Sequence[BatchEntry], first_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        local = self._local
        try:
            if self.leader_epochs.begun:
                self.leader_epochs.save_begun()
            if local.must_roll(len(records), timestamp, entries[-1].last_offset, now_ms):
                if self._flush_before_roll:
                    self.flush()
                self.roll(first_offset)
            segment = local.append(records, entries, now_ms)
            if local.end_offset - self.flusher.recovery_point >= local.config.flush_messages:
                self.flush()
        except (OSError, CorruptLog) as error:
            raise self.health.not_written("append to", error) from error
        if self.health.disk_full:
            self.health.written_again()
        return segment

    def _feed(self, header: BatchHeader, records: memoryview, position: int, segment: LogSegment) -> None:
        with self.health.disk_errors("write the transaction index of"):
            feed_producers(self.producer_state, header, records, position, segment)

    # --- segments

    def roll(self, expected_base: int | None = None) -> LogSegment:
        """Seals the active segment and starts a new one at the log end (or at `expected_base`, past a gap).

        An empty active segment at that offset is started afresh instead.
        """
        self.check_online()
        base = max(expected_base or 0, self.log_end_offset)
        try:
            segment = self._local.roll(base)
        except OSError as error:
            raise self.health.not_written("roll a segment of", error) from error
        with self.health.disk_errors("roll a segment of"):
            self.producer_state.map_end_offset = base
            self.producer_state.take_snapshot()
        return segment

    def delete_old_segments(self, now_ms: int) -> int:
        """Deletes local segments by log start, size and time; how many. On a tiered topic only local start moves."""
        self.check_online()
        remote_enabled = self.remote_enabled
        with self.health.disk_errors("apply retention to"):
            decision = self._retention.decide(now_ms, remote_enabled=remote_enabled)
            pending_delete = list(self.segments)[: decision.delete_count]
            if decision.roll or len(pending_delete) == len(self.segments):
                self.roll()
            if pending_delete:
                self._drop(pending_delete)
                start = self.segments.first_base_offset
                # Without copying (KIP-950) the deleted records have no remote copy: the log itself starts later.
                if remote_enabled and not self.config.remote_log_copy_disable:
                    self.maybe_increment_local_log_start_offset(start)
                else:
                    self.maybe_increment_log_start_offset(start)
        return len(pending_delete)

    def _drop(self, segments: Sequence[LogSegment]) -> None:
        self._local.drop(segments)
        for segment in segments:
            # The snapshot at a segment's base belongs to it; the one of the first segment left is still needed.
            self.producer_state.remove_snapshot(segment.base_offset)

    def replace_segments(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Puts a segment that compaction made in the place of the sealed ones that it was made of."""
        self.check_online()
        with self.health.disk_errors("swap a cleaned segment into"):
            self._local.replace(old, new)
            for segment in old[1:]:
                self.producer_state.remove_snapshot(segment.base_offset)

    def take_deleted_paths(self) -> list[str]:
        """Files renamed to `.deleted` since the last call; the caller removes them after `file.delete.delay.ms`."""
        return self._local.take_deleted_paths()

    # --- truncation

    def truncate_to(self, offset: int) -> bool:
        """Drops all records at or past `offset`; False when there were none.

        Below the first segment everything local goes; what is remote below `offset` stays, with its leader epochs.
        """
        self.check_online()
        if offset < 0:
            raise ValueError(f"{self} cannot be truncated to {offset}")
        with self.health.disk_errors("truncate"):
            if offset >= self.log_end_offset:
                # A leader that appended nothing may have left an epoch at the log end.
                self.leader_epochs.truncate_from_end(offset)
                return False
            if offset < self.segments.first_base_offset:
                if self.remote_enabled and offset > self.log_start_offset:
                    # Kafka forgets both here. As leader it would take what is remote for another lineage's.
                    self._start_over(offset, self.log_start_offset)
                    self.leader_epochs.truncate_from_end(offset)
                else:
                    self.truncate_fully_and_start_at(offset)
                return True
            self._truncate_tail(self._local.truncate_to(offset))
        return True

    def _truncate_tail(self, end: int) -> None:
        """Everything beside the segments follows: they end at `end` now."""
        self._note_truncation(end)
        self._offsets.truncate(end)
        self.leader_epochs.truncate_from_end(end)
        self.update_high_watermark(self.high_watermark)
        rebuild_producer_state(self.producer_state, self.segments, end, self.log_start_offset)
        # It may have read the markers of transactions again that have long been stable.
        self.producer_state.on_high_watermark(self.high_watermark)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drops everything; the log goes on at `offset`, with an empty epoch cache and no producers.

        `log_start_offset` is given when the records below `offset` are in the remote tier.
        """
        self.check_online()
        with self.health.disk_errors("truncate"):
            self._start_over(offset, offset if log_start_offset is None else log_start_offset)
            self.leader_epochs.clear()

    def _start_over(self, offset: int, log_start_offset: int) -> None:
        self._local.replace_all(offset)
        self._note_truncation(offset)
        self.producer_state.truncate_fully(offset)
        self._offsets.start_over(offset, log_start_offset)

    def _note_truncation(self, end_offset: int) -> None:
        self.truncations += 1
        self.flusher.recovery_point = min(self.flusher.recovery_point, end_offset)
        if self.cleaner_checkpoint is not None:
            self.cleaner_checkpoint = min(self.cleaner_checkpoint, end_offset)

    # --- durability and end

    @property
    def has_work(self) -> bool:
        """Whether housekeeping has anything to look at (see `LogListener.on_work`)."""
        local, flusher = self._local, self.flusher
        return (
            flusher.topic_id_dirty
            or bool(self.health.damaged_indexes)
            or local.has_deleted_paths
            or local.config.flush_ms < INT64_MAX
            or flusher.recovery_point < local.segments.active.base_offset
        )

    def flush(self) -> None:
        """Everything appended reaches the device before this returns."""
        self.check_online()
        work = self.flusher.work()
        if work is not None:
            with self.health.disk_errors("flush"):
                sync_files(self._disk, work)
            self.flusher.done(work)

    def close(self) -> None:
        """Clean end: indexes, producer snapshot and data reach the device. The log must not be used again."""
        if self.offline_reason is None:
            with self.health.disk_errors("close"):
                self.active_segment.write_indexes()
                self.producer_state.map_end_offset = self.log_end_offset
                self.producer_state.take_snapshot()
                self.flush()
        self.close_files()

    def close_files(self) -> None:
        """Closes descriptors without writing anything."""
        self._local.close_files()

    def abandon(self, reason: str) -> str:
        """Closes descriptors without writing anything, for good; the folder to be removed."""
        self.close_files()
        self.health.retire(reason)
        return self.dir

    def rename_dir(self, log_dir: str) -> None:
        """Gives the folder another name on the same file system; the log stays in use."""
        with self.health.disk_errors("rename the folder of"):
            self._local.rename_dir(log_dir)
        path = f"{log_dir}/{LEADER_EPOCH_FILE}"
        self.leader_epochs.save_with(lambda data: self._disk.write_atomic(path, data, sync=False))
        self.producer_state.moved_to(log_dir)

    def take_over(self, other: UnifiedLog) -> None:
        """Becomes what `other` is: this log holds the same records up to the same log end, in another folder."""
        self._offsets.take_over(other._offsets, self.segments.first_base_offset)
        self.remote_system_enabled = other.remote_system_enabled
        self.cleaner_checkpoint, self.flusher.topic_id_dirty = other.cleaner_checkpoint, True
        self.producer_state.take_over(other.producer_state)
        with self.health.disk_errors("write the leader epochs of"):
            self.leader_epochs.clear()
            self.leader_epochs.assign_all(other.leader_epochs.entries)

    def rename_for_delete(self) -> str:
        """Closes the log and renames its folder to `…-delete`; returns the new path, to be removed later."""
        self.close_files()
        parent = self.dir.rpartition("/")[0]
        target = f"{parent}/{dir_name_for_delete(self.topic_partition, self._random.uuid())}"
        self._disk.rename(self.dir, target)
        self._local.dir = target
        self.health.retire("its topic or replica is deleted")
        return target

    def set_aside(self, reason: str, now_ms: int) -> str:
        """Closes the log for good and renames its folder to `…-stray`, where it is kept; returns the new path."""
        self.close_files()
        self.health.retire(self.offline_reason or f"it is set aside: {reason}")
        target = set_aside(self._disk, self.dir, self.topic_partition, self._random.uuid(), reason, now_ms)
        self._local.dir = target
        return target

    def delete(self) -> None:
        """Removes the folder (blocking; on a worker thread)."""
        self.close_files()
        self._disk.remove_tree(self.dir)
