"""The log of one partition: local segments, leader epochs, producers, offsets (`UnifiedLog` of Kafka; KIP-405).

    log start <= local log start <= high watermark <= log end

The records of `[log start, local log start)` are only in the remote tier. Nothing here waits: fsync of sealed
segments, removal of deleted files and checkpoints are done by `log_manager` on worker threads. Failures of the disk and
bytes that cannot be right take the partition offline: every later call raises KAFKA_STORAGE_ERROR with the reason.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

from backend.engine.log.config import LogConfig
from backend.engine.log.errors import CorruptLog, NoSpace, OffsetOutOfRange, UnexpectedAppendOffset
from backend.engine.log.leader_epochs import LeaderEpochCache
from backend.engine.log.local_log import FlushWork, LocalLog, ReadInfo, sync_files
from backend.engine.log.names import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, dir_name_for_delete
from backend.engine.log.producer_state import ProducerStateManager
from backend.engine.log.recovery import end_txn_marker_of, feed_producers, rebuild_producer_state
from backend.engine.log.retention import RetentionState, SegmentView, decide
from backend.engine.log.segment import BatchEntry, LogSegment
from backend.engine.log.segments import LogSegments
from backend.engine.log.timestamps import TimestampedOffset, first_at_or_after, latest_timestamp
from backend.engine.log.topics import is_remote_enabled
from backend.engine.log.txn_index import AbortedTxn, search_aborted
from backend.engine.log.validation import check_keys, validate_fetched, validate_produced, validate_trusted
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.protocol.batch import BatchHeader, patch_offset_and_epoch
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition

__all__ = ["AppendInfo", "FlushWork", "Origin", "ReadInfo", "TimestampedOffset", "UnifiedLog", "sync_files"]

Origin = Literal["client", "coordinator", "raft"]
NO_REMOTE_OFFSET: Final = -1
# No space, no quota, or the process may not write files of that size.
# Removed at once; a `.tmp` that a crash leaves is removed when the log is opened.
SPACE_PROBE_FILE: Final = "space.tmp"
FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = logging.getLogger(__name__)


class AppendInfo(NamedTuple):
    """What an append did. Offsets are -1 when there was nothing to append."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int  # -1 unless the topic uses log append time
    log_start_offset: int
    size_bytes: int = 0
    duplicate: bool = False  # an idempotent batch that is in the log already; offsets are those of then


