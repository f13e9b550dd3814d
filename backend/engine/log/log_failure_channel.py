"""Logs that were found unusable, on their way to the part that stops serving them. Kafka: `LogDirFailureChannel`.

A log finds its damage in the middle of any call; the partition is given up in a later callback.
"""

from __future__ import annotations

from collections import deque

from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import tasks


class LogFailureChannel:
    """One per log manager, with one reader. At most one entry for each log."""

    def __init__(self) -> None:
        self._failures: deque[tuple[UnifiedLog, str]] = deque()
        self._arrived = tasks.Event()

    def add(self, log: UnifiedLog, reason: str) -> None:
        """The log is offline from now on."""
        self._failures.append((log, reason))
        self._arrived.set()

    async def next(self) -> tuple[UnifiedLog, str]:
        """The oldest failure that was not taken yet, with its reason; waits for one."""
        while not self._failures:
            self._arrived.clear()
            await self._arrived.wait()
        return self._failures.popleft()
