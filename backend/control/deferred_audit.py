"""Audit rows of work that does not wait for the database: kept in memory while it is away, stored once it answers.

The lab breaks and heals brokers without a database; who did it stands in the audit afterwards.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection

from backend.control.control_database import Database, DatabaseAway

# Of 1 kB each; a person makes a few a minute.
WAITING_MAX: Final = 1_000
_log = logging.getLogger(__name__)


class DeferredAudit:
    """Changes in the order in which they were given. Belongs to one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[Callable[[Connection], Any]] = deque()
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Changes that are not stored yet."""
        return len(self._waiting)

    async def write(self, change: Callable[[Connection], Any]) -> None:
        """Stores it now or, while the database is away, later. A change beyond the room is dropped and counted."""
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            _log.error("The database is away and %d entries of the audit were lost", self.dropped)
            return
        self._waiting.append(change)
        await self.store()

    async def store(self) -> None:
        """Stores what waits, as far as the database takes it."""
        while self._waiting:
            change = self._waiting[0]
            try:
                await self._database.write(change)
            except DatabaseAway as error:
                _log.debug("%d changes wait for the database: %s", len(self._waiting), error)
                return
            if self._waiting and self._waiting[0] is change:
                self._waiting.popleft()
