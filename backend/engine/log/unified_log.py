"""The log of one partition: its local segments, epochs, producers and offsets (`UnifiedLog`, `LocalLog` of Kafka;
KIP-405).

    log start <= local log start <= high watermark <= log end

The records of `[log start, local log start)` are only in the remote tier. Nothing here waits: fsync of sealed segments,
removal of deleted files and checkpoints are done by `log_manager` on worker threads. Failures of the disk and bytes
that cannot be right take the partition offline: every later call raises KAFKA_STORAGE_ERROR with the reason.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from backend.engine.log.config import INT32_MAX, INT64_MAX, LogConfig
from backend.engine.log.errors import CorruptLog, OffsetOutOfRange, UnexpectedAppendOffset
from backend.engine.log.leader_epochs import LeaderEpochCache
from backend.engine.log.names import LEADER_EPOCH_FILE, dir_name_for_delete
from backend.engine.log.producer_state import ProducerStateManager
from backend.engine.log.recovery import feed_producers, rebuild_producer_state
from backend.engine.log.retention import RetentionState, SegmentView, decide
from backend.engine.log.segment import BatchEntry, LogSegment
from backend.engine.log.segments import LogSegments
from backend.engine.log.timestamps import TimestampedOffset, first_at_or_after, latest_timestamp
from backend.engine.log.topics import is_remote_enabled
from backend.engine.log.txn_index import AbortedTxn, search_aborted
from backend.engine.log.validation import check_ascending, validate_produced, validate_trusted
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.protocol.batch import BatchHeader, patch_offset_and_epoch
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition

Origin = Literal["client", "coordinator", "raft"]
# Sealed segments of a log that stay open: readers of old data are few, and each costs a descriptor and its indexes.
OPEN_SEALED_SEGMENTS_MAX: Final = 4
NO_REMOTE_OFFSET: Final = -1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """What an append did. Offsets are -1 when there was nothing to append."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int  # -1 unless the topic uses log append time
    log_start_offset: int
    size_bytes: int = 0
    duplicate: bool = False  # an idempotent batch that is in the log already; offsets are those of then


@dataclass(frozen=True, slots=True)
class ReadInfo:
    """Raw batches of one segment. The last batch may be cut off."""

    records: bytes
    start_offset: int
    segment_base_offset: int
    position: int
    first_entry_incomplete: bool = False


