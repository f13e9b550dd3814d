"""A small thread pool for what would block the event loop: fsync, cold reads, remote I/O, recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

# Two cores run the engine; the rest of the threads wait for disks and stores.
WORKER_THREADS_MAX = 12


class Workers(Protocol):
    """Runs blocking calls off the event loop."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Starts it, at the latest when awaited. Result of ``work()``; its exception is raised there."""
        ...

    def grow(self, threads: int) -> None:
        """At least so many threads from now on; what runs or waits already ends on the old ones."""
        ...

    def close(self) -> None:
        """Waits for running work, starts no more."""
        ...


class ThreadWorkers:
    """Workers on operating-system threads."""

    def __init__(self, threads: int = WORKER_THREADS_MAX) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ebbline-worker")

    def grow(self, threads: int) -> None:
        if threads <= self._threads:
            return
        old, self._threads = self._pool, threads
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ebbline-worker")
        old.shutdown(wait=False)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def in_threads(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Results in order of calls that run at the same time, one thread each; blocks."""
    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return [running.result() for running in [pool.submit(call) for call in calls]]
