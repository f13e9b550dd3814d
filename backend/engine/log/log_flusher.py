"""How far one partition's log is on the device, and what is to be synced next (`UnifiedLog.flush` of Kafka).

Work is a value: a worker thread carries it out with :func:`local_log.sync_files`, and the loop notes it as done.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.engine.log.file_names import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import FlushWork, LocalLog, sync_files
from backend.engine.log.log_health import LogHealth
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.segments.log_segment import LogSegment


class LogFlusher:
    """The recovery point of one log, and the files behind it. An offline log has no work."""

    def __init__(
        self,
        local: LocalLog,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        health: LogHealth,
        recovery_point: int,
    ) -> None:
        self._local = local
        self._leader_epochs = leader_epochs
        self._producer_state = producer_state
        self._health = health
        # Records below are on the device.
        self.recovery_point = recovery_point
        # Whether `partition.metadata` has yet to reach the device; the next flush sees to it, before any records.
        self.topic_id_dirty = False

    def work(self) -> FlushWork | None:
        """Returns the files to sync for the topic id and all records to be on the device; None when they are."""
        local = self._local
        if self._health.offline_reason is not None:
            return None
        if self.recovery_point >= local.end_offset:
            return self.topic_id_work()
        return self._work(local.segments.from_offset(self.recovery_point), local.end_offset)

    def sealed_work(self) -> FlushWork | None:
        """The same for the sealed segments only, as Kafka flushes after a roll."""
        segments = self._local.segments
        base = segments.active.base_offset
        if self._health.offline_reason is not None or self.recovery_point >= base:
            return None
        return self._work([s for s in segments.from_offset(self.recovery_point) if s.sealed], base)

    def topic_id_work(self) -> FlushWork | None:
        """Returns the sync of `partition.metadata`, None when it is on the device."""
        if self._health.offline_reason is not None or not self.topic_id_dirty:
            return None
        return FlushWork((self._topic_id_path,), self._local.dir, self.recovery_point)

    @property
    def _topic_id_path(self) -> str:
        return f"{self._local.dir}/{PARTITION_METADATA_FILE}"

    def _work(self, segments: Sequence[LogSegment], up_to_offset: int) -> FlushWork:
        paths = [self._topic_id_path] if self.topic_id_dirty else []
        for segment in segments:
            files = segment.files
            paths.extend(files.paths if segment.sealed else (files.log_path, files.txn_index_path))
        paths.extend(self._producer_state.path(offset) for offset in self._producer_state.snapshots[-2:])
        if self._leader_epochs.take_dirty():
            paths.append(f"{self._local.dir}/{LEADER_EPOCH_FILE}")
        return FlushWork(tuple(paths), self._local.dir, up_to_offset)

    def flush(self) -> None:
        """Everything appended reaches the device before this returns. KAFKA_STORAGE_ERROR when it cannot."""
        self._health.check_online()
        work = self.work()
        if work is not None:
            with self._health.disk_errors("flush"):
                sync_files(self._local.disk, work)
            self.done(work)

    def done(self, work: FlushWork) -> None:
        """Moves the recovery point after `sync_files(work)` has succeeded."""
        self.recovery_point = max(self.recovery_point, min(work.up_to_offset, self._local.end_offset))
        if self._topic_id_path in work.paths:
            self.topic_id_dirty = False

    def move_log_start(self, offset: int) -> None:
        """Records below the log start need not reach the device."""
        self.recovery_point = max(self.recovery_point, offset)

    def truncate(self, end_offset: int) -> None:
        """The log ends here now; other records may come from here on."""
        self.recovery_point = min(self.recovery_point, end_offset)

    def note_topic_id(self) -> None:
        """`partition.metadata` was written: the next flush syncs it."""
        self.topic_id_dirty = True