@dataclass(frozen=True, slots=True)
class FlushWork:
    """Files to sync on a worker thread before the recovery point may move to `up_to_offset`."""

    paths: tuple[str, ...]
    dir: str
    up_to_offset: int
    epochs_dirty: bool


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
        self.dir = log_dir
        self.topic_id_partition = topic_id_partition
        self.config = config
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.remote_system_enabled = remote_system_enabled
        self.recovery_point = recovery_point
        self.offline_reason: str | None = None
        self.on_offline: Callable[[UnifiedLog, str], None] | None = None
        self._segments = segments
        self._log_end_offset = max(segments.active.next_offset, segments.active.base_offset)
        self._log_start_offset = log_start_offset
        self._local_log_start_offset = max(log_start_offset, segments.first_base_offset)
        if not self.remote_enabled:
            self._log_start_offset = self._local_log_start_offset
        self._high_watermark = self._log_start_offset
        self._highest_remote_offset = NO_REMOTE_OFFSET
        self._roll_jitter_ms = self._draw_jitter()
        self._open_sealed: dict[int, LogSegment] = {}
        self._deleted_paths: list[str] = []

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
        return self._log_end_offset

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
        """Only moves up."""
        self._highest_remote_offset = max(self._highest_remote_offset, offset)

    @property
    def remote_enabled(self) -> bool:
        """Whether this log may have a remote part: the broker's and the topic's switch, and neither compacted nor internal."""
        return self.remote_system_enabled and is_remote_enabled(self.topic_id_partition.topic, self.config)

    def update_high_watermark(self, offset: int) -> bool:
        """Sets it, moved into `[log start, log end]`; True when it changed. May lower it."""
        clamped = min(max(offset, self._log_start_offset), self._log_end_offset)
        if clamped == self._high_watermark:
            return False
        self._high_watermark = clamped
        self.producer_state.on_high_watermark(clamped)
        return True

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raises it; True when it moved. A value past the log end is the caller's mistake."""
        if offset > self._log_end_offset:
            raise ValueError(f"high watermark {offset} of {self} is past its log end {self._log_end_offset}")
        return offset > self._high_watermark and self.update_high_watermark(offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raises log start, and local start with it; True when it moved.

        Raises OFFSET_OUT_OF_RANGE past the high watermark.
        """
        self._check_online()
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset of {self} to {offset}, past its high watermark {self._high_watermark}"
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
        assert 0 <= self._log_start_offset <= self.local_log_start_offset, self.describe()
        assert self.local_log_start_offset <= self._log_end_offset, self.describe()
        assert self._log_start_offset <= self._high_watermark <= self._log_end_offset, self.describe()
        assert self._log_start_offset <= self.last_stable_offset <= self._high_watermark, self.describe()
        assert self._segments.active.next_offset == self._log_end_offset, self.describe()
        assert [s.base_offset for s in self._segments] == sorted({s.base_offset for s in self._segments}), (
            self.describe()
        )

    def describe(self) -> str:
        """All offsets on one line, for messages."""
        return (
            f"{self}: log start {self._log_start_offset}, local start {self.local_log_start_offset}, "
            f"high watermark {self._high_watermark}, log end {self._log_end_offset}, remote up to {self._highest_remote_offset}, "
            f"{len(self._segments)} segments"
        )

    def __str__(self) -> str:
        return str(self.topic_id_partition.topic_partition)

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

    @contextmanager
    def _disk_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.mark_offline(f"could not {doing} {self} in {self.dir}: {error}")
            self._check_online()
        except CorruptLog as error:
            self.mark_offline(error.message)
            raise

    # --- append

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, *, now_ms: int, origin: Origin = "client"
    ) -> AppendInfo:
        """Gives the records their offsets and writes them.

        A client's records are one batch and are validated as Kafka does (see `validation`); those of a coordinator or
        of the metadata quorum are batches of our own making. The buffer is patched in place when it is writable. Raises
        KafkaError.
        """
        self._check_online()
        if origin == "client":
            data, header = validate_produced(records, self.config, now_ms=now_ms)
            if header.producer_id >= 0:
                duplicate = self.producer_state.duplicate_of(header)
                if duplicate is not None:
                    append_time = duplicate.timestamp_ms if self.config.is_log_append_time else -1
                    return AppendInfo(
                        duplicate.first_offset,
                        duplicate.last_offset,
                        duplicate.timestamp_ms,
                        append_time,
                        self._log_start_offset,
                        duplicate=True,
                    )
                self.producer_state.check(header)
            batches = [(0, header)]
        else:
            if records.readonly:
                records = memoryview(bytearray(records))
            data, batches = validate_trusted(records)
            if not batches:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"There is no whole batch to append to {self}")
        first_offset = offset = self._log_end_offset
        placed: list[tuple[int, BatchHeader]] = []
        for position, header in batches:
            patch_offset_and_epoch(data, position, offset, leader_epoch)
            placed.append((position, header._replace(base_offset=offset, leader_epoch=leader_epoch)))
            offset += header.last_offset_delta + 1
        self._write(data, placed, now_ms)
        append_time = now_ms if self.config.is_log_append_time else -1
        maximum = max(header.max_timestamp for _, header in placed)
        return AppendInfo(first_offset, offset - 1, maximum, append_time, self._log_start_offset, len(data))

    def append_as_follower(self, records: memoryview, leader_epoch: int, *, now_ms: int = 0) -> AppendInfo:
        """Writes batches of the leader as they are; a batch cut off at the end is ignored.

        Batches of an epoch above `leader_epoch`, the one known when they were fetched, are left out with all that
        follow. Raises CORRUPT_MESSAGE, INVALID_RECORD, or `UnexpectedAppendOffset` when they start below the log end.
        """
        self._check_online()
        data, batches = validate_trusted(records)
        check_ascending(batches)
        for count, (position, header) in enumerate(batches):
            if header.leader_epoch > leader_epoch:
                data, batches = data[:position], batches[:count]
                break
        if not batches:
            return AppendInfo(-1, -1, -1, -1, self._log_start_offset)
        first = batches[0][1].base_offset
        if first < self._log_end_offset:
            raise UnexpectedAppendOffset(
                f"Unexpected offset in append to {self}: first offset {first} is below the log end {self._log_end_offset}",
                first,
            )
        self._write(data, batches, now_ms)
        maximum = max(header.max_timestamp for _, header in batches)
        return AppendInfo(first, self._log_end_offset - 1, maximum, -1, self._log_start_offset, len(data))

    def _write(self, data: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int) -> None:
        first, last = batches[0][1], batches[-1][1]
        with self._disk_errors("append to"):
            segment = self._segments.active
            maximum = first.max_timestamp if len(batches) == 1 else max(h.max_timestamp for _, h in batches)
            if self._must_roll(segment, len(data), maximum, last.last_offset, now_ms):
                segment = self.roll(expected_base=first.base_offset)
            entries = [BatchEntry(h.last_offset, h.size_bytes, h.max_timestamp) for _, h in batches]
            segment.append(data, entries, index_interval_bytes=self.config.index_interval_bytes, now_ms=now_ms)
            self._log_end_offset = segment.next_offset
            epochs = self.leader_epochs
            for _, header in batches:
                if header.leader_epoch != epochs.latest_epoch and header.leader_epoch >= 0:
                    epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    feed_producers(self.producer_state, header, data, _, segment)
            self.producer_state.map_end_offset = self._log_end_offset
            if self._log_end_offset - self.recovery_point >= self.config.flush_messages:
                self.flush()

    def _must_roll(self, segment: LogSegment, size_bytes: int, timestamp: int, last_offset: int, now_ms: int) -> bool:
        config = self.config
        if segment.size_bytes > config.segment_bytes - size_bytes:
            return segment.size_bytes > 0 or segment.base_offset != self._log_end_offset
        if segment.is_full(config.segment_index_bytes) or last_offset - segment.base_offset > INT32_MAX:
            return True
        if segment.size_bytes == 0:
            return False
        if segment.first_timestamp is not None and segment.first_timestamp >= 0:
            waited_ms = timestamp - segment.first_timestamp
        else:
            waited_ms = now_ms - (segment.created_ms if segment.created_ms is not None else now_ms)
        return waited_ms > config.segment_ms - self._roll_jitter_ms

    def _draw_jitter(self) -> int:
        spread = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._random.randrange(spread) if spread > 0 else 0

    def roll(self, expected_base: int | None = None) -> LogSegment:
        """Seals the active segment and starts a new one at the log end (or at `expected_base`, past a gap).

        An empty active segment at that offset is started afresh instead.
        """
        self._check_online()
        base = max(expected_base or 0, self._log_end_offset)
        active = self._segments.active
        with self._disk_errors("roll"):
            if active.base_offset == base:
                if active.size_bytes:
                    raise ValueError(f"segment {base} of {self} has data and cannot be rolled at its own base")
                active.close()
            else:
                active.seal()
                self._keep_open(active)
            segment = LogSegment.create(self._disk, self.dir, base)
            self._segments.add(segment)
            self._log_end_offset = base
            self.producer_state.map_end_offset = base
            self.producer_state.take_snapshot()
            self._roll_jitter_ms = self._draw_jitter()
        return segment

    # --- read

    def read(self, start_offset: int, max_bytes: int, *, up_to_offset: int, min_one_message: bool) -> ReadInfo:
        """Raw batches from the one that holds `start_offset`, of one segment, at most `max_bytes`, below
        `up_to_offset`.

        With `min_one_message` the first batch comes whole even when it is larger. Raises OFFSET_OUT_OF_RANGE below log
        start, past the log end, and when no local segment reaches back to `start_offset`.
        """
        self._check_online()
        at = self._segments.floor_index(start_offset)
        if start_offset > self._log_end_offset or start_offset < self._log_start_offset or at < 0:
            raise OffsetOutOfRange(
                f"Received request for offset {start_offset} for partition {self}, but we only have log segments from offset "
                f"{self._segments.first_base_offset} up to {self._log_end_offset}"
            )
        with self._disk_errors("read"):
            while at < len(self._segments) and start_offset < up_to_offset:
                segment = self._segments[at]
                if start_offset < segment.next_offset:
                    info = self._read_segment(segment, start_offset, max_bytes, up_to_offset, min_one_message)
                    if info is not None:
                        return info
                at += 1
        active = self._segments.active
        return ReadInfo(b"", start_offset, active.base_offset, active.size_bytes)

    def _read_segment(
        self, segment: LogSegment, start_offset: int, max_bytes: int, up_to_offset: int, min_one_message: bool
    ) -> ReadInfo | None:
        if segment.sealed:
            self._keep_open(segment)
        position = segment.position_of(start_offset)
        end = segment.size_bytes if up_to_offset >= segment.next_offset else segment.position_of(up_to_offset)
        available = end - position
        if available <= 0:
            return None
        size = min(max_bytes, available)
        if size <= 0 and not min_one_message:
            return ReadInfo(b"", start_offset, segment.base_offset, position)
        records = segment.pread(max(size, 12), position)
        batch_bytes = int.from_bytes(records[8:12], "big") + 12
        if batch_bytes > size:
            if not min_one_message:
                return ReadInfo(records[: max(0, size)], start_offset, segment.base_offset, position, True)
            records = segment.pread(min(batch_bytes, available), position)
        return ReadInfo(records, start_offset, segment.base_offset, position)

    def _keep_open(self, segment: LogSegment) -> None:
        recent = self._open_sealed
        recent.pop(segment.base_offset, None)
        recent[segment.base_offset] = segment
        if len(recent) > OPEN_SEALED_SEGMENTS_MAX:
            recent.pop(next(iter(recent))).release()

    def read_end_bound(self, info: ReadInfo) -> int:
        """An offset at or past the end of what a read returned: the upper bound for :meth:`aborted_transactions`."""
        segment = self._segments.floor(info.segment_base_offset)
        if segment is None:
            return self._log_end_offset
        bound = segment.offset_index.upper_bound(info.position + len(info.records))
        return segment.next_offset if bound is None else bound

    def aborted_transactions(self, start_offset: int, up_to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in `[start_offset, up_to_offset)` of the local log."""
        found: list[AbortedTxn] = []
        with self._disk_errors("read the transaction index of"):
            for segment in self._segments.from_offset(start_offset):
                part, complete = search_aborted(segment.aborted_transactions, start_offset, up_to_offset)
                found.extend(part)
                if complete:
                    break
        return found

    def offset_by_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first local record at or past log start with at least this timestamp."""
        self._check_online()
        with self._disk_errors("search"):
            return first_at_or_after(self._segments, timestamp, self._log_start_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The local record with the largest timestamp (ListOffsets -3)."""
        self._check_online()
        with self._disk_errors("search"):
            return latest_timestamp(self._segments)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch <= the one asked for; (-1, -1) when undefined."""
        return self.leader_epochs.end_offset_for(epoch, self._log_end_offset)

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Notes a new leader's epoch before its first record."""
        with self._disk_errors("write the leader epochs of"):
            self.leader_epochs.assign(epoch, start_offset)

    # --- segments

    @property
    def segments(self) -> LogSegments:
        """Ordered; not to be changed."""
        return self._segments

    @property
    def active_segment(self) -> LogSegment:
        return self._segments.active

    @property
    def size_bytes(self) -> int:
        """Bytes of the local `.log` files."""
        return self._segments.size_bytes

    def upload_candidates(self, from_offset: int, last_stable_offset: int) -> list[LogSegment]:
        """Sealed segments from the one that holds `from_offset` whose whole range is stable, in order (KIP-405)."""
        segments = self._segments.from_offset(from_offset)
        return [s for s, following in itertools.pairwise(segments) if following.base_offset <= last_stable_offset]

    @property
    def only_local_segments(self) -> list[LogSegment]:
        """Segments whose base offset is at or past the highest remote offset (metrics and size retention of KIP-405)."""
        return [s for s in self._segments if s.base_offset >= self._highest_remote_offset]

    def delete_old_segments(self, now_ms: int) -> int:
        """Deletes local segments by log start, size and time; how many. On a tiered topic only local start moves."""
        self._check_online()
        with self._disk_errors("apply retention to"):
            views = self._views()
            state = RetentionState(
                self._log_start_offset,
                self.local_log_start_offset,
                self._high_watermark,
                self._highest_remote_offset,
                self.remote_enabled,
            )
            decision = decide(views, state, self.config, now_ms=now_ms)
            doomed = list(self._segments)[: decision.delete_count]
            if decision.roll or len(doomed) == len(self._segments):
                self.roll()
            if doomed:
                self._drop(doomed)
                start = self._segments.first_base_offset
                if self.remote_enabled:
                    self.maybe_increment_local_log_start_offset(start)
                else:
                    self.maybe_increment_log_start_offset(min(start, self._high_watermark))
            return len(doomed)

    def _views(self) -> list[SegmentView]:
        following = [s.base_offset for s in list(self._segments)[1:]]
        return [
            SegmentView(s.base_offset, end, s.size_bytes, s.largest_timestamp, s is self._segments.active)
            for s, end in zip(self._segments, [*following, self._log_end_offset], strict=True)
        ]

    def _drop(self, segments: Sequence[LogSegment]) -> None:
        for segment in segments:
            self._open_sealed.pop(segment.base_offset, None)
            self._segments.remove(segment)
            self._deleted_paths.extend(segment.rename_deleted())
            # The snapshot at a segment's base belongs to it; the one of the first segment left is still needed.
            self.producer_state.remove_snapshot(segment.base_offset)

    def take_deleted_paths(self) -> list[str]:
        """Files renamed to `.deleted` since the last call; the caller removes them after `file.delete.delay.ms`."""
        taken, self._deleted_paths = self._deleted_paths, []
        return taken

    # --- truncation

    def truncate_to(self, offset: int) -> bool:
        """Drops all records at or past `offset`; False when there were none.

        Below the first segment everything goes.
        """
        self._check_online()
        if offset < 0:
            raise ValueError(f"{self} cannot be truncated to {offset}")
        with self._disk_errors("truncate"):
            if offset >= self._log_end_offset:
                # A leader that appended nothing may have left an epoch at the log end.
                self.leader_epochs.truncate_from_end(offset)
                return False
            if offset < self._segments.first_base_offset:
                self.truncate_fully_and_start_at(offset)
                return True
            self._drop([s for s in self._segments.starting_at_or_after(offset) if s is not self._segments[0]])
            active = self._segments.active
            self._open_sealed.pop(active.base_offset, None)
            end = active.truncate_to(offset)
            self._log_end_offset = end
            self.recovery_point = min(self.recovery_point, end)
            self.leader_epochs.truncate_from_end(end)
            self._log_start_offset = min(self._log_start_offset, end)
            self._local_log_start_offset = min(self._local_log_start_offset, end)
            self.update_high_watermark(self._high_watermark)
            rebuild_producer_state(self.producer_state, self._segments, end, self._log_start_offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drops everything; the log goes on at `offset`, with an empty epoch cache and no producers.

        `log_start_offset` is given when the records below `offset` are in the remote tier.
        """
        self._check_online()
        with self._disk_errors("truncate"):
            for segment in list(self._segments):
                self._open_sealed.pop(segment.base_offset, None)
                self._segments.remove(segment)
                self._deleted_paths.extend(segment.rename_deleted())
            self._segments.add(LogSegment.create(self._disk, self.dir, offset))
            self._log_end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.leader_epochs.clear()
            self.producer_state.truncate_fully(offset)
            self._log_start_offset = offset if log_start_offset is None else log_start_offset
            self._local_log_start_offset = offset
            self._high_watermark = offset

    # --- durability and end

    def flush_work(self) -> FlushWork | None:
        """What must be synced for the recovery point to reach the log end; None when nothing is unflushed."""
        if self.offline_reason is not None or self.recovery_point >= self._log_end_offset:
            return None
        return self._flush_work(self._segments.from_offset(self.recovery_point), self._log_end_offset)

    def sealed_flush_work(self) -> FlushWork | None:
        """The same for the sealed segments only, as Kafka flushes after a roll."""
        base = self._segments.active.base_offset
        if self.offline_reason is not None or self.recovery_point >= base:
            return None
        return self._flush_work([s for s in self._segments.from_offset(self.recovery_point) if s.sealed], base)

    def _flush_work(self, segments: Sequence[LogSegment], up_to_offset: int) -> FlushWork:
        paths = [path for s in segments for path in (s.paths if s.sealed else (s.log_path, s.txn_index_path))]
        paths.append(f"{self.dir}/{LEADER_EPOCH_FILE}")
        paths.extend(self.producer_state.path(offset) for offset in self.producer_state.snapshots[-2:])
        return FlushWork(tuple(paths), self.dir, up_to_offset, self.leader_epochs.dirty)

    def flushed(self, work: FlushWork) -> None:
        """Moves the recovery point after `sync_files(work)` has succeeded."""
        self.recovery_point = max(self.recovery_point, min(work.up_to_offset, self._log_end_offset))

    def flush(self) -> None:
        """Everything appended reaches the device before this returns."""
        self._check_online()
        work = self.flush_work()
        if work is not None:
            with self._disk_errors("flush"):
                sync_files(self._disk, work)
            self.flushed(work)

    def close(self) -> None:
        """Clean end: indexes, producer snapshot and data are on the device, descriptors closed.

        The log must not be used again.
        """
        if self.offline_reason is None:
            with self._disk_errors("close"):
                self._segments.active.write_indexes()
                self.producer_state.map_end_offset = self._log_end_offset
                self.producer_state.take_snapshot()
                self.flush()
        self.close_files()

    def close_files(self) -> None:
        """Closes descriptors without writing anything."""
        for segment in self._segments:
            segment.close()
        self._open_sealed.clear()

    def rename_for_delete(self) -> str:
        """Closes the log and renames its folder to `…-delete`; returns the new path, to be removed later."""
        self.close_files()
        parent = self.dir.rpartition("/")[0]
        target = f"{parent}/{dir_name_for_delete(self.topic_id_partition.topic_partition, self._random.uuid())}"
        self._disk.rename(self.dir, target)
        self.dir = target
        self.offline_reason = "its topic or replica is deleted"
        return target

    def delete(self) -> None:
        """Removes the folder (blocking; on a worker thread)."""
        self.close_files()
        self._disk.remove_tree(self.dir)


def sync_files(disk: Disk, work: FlushWork) -> None:
    """Syncs the files of a flush and their folder; blocking, any thread.

    Files that retention removed meanwhile are skipped.
    """
    for path in work.paths:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue
        try:
            file.sync()
        finally:
            file.close()
    disk.sync_dir(work.dir)


__all__ = ["INT64_MAX", "AppendInfo", "FlushWork", "ReadInfo", "TimestampedOffset", "UnifiedLog", "sync_files"]
