"""One partition's log on the disk: rolling, retention, truncation, durability and the end (see `unified_log`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backend.engine.log.file_names import (
    DAMAGED_EPOCH_FILE,
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    dir_name_for_delete,
)
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import FlushWork, sync_files
from backend.engine.log.local_retention import RetentionState, SegmentView, decide, idle_until_ms
from backend.engine.log.log_config import INT64_MAX
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.log_state import LogState
from backend.engine.log.manager.stray_replicas import set_aside
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.recovery.segment_recovery import rebuild_producer_state, recover_segment
from backend.engine.log.segments.log_segment import LogSegment
from backend.engine.log.segments.log_segments import LogSegments


class IndexWork(NamedTuple):
    """A sealed segment whose indexes are to be made again, those before it, and the snapshots up to its base."""

    segment: LogSegment
    before: LogSegments
    producers: ProducerStateManager


class LogStorage(LogState):
    """One partition's log as far as its files are concerned."""

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
            raise self._not_written("roll a segment of", error) from error
        with self._disk_errors("roll a segment of"):
            self.producer_state.map_end_offset = base
            self.producer_state.take_snapshot()
        return segment

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
        self.check_online()
        segments = self.segments
        # No rule deletes an empty active segment.
        if len(segments) == 1 and not segments.active.size_bytes:
            return 0
        facts = self._retention_facts()
        if now_ms <= self._idle_until_ms and facts == self._retention_facts_seen:
            return 0
        with self._disk_errors("apply retention to"):
            views, state = self._segment_views(), self._retention_state()
            decision = decide(views, state, self.config, now_ms=now_ms)
            if not decision.delete_count and not decision.roll:
                self._retention_facts_seen, self._idle_until_ms = (
                    facts,
                    idle_until_ms(views[0], state, self.config, now_ms=now_ms),
                )
            pending_delete = list(self.segments)[: decision.delete_count]
            if decision.roll or len(pending_delete) == len(self.segments):
                self.roll()
            if pending_delete:
                self._drop(pending_delete)
                start = self.segments.first_base_offset
                # Without copying (KIP-950) the deleted records have no remote copy: the log itself starts later.
                if self.remote_enabled and not self.config.remote_log_copy_disable:
                    self.maybe_increment_local_log_start_offset(start)
                else:
                    self.maybe_increment_log_start_offset(start)
        return len(pending_delete)

    def _retention_facts(self) -> tuple[object, ...]:
        """The facts of a decision, beside the time. Most of the thousands of logs of a pass have not changed."""
        segments = self.segments
        return (
            self.log_end_offset,
            segments.size_bytes,
            segments.first_base_offset,
            self._log_start_offset,
            self._local_log_start_offset,
            self._high_watermark,
            self._highest_remote_offset,
            self.config,
        )

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
        self.check_online()
        with self._disk_errors("swap a cleaned segment into"):
            self._local.replace(old, new)
            for segment in old[1:]:
                self.producer_state.remove_snapshot(segment.base_offset)

    def take_deleted_paths(self) -> list[str]:
        """Files renamed to `.deleted` since the last call; the caller removes them after `file.delete.delay.ms`."""
        return self._local.take_deleted_paths()

    def restore_snapshot(self, offset: int) -> bool:
        """Makes the producer snapshot at a sealed segment's end again where its file is lost or makes no sense; whether
        it did. Reads the segments behind the snapshot before it, so it is for a worker thread; the caller registers it
        with `producer_state.find_stored`. Raises OSError.

        Without any snapshot before it, the state is rebuilt from the local segments (UnifiedLog.rebuildProducerState).
        """
        if self.producer_state.is_intact(offset):
            return False
        producers = self.producer_state.stored_before(offset)
        segments = LogSegments([segment for segment in list(self.segments) if segment.base_offset < offset])
        if segments:
            rebuild_producer_state(producers, segments, offset, segments.first_base_offset)
        return True

    def index_work(self) -> IndexWork | None:
        """Returns the repair of the oldest segment with a damaged index; None when there is none."""
        while self.damaged_indexes and self.offline_reason is None:
            base_offset = min(self.damaged_indexes)
            before = [segment for segment in self.segments if segment.base_offset < base_offset]
            oldest = self.segments.floor(base_offset)
            if oldest is not None and oldest.base_offset == base_offset and oldest.sealed:
                return IndexWork(oldest, LogSegments(before), self.producer_state.stored_before(base_offset + 1))
            # Retention, compaction or a truncation has taken it.
            del self.damaged_indexes[base_offset]
        return None

    def rebuild_indexes(self, work: IndexWork) -> None:
        """Makes the index files of a sealed segment again. Blocking; any thread. Raises `CorruptLog` and OSError."""
        segment = work.segment
        fresh = LogSegment.open_sealed(self._disk, segment.files.dir, segment.base_offset, segment.next_offset)
        producers, size_bytes = work.producers, fresh.size_bytes
        start = work.before.first_base_offset if work.before else segment.base_offset
        rebuild_producer_state(producers, work.before, segment.base_offset, start)
        epochs = LeaderEpochCache(self.leader_epochs.entries)
        try:
            damage = recover_segment(fresh, producers, epochs, self.config, size_bytes)
            if damage is not None:
                raise CorruptLog(f"{damage.reason}; it is copied again by itself where other replicas exist")
            fresh.seal()
        finally:
            fresh.files.close()

    def indexes_rebuilt(self, work: IndexWork) -> None:
        """The files are there."""
        self.damaged_indexes.pop(work.segment.base_offset, None)
        work.segment.forget_damage()

    # --- truncation

    def truncate_to(self, offset: int) -> bool:
        """Drops all records at or past `offset`; False when there were none.

        Below the first segment everything local goes; what is remote below `offset` stays, with its leader epochs.
        """
        self.check_online()
        if offset < 0:
            raise ValueError(f"{self} cannot be truncated to {offset}")
        with self._disk_errors("truncate"):
            if offset >= self.log_end_offset:
                # A leader that appended nothing may have left an epoch at the log end.
                self.leader_epochs.truncate_from_end(offset)
                return False
            if offset < self.segments.first_base_offset:
                if self.remote_enabled and offset > self._log_start_offset:
                    # Kafka forgets both here. As leader it would take what is remote for another lineage's.
                    self._start_over(offset, self._log_start_offset)
                    self.leader_epochs.truncate_from_end(offset)
                else:
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
            # It may have read the markers of transactions again that have long been stable.
            self.producer_state.on_high_watermark(self._high_watermark)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drops everything; the log goes on at `offset`, with an empty epoch cache and no producers.

        `log_start_offset` is given when the records below `offset` are in the remote tier.
        """
        self.check_online()
        with self._disk_errors("truncate"):
            self._start_over(offset, offset if log_start_offset is None else log_start_offset)
            self.leader_epochs.clear()

    def _start_over(self, offset: int, log_start_offset: int) -> None:
        self._local.replace_all(offset)
        self._note_cut(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.producer_state.truncate_fully(offset)
        self._log_start_offset = log_start_offset
        self._local_log_start_offset = offset
        self._set_high_watermark(offset)

    def _note_cut(self, end_offset: int) -> None:
        self.truncations += 1
        # Copies from here on belong to another history: other records may come, and those are not copied yet.
        self._highest_remote_offset = min(self._highest_remote_offset, end_offset - 1)
        if self.cleaner_checkpoint is not None:
            self.cleaner_checkpoint = min(self.cleaner_checkpoint, end_offset)

    def found_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        """The leader epochs that a damaged checkpoint had, as far as they are known again: it counts from now on."""
        with self._disk_errors("write the leader epochs of"):
            self.leader_epochs.prepend(entries)
            self._disk.remove(f"{self.dir}/{DAMAGED_EPOCH_FILE}")
        self.epochs_lost = False

    # --- durability and end

    @property
    def has_work(self) -> bool:
        """Whether housekeeping has anything to look at (see `LogListener.on_work`)."""
        local = self._local
        return (
            self.topic_id_dirty
            or bool(self.damaged_indexes)
            or local.has_deleted_paths
            or local.config.flush_ms < INT64_MAX
            or self.recovery_point < local.segments.active.base_offset
        )

    def flush_work(self) -> FlushWork | None:
        """Returns the files to sync for the topic id and all records to be on the device; None when they are."""
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
        paths.extend(
            path
            for s in segments
            for path in (s.files.paths if s.sealed else (s.files.log_path, s.files.txn_index_path))
        )
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
        self.check_online()
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

    def take_over(self, other: LogState) -> None:
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
        target = f"{parent}/{dir_name_for_delete(self.topic_partition, self._random.uuid())}"
        self._disk.rename(self.dir, target)
        self._local.dir = target
        self.offline_reason = "its topic or replica is deleted"
        return target

    def set_aside(self, reason: str, now_ms: int) -> str:
        """Closes the log for good and renames its folder to `…-stray`, where it is kept; returns the new path."""
        self.close_files()
        self.offline_reason = self.offline_reason or f"it is set aside: {reason}"
        target = set_aside(self._disk, self.dir, self.topic_partition, self._random.uuid(), reason, now_ms)
        self._local.dir = target
        return target

    def delete(self) -> None:
        """Removes the folder (blocking; on a worker thread)."""
        self.close_files()
        self._disk.remove_tree(self.dir)