class UnifiedLog:
    """One partition's log. Build with `loader.open_log`. All calls on the loop's thread."""

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
    ) -> None:
        self._disk = disk
        self._random = random
        self._local = LocalLog(disk, random, log_dir, segments, config)
        self.topic_id_partition = topic_id_partition
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.remote_system_enabled = remote_system_enabled
        self.recovery_point = recovery_point
        # The metadata log: only its last segment may be torn by a power failure, whatever it has promised.
        self.flush_before_roll = False
        # Whether `partition.metadata` has yet to reach the device; the next flush sees to it, before any records.
        self.topic_id_dirty = False
        self.offline_reason: str | None = None
        self._disk_full = False
        self.on_offline: Callable[[UnifiedLog, str], None] | None = None
        self._log_start_offset = log_start_offset
        self._local_log_start_offset = max(log_start_offset, segments.first_base_offset)
        if not self.remote_enabled:
            self._log_start_offset = self._local_log_start_offset
        self._high_watermark = self._log_start_offset
        self._highest_remote_offset = NO_REMOTE_OFFSET
        # Compaction: first offset that has never been cleaned (None: all), how often the log was cut, and whether a
        # cleaning is under way, during which retention waits.
        self.cleaner_checkpoint: int | None = None
        self.truncations = 0
        self.cleaning = False
        # Whether cleaning has to wait, since the log is being moved to another directory.
        self.cleaning_paused = False

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

    @property
    def remote_enabled(self) -> bool:
        """Whether this log may have a remote part.

        The broker's and the topic's switch are on, and the topic is neither compacted nor internal.
        """
        return self.remote_system_enabled and is_remote_enabled(self.topic_id_partition.topic, self.config)

    def __str__(self) -> str:
        return str(self.topic_id_partition.topic_partition)

    # --- offsets

    @property
    def log_start_offset(self) -> int:
        """First offset of the partition, remote part included."""
        return self._log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """First offset on the local disk."""
        return self._local_log_start_offset if self.remote_enabled else self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset to be written."""
        return self._local.end_offset

    @property
    def high_watermark(self) -> int:
        """Offsets below are replicated to the in-sync replicas."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offsets below are replicated and belong to no open transaction."""
        unstable = self.producer_state.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self._log_start_offset)

    @property
    def highest_remote_offset(self) -> int:
        """Last offset known to be in the remote tier, -1 when none is; never persisted."""
        return self._highest_remote_offset

    def update_highest_remote_offset(self, offset: int) -> None:
        """Only moves up; a truncation below it takes it back."""
        self._highest_remote_offset = max(self._highest_remote_offset, offset)

    def forget_highest_remote_offset(self) -> None:
        """The topic is not tiered any more: what was copied does not count if it ever is again."""
        self._highest_remote_offset = NO_REMOTE_OFFSET

    def update_high_watermark(self, offset: int) -> bool:
        """Sets it, moved into `[log start, log end]`; True when it changed. May lower it."""
        clamped = min(max(offset, self._log_start_offset), self.log_end_offset)
        if clamped == self._high_watermark:
            return False
        self._high_watermark = clamped
        self.producer_state.on_high_watermark(clamped)
        return True

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raises it; True when it moved. A value past the log end is the caller's mistake."""
        if offset > self.log_end_offset:
            raise ValueError(f"high watermark {offset} of {self} is past its log end {self.log_end_offset}")
        return offset > self._high_watermark and self.update_high_watermark(offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raises log start, and local start with it; True when it moved.

        Raises OFFSET_OUT_OF_RANGE past the high watermark.
        """
        self._check_online()
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset of {self} to {offset}, "
                f"past its high watermark {self._high_watermark}"
            )
        if offset <= self._log_start_offset:
            return False
        self._log_start_offset = offset
        self._local_log_start_offset = max(self._local_log_start_offset, offset)
        self.recovery_point = max(self.recovery_point, offset)
        with self._disk_errors("raise the log start of"):
            self.leader_epochs.truncate_from_start(offset)
            self.producer_state.on_log_start(offset)
        return True

    def maybe_increment_local_log_start_offset(self, offset: int) -> bool:
        """Raises local start only (tiered topics); True when it moved."""
        if offset <= self.local_log_start_offset:
            return False
        self._local_log_start_offset = offset
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

    # --- failures

    def mark_offline(self, reason: str) -> None:
        """From now on every call raises KAFKA_STORAGE_ERROR with the first reason given."""
        if self.offline_reason is None:
            self.offline_reason = reason
            _log.error("Partition %s is offline: %s", self, reason)
            if self.on_offline is not None:
                self.on_offline(self, reason)

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {self} is offline: {self.offline_reason}")

    def _failed(self, doing: str, error: OSError | CorruptLog) -> KafkaError:
        if isinstance(error, CorruptLog):
            self.mark_offline(error.message)
            return error
        self.mark_offline(f"could not {doing} {self.dir}: {error}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {self} is offline: {self.offline_reason}")

    def _not_written(self, doing: str, error: OSError | CorruptLog) -> KafkaError:
        """As :meth:`_failed`, but a full disk harms nobody once what was written of the append is gone again."""
        active = self.active_segment
        if not isinstance(error, OSError) or error.errno not in FULL_ERRNOS or active.sealed:
            return self._failed(doing, error)
        try:
            active.file.truncate(active.size_bytes)
        except OSError as second:
            return self._failed(doing, second)
        message = f"could not {doing} {self.dir}: {error.strerror}; free some space there, appends go on by themselves"
        if not self._disk_full:
            self._disk_full = True
            _log.error("Partition %s takes no records: %s", self, message)
        return NoSpace(message)

    def require_space(self, size_bytes: int) -> None:
        """Finds out whether the disk takes so many bytes more, before something that must not fail half-way.

        Raises NoSpace; the log is as it was.
        """
        self._check_online()
        path = f"{self.dir}/{SPACE_PROBE_FILE}"
        try:
            try:
                probe = self._disk.open(path, create=True)
                try:
                    probe.append([bytes(size_bytes)])
                finally:
                    probe.close()
            finally:
                self._disk.remove(path)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise self._failed("write", error) from error
            text = f"could not write {self.dir}: {error.strerror}; free some space there, it goes on by itself"
            raise NoSpace(text) from error

    @contextmanager
    def _disk_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (OSError, CorruptLog) as error:
            raise self._failed(doing, error) from error

    # --- append

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, *, now_ms: int, origin: Origin = "client"
    ) -> AppendInfo:
        """Gives the records their offsets and writes them.

        A client's records are one batch and are validated as Kafka does (see `validation`); those of a coordinator or
        of the metadata quorum are batches of our own making. The buffer is patched in place when it is writable.
        """
        self._check_online()
        if origin != "client":
            return self._append_own(records, leader_epoch, now_ms)
        config = self._local.config
        records, header = validate_produced(records, config, now_ms=now_ms)
        if config.is_compacted:
            check_keys(records, self.topic_id_partition.topic_partition)
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
            offset, last_offset, header.max_timestamp, append_time, self._log_start_offset, header.size_bytes
        )

    def _duplicate(self, header: BatchHeader) -> AppendInfo | None:
        known = self.producer_state.duplicate_of(header)
        if known is None:
            return None
        append_time = known.timestamp_ms if self.config.is_log_append_time else -1
        start = self._log_start_offset
        return AppendInfo(known.first_offset, known.last_offset, known.timestamp_ms, append_time, start, duplicate=True)

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
        self._check_online()
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

    def roll(self, expected_base: int | None = None) -> LogSegment:
        """Seals the active segment and starts a new one at the log end (or at `expected_base`, past a gap).

        An empty active segment at that offset is started afresh instead.
        """
        self._check_online()
        base = max(expected_base or 0, self.log_end_offset)
        try:
            segment = self._local.roll(base)
        except OSError as error:
            raise self._not_written("roll a segment of", error) from error
        with self._disk_errors("roll a segment of"):
            self.producer_state.map_end_offset = base
            self.producer_state.take_snapshot()
        return segment

    # --- read

    def read(self, start_offset: int, max_bytes: int, *, up_to_offset: int, min_one_message: bool) -> ReadInfo:
        """Raw batches of one segment from the one that holds `start_offset`, below `up_to_offset`, up to `max_bytes`.

        With `min_one_message` the first batch comes whole even when it is larger. Raises OFFSET_OUT_OF_RANGE below log
        start, past the log end, and when no local segment reaches back to `start_offset`.
        """
        self._check_online()
        local = self._local
        first = local.segments.first_base_offset
        if start_offset > local.end_offset or start_offset < self._log_start_offset or start_offset < first:
            raise OffsetOutOfRange(
                f"Received request for offset {start_offset} for partition {self}, "
                f"but we only have log segments from offset {first} up to {local.end_offset}"
            )
        try:
            return local.read(start_offset, max_bytes, up_to_offset, min_one_message)
        except (OSError, CorruptLog) as error:
            raise self._failed("read", error) from error

    def read_end_bound(self, info: ReadInfo) -> int:
        """An offset at or past the end of what a read returned: the upper bound for :meth:`aborted_transactions`."""
        segment = self.segments.floor(info.segment_base_offset)
        if segment is None:
            return self.log_end_offset
        with self._disk_errors("read an index of"):
            bound = segment.offset_index.upper_bound(info.position + len(info.records))
        return segment.next_offset if bound is None else bound

    def aborted_transactions(self, start_offset: int, up_to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in `[start_offset, up_to_offset)` of the local log."""
        found: list[AbortedTxn] = []
        with self._disk_errors("read the transaction index of"):
            for segment in self.segments.from_offset(start_offset):
                part, complete = search_aborted(segment.aborted_transactions, start_offset, up_to_offset)
                found.extend(part)
                if complete:
                    break
        return found

    def offset_by_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first local record at or past log start with at least this timestamp."""
        self._check_online()
        with self._disk_errors("search"):
            return first_at_or_after(self.segments, timestamp, self._log_start_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The local record with the largest timestamp (ListOffsets -3)."""
        self._check_online()
        with self._disk_errors("search"):
            return latest_timestamp(self.segments)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch <= the one asked for; (-1, -1) when undefined."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Notes where a leader's epoch starts; called for a new leader before its first record."""
        with self._disk_errors("write the leader epochs of"):
            self.leader_epochs.assign(epoch, start_offset)

    # --- segments

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
        return [s for s in self.segments if s.base_offset >= self._highest_remote_offset]

    def delete_old_segments(self, now_ms: int) -> int:
        """Deletes local segments by log start, size and time; how many. On a tiered topic only local start moves."""
        self._check_online()
        with self._disk_errors("apply retention to"):
            decision = decide(self._segment_views(), self._retention_state(), self.config, now_ms=now_ms)
            doomed = list(self.segments)[: decision.delete_count]
            if decision.roll or len(doomed) == len(self.segments):
                self.roll()
            if doomed:
                self._drop(doomed)
                start = self.segments.first_base_offset
                # Where copying is off (KIP-950) nobody else has what goes: the log itself starts later.
                if self.remote_enabled and not self.config.remote_log_copy_disable:
                    self.maybe_increment_local_log_start_offset(start)
                else:
                    self.maybe_increment_log_start_offset(start)
        return len(doomed)

    def _retention_state(self) -> RetentionState:
        return RetentionState(
            log_start_offset=self._log_start_offset,
            local_log_start_offset=self.local_log_start_offset,
            high_watermark=self._high_watermark,
            highest_remote_offset=self._highest_remote_offset,
            remote_enabled=self.remote_enabled,
        )

    def _segment_views(self) -> list[SegmentView]:
        segments = list(self.segments)
        ends = [segment.base_offset for segment in segments[1:]] + [self.log_end_offset]
        return [
            SegmentView(s.base_offset, end, s.size_bytes, s.largest_timestamp, is_last=s is segments[-1])
            for s, end in zip(segments, ends, strict=True)
        ]

    def _drop(self, segments: Sequence[LogSegment]) -> None:
        self._local.drop(segments)
        for segment in segments:
            # The snapshot at a segment's base belongs to it; the one of the first segment left is still needed.
            self.producer_state.remove_snapshot(segment.base_offset)

    def replace_segments(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Puts a segment that compaction made in the place of the sealed ones that it was made of."""
        self._check_online()
        with self._disk_errors("swap a cleaned segment into"):
            self._local.replace(old, new)
            for segment in old[1:]:
                self.producer_state.remove_snapshot(segment.base_offset)

    def take_deleted_paths(self) -> list[str]:
        """Files renamed to `.deleted` since the last call; the caller removes them after `file.delete.delay.ms`."""
        return self._local.take_deleted_paths()

    # --- truncation

    def truncate_to(self, offset: int) -> bool:
        """Drops all records at or past `offset`; False when there were none.

        Below the first segment everything goes.
        """
        self._check_online()
        if offset < 0:
            raise ValueError(f"{self} cannot be truncated to {offset}")
        with self._disk_errors("truncate"):
            if offset >= self.log_end_offset:
                # A leader that appended nothing may have left an epoch at the log end.
                self.leader_epochs.truncate_from_end(offset)
                return False
            if offset < self.segments.first_base_offset:
                self.truncate_fully_and_start_at(offset)
                return True
            end = self._local.truncate_to(offset)
            self._note_cut(end)
            self.recovery_point = min(self.recovery_point, end)
            self.leader_epochs.truncate_from_end(end)
            self._log_start_offset = min(self._log_start_offset, end)
            self._local_log_start_offset = min(self._local_log_start_offset, end)
            self.update_high_watermark(self._high_watermark)
            rebuild_producer_state(self.producer_state, self.segments, end, self._log_start_offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drops everything; the log goes on at `offset`, with an empty epoch cache and no producers.

        `log_start_offset` is given when the records below `offset` are in the remote tier.
        """
        self._check_online()
        with self._disk_errors("truncate"):
            self._local.replace_all(offset)
            self._note_cut(offset)
            self.recovery_point = min(self.recovery_point, offset)
            self.leader_epochs.clear()
            self.producer_state.truncate_fully(offset)
            self._log_start_offset = offset if log_start_offset is None else log_start_offset
            self._local_log_start_offset = offset
            self._high_watermark = offset

    def _note_cut(self, end_offset: int) -> None:
        self.truncations += 1
        # What was copied from here on was another history's: other records may come, and they are not copied yet.
        self._highest_remote_offset = min(self._highest_remote_offset, end_offset - 1)
        if self.cleaner_checkpoint is not None:
            self.cleaner_checkpoint = min(self.cleaner_checkpoint, end_offset)

    # --- durability and end

    def flush_work(self) -> FlushWork | None:
        """What must be synced for the topic id and all records to be on the device; None when they are."""
        if self.offline_reason is not None:
            return None
        if self.recovery_point >= self.log_end_offset:
            return self.topic_id_work()
        return self._flush_work(self.segments.from_offset(self.recovery_point), self.log_end_offset)

    def sealed_flush_work(self) -> FlushWork | None:
        """The same for the sealed segments only, as Kafka flushes after a roll."""
        base = self.active_segment.base_offset
        if self.offline_reason is not None or self.recovery_point >= base:
            return None
        return self._flush_work([s for s in self.segments.from_offset(self.recovery_point) if s.sealed], base)

    @property
    def _topic_id_path(self) -> str:
        return f"{self.dir}/{PARTITION_METADATA_FILE}"

    def topic_id_work(self) -> FlushWork | None:
        """The same for the topic id only."""
        if self.offline_reason is not None or not self.topic_id_dirty:
            return None
        return FlushWork((self._topic_id_path,), self.dir, self.recovery_point)

    def _flush_work(self, segments: Sequence[LogSegment], up_to_offset: int) -> FlushWork:
        paths = [self._topic_id_path] if self.topic_id_dirty else []
        paths.extend(path for s in segments for path in (s.paths if s.sealed else (s.log_path, s.txn_index_path)))
        paths.extend(self.producer_state.path(offset) for offset in self.producer_state.snapshots[-2:])
        dirty, self.leader_epochs.dirty = self.leader_epochs.dirty, False
        if dirty:
            paths.append(f"{self.dir}/{LEADER_EPOCH_FILE}")
        return FlushWork(tuple(paths), self.dir, up_to_offset, dirty)

    def flushed(self, work: FlushWork) -> None:
        """Moves the recovery point after `sync_files(work)` has succeeded."""
        self.recovery_point = max(self.recovery_point, min(work.up_to_offset, self.log_end_offset))
        if self._topic_id_path in work.paths:
            self.topic_id_dirty = False

    def flush(self) -> None:
        """Everything appended reaches the device before this returns."""
        self._check_online()
        work = self.flush_work()
        if work is not None:
            with self._disk_errors("flush"):
                sync_files(self._disk, work)
            self.flushed(work)

    def close(self) -> None:
        """Clean end: indexes, producer snapshot and data reach the device. The log must not be used again."""
        if self.offline_reason is None:
            with self._disk_errors("close"):
                self.active_segment.write_indexes()
                self.producer_state.map_end_offset = self.log_end_offset
                self.producer_state.take_snapshot()
                self.flush()
        self.close_files()

    def close_files(self) -> None:
        """Closes descriptors without writing anything."""
        self._local.close_files()

    def rename_dir(self, log_dir: str) -> None:
        """Gives the folder another name on the same file system; the log stays in use."""
        with self._disk_errors("rename the folder of"):
            self._local.rename_dir(log_dir)
        path = f"{log_dir}/{LEADER_EPOCH_FILE}"
        self.leader_epochs.save_with(lambda data: self._disk.write_atomic(path, data, sync=False))
        self.producer_state.moved_to(log_dir)

    def take_over(self, other: UnifiedLog) -> None:
        """Becomes what `other` is: this log holds the same records up to the same log end, in another folder."""
        self._log_start_offset = other._log_start_offset
        self._local_log_start_offset = max(other._local_log_start_offset, self.segments.first_base_offset)
        self._high_watermark, self._highest_remote_offset = other._high_watermark, other._highest_remote_offset
        self.remote_system_enabled = other.remote_system_enabled
        self.cleaner_checkpoint, self.topic_id_dirty = other.cleaner_checkpoint, True
        self.producer_state.take_over(other.producer_state)
        with self._disk_errors("write the leader epochs of"):
            self.leader_epochs.clear()
            self.leader_epochs.assign_all(other.leader_epochs.entries)

    def rename_for_delete(self) -> str:
        """Closes the log and renames its folder to `…-delete`; returns the new path, to be removed later."""
        self.close_files()
        parent = self.dir.rpartition("/")[0]
        target = f"{parent}/{dir_name_for_delete(self.topic_id_partition.topic_partition, self._random.uuid())}"
        self._disk.rename(self.dir, target)
        self._local.dir = target
        self.offline_reason = "its topic or replica is deleted"
        return target

    def delete(self) -> None:
        """Removes the folder (blocking; on a worker thread)."""
        self.close_files()
        self._disk.remove_tree(self.dir)
