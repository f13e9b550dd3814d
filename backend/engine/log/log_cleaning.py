"""How far one partition's log is compacted, and whether a cleaning may begin (`LogCleanerManager` of Kafka)."""

from __future__ import annotations

from collections.abc import Sequence

from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_health import LogHealth
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.segments.log_segment import LogSegment


class LogCleaning:
    """The compaction state of one log, for `cleaner.log_cleaner`, which cleans, and for those who wait for it."""

    def __init__(self, local: LocalLog, producer_state: ProducerStateManager, health: LogHealth) -> None:
        self._local = local
        self._producer_state = producer_state
        self._health = health
        # First offset that has never been cleaned; None: all.
        self.checkpoint: int | None = None
        # Whether a cleaning runs, during which retention waits.
        self.under_way = False
        # Whether a cleaning has to wait, since the log is being moved to another directory.
        self.paused = False

    def replace_segments(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Puts a segment that compaction made in the place of the sealed ones that it was made of."""
        self._health.check_online()
        with self._health.disk_errors("swap a cleaned segment into"):
            self._local.replace(old, new)
            for segment in old[1:]:
                self._producer_state.remove_snapshot(segment.base_offset)

    def truncate(self, end_offset: int) -> None:
        """The log ends here now; other records may come from here on."""
        if self.checkpoint is not None:
            self.checkpoint = min(self.checkpoint, end_offset)
