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
from typing import Final

from backend.engine.log.epoch_checkpoint import EpochCheckpoint
from backend.engine.log.index_repair import IndexRepair
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import LocalLog
from backend.engine.log.local_reader import LocalReader
from backend.engine.log.local_retention import LocalRetention
from backend.engine.log.log_appender import AppendInfo, LogAppender, Origin
from backend.engine.log.log_cleaning import LogCleaning
from backend.engine.log.log_config import INT64_MAX, LogConfig, is_remote_enabled
from backend.engine.log.log_errors import FULL_ERRNOS, OffsetOutOfRange
from backend.engine.log.log_flusher import LogFlusher
from backend.engine.log.log_health import LogHealth
from backend.engine.log.log_offsets import LogOffsets
from backend.engine.log.log_truncation import LogTruncation
from backend.engine.log.partition_folder import PartitionFolder
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.segments.log_segment import LogSegment
from backend.engine.log.segments.log_segments import LogSegments
from backend.engine.log.validation.produced_batch import ValidatedBatch
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.protocol.record_batches.compression import DECOMPRESSED_BYTES_MAX
from backend.tiering.ids import TopicIdPartition


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
    """One partition's log, composed of its parts. Build with `log_loader.open_log`. All calls on the loop's thread.

    Parts for others: `reader` reads, `health` has the failures, `flusher` knows what is on the device, `leader_epochs`
    are kept on disk by `epoch_checkpoint`, `producer_state` has the producers, `cleaning` the state of compaction;
    `index_repair` makes damaged indexes again, `folder` renames the folder. Parts behind the methods: `LocalLog` has
    the segments, `LogOffsets` the offsets, `LogAppender` appends, `LogTruncation` drops the newest records,
    `LocalRetention` chooses the oldest ones to drop. Each part alone changes its values.
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
        self._listener = listener
        self.topic_id_partition = topic_id_partition
        # Checkpoints and lists of all logs are made of it every few seconds: once made, it costs nothing.
        self.topic_partition = topic_id_partition.topic_partition
        self.remote_system_enabled = remote_system_enabled
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        partition, on_work = self.topic_partition, partial(listener.on_work, self)
        self._local = local = LocalLog(disk, random, log_dir, segments, config, on_work, self._unreadable)
        self.health = health = LogHealth(partition, local, partial(listener.on_offline, self), on_work)
        local_start = max(log_start_offset, segments.first_base_offset)
        log_start = log_start_offset if self.remote_enabled else local_start
        self._offsets = offsets = LogOffsets(log_start, local_start, listener.on_high_watermark)
        self.reader = LocalReader(partition, local, offsets, health)
        self._retention = LocalRetention(local, offsets)
        self.flusher = LogFlusher(local, leader_epochs, producer_state, health, recovery_point)
        self.index_repair = IndexRepair(local, leader_epochs, producer_state, health)
        self.epoch_checkpoint = EpochCheckpoint(local, leader_epochs, health, lost=epochs_lost)
        self.cleaning = LogCleaning(local, producer_state, health)
        self.folder = PartitionFolder(partition, local, leader_epochs, producer_state, health, random)
        writers = (partition, local, offsets, leader_epochs, producer_state, health, self.flusher)
        self._truncation = LogTruncation(*writers, self.cleaning)
        self._appender = LogAppender(
            *writers, self._truncation, self.epoch_checkpoint, flush_before_roll=flush_before_roll
        )

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
        self._offsets.move_highest_remote(offset)

    def forget_highest_remote_offset(self) -> None:
        """The topic is not tiered any more: what was copied does not count if it ever is again."""
        self._offsets.forget_highest_remote()

    def update_high_watermark(self, offset: int) -> bool:
        """Sets it, moved into `[log start, log end]`; True when it changed. May lower it."""
        moved = self._offsets.move_high_watermark(offset, self._local.end_offset)
        if moved:
            self.producer_state.on_high_watermark(self._offsets.high_watermark)
        return moved

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raises it; True when it moved. A value past the log end is the caller's mistake."""
        if offset > self._local.end_offset:
            raise ValueError(f"high watermark {offset} of {self} is past its log end {self.log_end_offset}")
        return offset > self._offsets.high_watermark and self.update_high_watermark(offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raises log start, and local start with it; True when it moved.

        Raises OFFSET_OUT_OF_RANGE past the high watermark. A full disk is no reason not to: then
        :meth:`EpochCheckpoint.require_saved` raises where it would not outlast a restart.
        """
        self.check_online()
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset of {self} to {offset}, "
                f"past its high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self._offsets.move_log_start(offset)
        self.flusher.move_log_start(offset)
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
        self._offsets.move_local_log_start(offset)
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

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch <= the one asked for; (-1, -1) when undefined."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    @property
    def last_record_epoch(self) -> int:
        """Leader epoch of the last record, -1 when there was none: of two logs the one with the higher epoch is the
        better one, and of those with the same one the longer. An epoch that has begun without a record does not count.
        """
        return self.leader_epochs.epoch_of_last_record(self.log_end_offset)

    # --- append and truncation

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = "client",
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> AppendInfo:
        """See :meth:`LogAppender.append_as_leader`."""
        return self._appender.append_as_leader(
            records, leader_epoch, now_ms=now_ms, origin=origin, decompressed_bytes_max=decompressed_bytes_max
        )

    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, *, now_ms: int) -> AppendInfo:
        """See :meth:`LogAppender.append_validated`."""
        return self._appender.append_validated(batch, leader_epoch, now_ms=now_ms)

    def append_as_follower(self, records: memoryview, leader_epoch: int, *, now_ms: int = 0) -> AppendInfo:
        """See :meth:`LogAppender.append_as_follower`."""
        return self._appender.append_as_follower(records, leader_epoch, now_ms=now_ms)

    def roll(self, expected_base: int | None = None) -> LogSegment:
        """See :meth:`LogAppender.roll`."""
        return self._appender.roll(expected_base)

    @property
    def truncations(self) -> int:
        """How often the log was truncated."""
        return self._truncation.count

    def truncate_to(self, offset: int) -> bool:
        """See :meth:`LogTruncation.truncate_to`."""
        return self._truncation.truncate_to(offset, remote_enabled=self.remote_enabled)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """See :meth:`LogTruncation.truncate_fully_and_start_at`."""
        self._truncation.truncate_fully_and_start_at(offset, log_start_offset)

    # --- segments

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

    def take_deleted_paths(self) -> list[str]:
        """Files renamed to `.deleted` since the last call; the caller removes them after `file.delete.delay.ms`."""
        return self._local.take_deleted_paths()

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
        self.flusher.flush()

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

    def take_over(self, other: UnifiedLog) -> None:
        """Becomes what `other` is: this log holds the same records up to the same log end, in another folder."""
        self._offsets.take_over(other._offsets, self.segments.first_base_offset)
        self.remote_system_enabled = other.remote_system_enabled
        self.cleaning.checkpoint = other.cleaning.checkpoint
        self.flusher.note_topic_id()
        self.producer_state.take_over(other.producer_state)
        self.epoch_checkpoint.replace(other.leader_epochs.entries)
