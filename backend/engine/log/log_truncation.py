"""Dropping the newest records of one partition's log, and the parts that follow (`UnifiedLog.truncateTo` of Kafka)."""

from __future__ import annotations

from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_cleaning import LogCleaning
from backend.engine.log.log_flusher import LogFlusher
from backend.engine.log.log_health import LogHealth
from backend.engine.log.log_offsets import LogOffsets
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.recovery.segment_recovery import rebuild_producer_state
from backend.tiering.ids import TopicPartition


class LogTruncation:
    """The truncations of one log. A failure of the disk takes the log offline."""

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        offsets: LogOffsets,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        health: LogHealth,
        flusher: LogFlusher,
        cleaning: LogCleaning,
    ) -> None:
        self._partition = partition
        self._local = local
        self._offsets = offsets
        self._leader_epochs = leader_epochs
        self._producer_state = producer_state
        self._health = health
        self._flusher = flusher
        self._cleaning = cleaning
        # How many there were: a copy or a cleaning that is under way finds out by it that the records have changed.
        self.count = 0

    def truncate_to(self, offset: int, *, remote_enabled: bool) -> bool:
        """Drops all records at or past `offset`; False when there were none.

        Below the first segment everything local goes; what is remote below `offset` stays, with its leader epochs.
        """
        self._health.check_online()
        if offset < 0:
            raise ValueError(f"{self._partition} cannot be truncated to {offset}")
        log_start = self._offsets.log_start
        with self._health.disk_errors("truncate"):
            if offset >= self._local.end_offset:
                # A leader that appended nothing may have left an epoch at the log end.
                self._leader_epochs.truncate_from_end(offset)
                return False
            if offset >= self._local.segments.first_base_offset:
                self._truncate_tail(self._local.truncate_to(offset))
            elif remote_enabled and offset > log_start:
                # Kafka forgets both here. As leader it would take what is remote for another lineage's.
                self._start_over(offset, log_start)
                self._leader_epochs.truncate_from_end(offset)
            else:
                self.truncate_fully_and_start_at(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drops everything; the log goes on at `offset`, with an empty epoch cache and no producers.

        `log_start_offset` is given when the records below `offset` are in the remote tier.
        """
        self._health.check_online()
        with self._health.disk_errors("truncate"):
            self._start_over(offset, offset if log_start_offset is None else log_start_offset)
            self._leader_epochs.clear()

    def _truncate_tail(self, end: int) -> None:
        """Everything beside the segments follows: they end at `end` now."""
        offsets, producer_state = self._offsets, self._producer_state
        self._note(end)
        offsets.truncate(end)
        self._leader_epochs.truncate_from_end(end)
        if offsets.move_high_watermark(offsets.high_watermark, end):
            producer_state.on_high_watermark(offsets.high_watermark)
        rebuild_producer_state(producer_state, self._local.segments, end, offsets.log_start)
        # It may have read the markers of transactions again that have long been stable.
        producer_state.on_high_watermark(offsets.high_watermark)

    def _start_over(self, offset: int, log_start_offset: int) -> None:
        self._local.replace_all(offset)
        self._note(offset)
        self._producer_state.truncate_fully(offset)
        self._offsets.start_over(offset, log_start_offset)

    def _note(self, end_offset: int) -> None:
        self.count += 1
        self._flusher.truncate(end_offset)
        self._cleaning.truncate(end_offset)
