"""A small thread pool for what would block the event loop: fsync, cold reads, remote I/O, recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from backend.engine.ports import tasks

T = TypeVar("T")

# Two cores run the engine; the rest of the threads wait for disks and stores.
WORKER_THREADS_MAX = 12


class Workers(Protocol):
    """Runs blocking calls off the event loop."""

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Starts it. The future has the result of ``work()`` or its exception. No cancellation ends work that runs, so
        it ends no waiting either: who is cancelled meanwhile is so once the work has ended.
        """
        ...

    def grow(self, threads: int) -> None:
        """At least so many threads from now on; what runs or waits already ends on the old ones."""
        ...

    def close(self) -> None:
        """Waits for running work, starts no more: who asks for it, or had asked, is cancelled."""
        ...


class ThreadWorkers:
    """Workers on operating-system threads."""

    def __init__(self, threads: int = WORKER_THREADS_MAX) -> None:
        self._threads = threads
        self._closed = False
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ebbline-worker")

    def grow(self, threads: int) -> None:
        if threads <= self._threads:
            return
        old, self._threads = self._pool, threads
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ebbline-worker")
        old.shutdown(wait=False)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        # As run_in_executor, which takes a turn of the loop more.
        loop, done = asyncio.get_running_loop(), tasks.shielded_future()

        def call_on_loop(callback: Callable[[], object]) -> None:
            # After the loop's end nobody waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(callback)

        def carry_out() -> None:
            try:
                outcome = work()
            except BaseException as error:
                call_on_loop(partial(done.set_exception, error))
            else:
                call_on_loop(partial(done.set_result, outcome))

        def never_began(submitted: Future[None]) -> None:
            if submitted.cancelled():
                call_on_loop(partial(done.set_exception, tasks.Cancelled()))

        if self._closed:
            done.set_exception(tasks.Cancelled())
        else:
            self._pool.submit(carry_out).add_done_callback(never_began)
        return done

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)


def in_threads(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Results in order of calls that run at the same time, one thread each; blocks."""
    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return [running.result() for running in [pool.submit(call) for call in calls]]
