"""Making what is derived from a log's records again: indexes of sealed segments, producer snapshots.

Kafka: `LogSegment.recover`, `UnifiedLog.rebuildProducerState`; there a damaged index is found and repaired at a start.
"""

from __future__ import annotations

from typing import NamedTuple

from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.log_health import LogHealth
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.recovery.segment_recovery import rebuild_producer_state, recover_segment
from backend.engine.log.segments.log_segment import LogSegment
from backend.engine.log.segments.log_segments import LogSegments


class IndexWork(NamedTuple):
    """A sealed segment whose indexes are to be made again, those before it, and the snapshots up to its base."""

    segment: LogSegment
    before: LogSegments
    producers: ProducerStateManager


class IndexRepair:
    """The repairs of one log. The log stays in use meanwhile."""

    def __init__(
        self,
        local: LocalLog,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        health: LogHealth,
    ) -> None:
        self._local = local
        self._leader_epochs = leader_epochs
        self._producer_state = producer_state
        self._health = health

    def next_work(self) -> IndexWork | None:
        """Returns the repair of the oldest segment with a damaged index; None when there is none."""
        damaged, segments = self._health.damaged_indexes, self._local.segments
        while damaged and self._health.offline_reason is None:
            base_offset = min(damaged)
            before = [segment for segment in segments if segment.base_offset < base_offset]
            oldest = segments.floor(base_offset)
            if oldest is not None and oldest.base_offset == base_offset and oldest.sealed:
                return IndexWork(oldest, LogSegments(before), self._producer_state.stored_before(base_offset + 1))
            # Retention, compaction or a truncation has taken it.
            self._health.forget_damaged_index(base_offset)
        return None

    def rebuild(self, work: IndexWork) -> None:
        """Makes the index files of a sealed segment again. Blocking; any thread. Raises `CorruptLog` and OSError."""
        segment, local = work.segment, self._local
        fresh = LogSegment.open_sealed(local.disk, segment.files.dir, segment.base_offset, segment.next_offset)
        producers, size_bytes = work.producers, fresh.size_bytes
        start = work.before.first_base_offset if work.before else segment.base_offset
        rebuild_producer_state(producers, work.before, segment.base_offset, start)
        epochs = LeaderEpochCache(self._leader_epochs.entries)
        try:
            damage = recover_segment(fresh, producers, epochs, local.config, size_bytes)
            if damage is not None:
                raise CorruptLog(f"{damage.reason}; it is copied again by itself where other replicas exist")
            fresh.seal()
        finally:
            fresh.files.close()

    def rebuilt(self, work: IndexWork) -> None:
        """The files are there."""
        self._health.forget_damaged_index(work.segment.base_offset)
        work.segment.forget_damage()

    def restore_snapshot(self, offset: int) -> bool:
        """Makes the producer snapshot at a sealed segment's end again where its file is lost or makes no sense; whether
        it did. Reads the segments behind the snapshot before it, so it is for a worker thread; the caller registers it
        with `producer_state.find_stored`. Raises OSError.

        Without any snapshot before it, the state is rebuilt from the local segments.
        """
        if self._producer_state.is_intact(offset):
            return False
        producers = self._producer_state.stored_before(offset)
        segments = LogSegments([segment for segment in list(self._local.segments) if segment.base_offset < offset])
        if segments:
            rebuild_producer_state(producers, segments, offset, segments.first_base_offset)
        return True
