"""The database behind the event loop: every statement runs on a thread, so that a locked file never stops a broker.

It is open once `admit` was called, and closed again by `refuse`: meanwhile every call raises at once and
names what it waits for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine

from backend.store.backups.restoring import Restored
from backend.store.connection.database import DatabaseAway as DatabaseAway
from backend.store.connection.database import create_engine, reading, sqlite_file, store_error, writing
from backend.store.connection.database_faults import DatabaseFault, diagnose
from backend.store.connection.limits import SERVING
from backend.store.connection.sqlite import file_identity

# API requests and operations; the observer writes on its own thread. 5 together, of the pool's 15 connections.
THREADS: Final = 4
# After a server did not answer, others get the same error at once for so long, and do not wait one after the other.
RETRY_S: Final = 1.0
WAITS: Final = "The backend is starting and has not opened its database yet; wait a moment."
T = TypeVar("T")


class Database:
    """One engine and the threads that use it."""

    def __init__(self, url: str, *, closed: str | None = None) -> None:
        """`closed`: why nothing may be asked until `admit`."""
        self.url = url
        self.engine: Engine = create_engine(url, SERVING, name="backend")
        self.file = sqlite_file(self.engine)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="control-db")
        self._observer_thread = ThreadPoolExecutor(1, thread_name_prefix="observer-db")
        self._closed = closed
        self.lost: str | None = None
        """Why the file that was admitted is not used any more; None: it is, or none was."""
        self.suspect = False
        """An answer said that the file is damaged."""
        self.restored: list[Restored] = []
        """How it was put back, in this process."""
        self.openings = 0
        """How often it was admitted: it may be another database each time."""
        self._identity = None if closed is not None or self.file is None else file_identity(self.file)
        self.responded_ms: int | None = None
        """When it last did what this process wanted of it: the observer writes every few seconds, day and night."""
        self._failed: tuple[float, DatabaseAway] | None = None
        self._observer_failed: tuple[float, Exception] | None = None
        self._opened = asyncio.Event()
        if closed is None:
            self._opened.set()

    @property
    def closed(self) -> str | None:
        """Why nothing is asked of it now; None while it is open."""
        return self._closed

    def admit(self) -> None:
        """It has this program's schema: from now on it is used, as long as it is the same file."""
        self._identity = None if self.file is None else file_identity(self.file)
        self._closed = self._failed = self.lost = None
        self.suspect = False
        self.openings += 1
        self._opened.set()

    def refuse(self, reason: str) -> None:
        """Nothing is asked of it until `admit`."""
        self._closed = reason
        self._opened.clear()

    async def opened(self) -> None:
        """Returns while it is open."""
        await self._opened.wait()

    async def read(self, query: Callable[[Connection], T]) -> T:
        """The result of `query`, which sees one consistent state. Raises DatabaseAway."""

        def job() -> T:
            with reading(self.engine) as connection:
                return query(connection)

        return await self._run(self._threads, job)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Commits what `change` does, all or nothing, and gives its result. Raises DatabaseAway."""

        def job() -> T:
            with writing(self.engine) as connection:
                return change(connection)

        return await self._run(self._threads, job)

    async def before_admission(self, change: Callable[[Connection], T]) -> T:
        """As `write`, while it is closed: for who is about to open it. Raises DatabaseAway."""

        def job() -> T:
            with writing(self.engine) as connection:
                return change(connection)

        return await self._on(self._threads, job)

    async def observe(self, job: Callable[[], T]) -> T:
        """Runs a job of the observer; one at a time, in order. Raises DatabaseAway.

        A job that waited for another's failure gets the same error: behind SQLite's lock each would wait ten seconds.
        """
        submitted_s = time.monotonic()

        def work() -> T:
            if self._observer_failed is not None and self._observer_failed[0] > submitted_s:
                raise self._observer_failed[1]
            try:
                return job()
            except Exception as error:  # each driver has other kinds
                if diagnose(error) is not None:
                    self._observer_failed = (time.monotonic(), error)
                raise

        return await self._run(self._observer_thread, work)

    def check_file(self) -> str | None:
        """Why the file is not the one that was admitted; None: it is. Closes the database when it is not."""
        if self._closed is None and self.file is not None and file_identity(self.file) != self._identity:
            gone = file_identity(self.file) is None
            how = "was moved or deleted" if gone else "was replaced by another file"
            self._lose(f"The database file {self.file} {how} while it was in use: nothing is written to it.")
        elif self._closed is None and self.suspect:
            self._lose(f"The database file {self.file} is damaged: nothing is written to it.")
        return self._closed

    def _lose(self, reason: str) -> None:
        self.lost = reason
        self.refuse(reason)

    async def _run(self, threads: ThreadPoolExecutor, job: Callable[[], T]) -> T:
        if (closed := self.check_file()) is not None:
            raise DatabaseAway(closed)
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise DatabaseAway(str(self._failed[1]), self._failed[1].diagnosis)
        return await self._on(threads, job)

    async def _on(self, threads: ThreadPoolExecutor, job: Callable[[], T]) -> T:
        try:
            result = await asyncio.get_running_loop().run_in_executor(threads, job)
        except Exception as error:  # each driver has other kinds; no fault of the database is raised again
            away = store_error(self.url, error)
            if not isinstance(away, DatabaseAway):
                raise
            if away.diagnosis is not None and away.diagnosis.fault in (DatabaseFault.AWAY, DatabaseFault.CONNECTIONS):
                self._failed = (time.monotonic() + RETRY_S, away)
            if away.diagnosis is not None and away.diagnosis.fault is DatabaseFault.DAMAGED and self.file is not None:
                self.suspect = True
            raise away from error
        self.responded_ms = time.time_ns() // 1_000_000
        return result

    async def close(self) -> None:
        """Waits for running jobs, then closes all connections."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._threads.shutdown)
        await loop.run_in_executor(None, self._observer_thread.shutdown)
        self.engine.dispose()
