"""The database behind the event loop: every statement runs on a thread, so that a locked file never stops a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.store.engine import StoreError, create_engine, describe, reading, writing

# API requests and operations; the observer writes on a thread of its own. 5 together, of the pool's 15 connections.
THREADS: Final = 4
T = TypeVar("T")


class DatabaseAway(StoreError):
    """The database did not take or give what was asked: locked, full, or not reachable. Asking again may work."""


class Database:
    """One engine and the threads that use it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine: Engine = create_engine(url)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="control-db")
        self._observer_thread = ThreadPoolExecutor(1, thread_name_prefix="observer-db")

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

    async def observe(self, job: Callable[[], T]) -> T:
        """Runs a job of the observer; one at a time, in order. Raises DatabaseAway."""
        return await self._run(self._observer_thread, job)

    async def _run(self, threads: ThreadPoolExecutor, job: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, job)
        except (OperationalError, InterfaceError, PoolTimeout) as error:
            cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            next_step = "make room for it" if "full" in cause or "No space" in cause else "try again in a moment"
            raise DatabaseAway(
                f"The database {describe(self.url)} cannot be used now: {cause}: {next_step}."
            ) from error

    async def close(self) -> None:
        """Waits for running jobs, then closes all connections."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._threads.shutdown)
        await loop.run_in_executor(None, self._observer_thread.shutdown)
        self.engine.dispose()
