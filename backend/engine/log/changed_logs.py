"""Logs that have changed by themselves, on their way to the part that serves them. Kafka: `LogDirFailureChannel`.

A log finds its damage and raises its log start in the middle of any call; the partition follows in a later callback.
"""

from __future__ import annotations

from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import tasks


class ChangedLogs:
    """One per log manager, with one reader. At most one entry for each log: the reader looks at the log itself."""

    def __init__(self) -> None:
        self._changed: dict[UnifiedLog, None] = {}
        self._arrived = tasks.Event()

    def add(self, log: UnifiedLog) -> None:
        """The log has gone offline (`offline_reason`), or its log start was raised."""
        self._changed[log] = None
        self._arrived.set()

    async def next(self) -> UnifiedLog:
        """The log that changed first of those that were not taken yet; waits for one."""
        while not self._changed:
            self._arrived.clear()
            await self._arrived.wait()
        log = next(iter(self._changed))
        del self._changed[log]
        return log
