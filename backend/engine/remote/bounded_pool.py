"""So many at once and no more: the pools of the remote log manager, whose sizes are dynamic settings.

Work is asynchronous, but nearly all of its time a thread is busy for it with a call to the storage. No cancellation
ends that call, and the work keeps its place in the pool until the thread is free: the pools bound the threads whatever
happens to those who wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backend.engine.ports import tasks

T = TypeVar("T")


class PoolFull(Exception):
    """Too much waits already."""


class BoundedPool:
    """Runs work in order of arrival, `size()` pieces at once; at most `pending_max` (None: any number) wait."""

    def __init__(self, size: Callable[[], int], *, pending_max: int | None = None) -> None:
        self._size = size
        self._pending_max = pending_max
        self._waiting: deque[tasks.Future[None]] = deque()
        self.running = 0
        self.members = 0
        """Those who come here again and again."""

    @property
    def pending(self) -> int:
        """Pieces of work that wait."""
        return len(self._waiting)

    @property
    def idle_fraction(self) -> float:
        """Part of the pool that has nothing to do."""
        return max(0.0, 1.0 - self.running / self._size())

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work()`. PoolFull at once when too much waits.

        Cancelling the caller takes work that waits out of the queue, and cancels work that runs.
        """
        await self._acquire()
        try:
            return await work()
        finally:
            self.running -= 1
            self._next()

    async def _acquire(self) -> None:
        if self.running >= self._size() or self._waiting:
            if self._pending_max is not None and len(self._waiting) >= self._pending_max:
                raise PoolFull(f"{len(self._waiting)} pieces of work wait already")
            waiter: tasks.Future[None] = tasks.future()
            self._waiting.append(waiter)
            try:
                await waiter
            except tasks.Cancelled:
                if waiter.done() and not waiter.cancelled():
                    # Our turn came together with the cancellation: pass it on.
                    self.running -= 1
                    self._next()
                elif waiter in self._waiting:
                    self._waiting.remove(waiter)
                raise
        else:
            self.running += 1

    def resized(self) -> None:
        """The size may have grown: what waits need not wait for the next piece of work to end."""
        self._next()

    def _next(self) -> None:
        while self._waiting and self.running < self._size():
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.running += 1
                waiter.set_result(None)


async def to_its_end(running: tasks.Task[T]) -> T:
    """The result of work that others wait for too, and that no cancellation of one of them ends early. A caller that is
    cancelled meanwhile raises Cancelled once the work has ended; its outcome is dropped.
    """
    cancelled = False
    while not running.done():
        try:
            await tasks.first([running])
        except tasks.Cancelled:
            cancelled = True
    if cancelled:
        if not running.cancelled():
            running.exception()
        raise tasks.Cancelled
    return running.result()
