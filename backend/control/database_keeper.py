"""Opens the database, as often as it takes, and looks whether it is still the same one.

Brokers, lab and Kafka clients run without it. What needs it is told what it waits for (`Database.closed`), and goes on
by itself once the database answers and has this program's schema.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from backend.control.database import Database
from backend.control.deferred import Deferred
from backend.store import migrate
from backend.store.engine import StoreError

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 5.0
LOOK_EVERY_S: Final = 1.0
_log = logging.getLogger(__name__)


class DatabaseKeeper:
    """Belongs to one event loop; `run` alone opens and closes the database."""

    def __init__(self, database: Database, prepare: Callable[[Connection], None], deferred: Deferred) -> None:
        """`prepare` is stored each time that it opens, before anyone else may write; `deferred` once it is open."""
        self._database = database
        self._prepare = prepare
        self._deferred = deferred
        self._said = ""
        self.tried = False
        """Whether it was tried to open it: what it waits for now is not the program's own."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            if self._database.closed is not None:
                await self._open()
            await self._deferred.store(self._database)
            await asyncio.sleep(LOOK_EVERY_S)
            if (closed := self._database.look()) is not None:
                self._say(closed)

    async def _open(self) -> None:
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await asyncio.to_thread(migrate.upgrade, self._database.url)
                await self._database.before_admission(self._prepare)
                self._database.admit()
            except StoreError as error:
                self._database.refuse(str(error))
                self._say(f"{error} Brokers serve without it.")
            else:
                if self._said:
                    _log.info("The database answers: what waited for it goes on")
                self._said = ""
                return
            finally:
                self.tried = True
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_MAX_S, pause_s * 2)

    def _say(self, reason: str) -> None:
        """Once for each reason."""
        if reason != self._said:
            _log.warning("The database is not open: %s", reason)
        self._said = reason
