"""Concurrency without asyncio in sight: tasks, sleeping, events, futures, time-outs.

The engine runs on one event loop per process; a simulator provides a loop whose clock is virtual,
and everything here follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

Event = asyncio.Event
Lock = asyncio.Lock
Semaphore = asyncio.Semaphore
Queue = asyncio.Queue
Future = asyncio.Future
Task = asyncio.Task
TimerHandle = asyncio.TimerHandle
Cancelled = asyncio.CancelledError
Timeout = TimeoutError

_log = logging.getLogger(__name__)
_running: set[asyncio.Task[Any]] = set()


def _report(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("Task %s ended by an error: %s", task.get_name(), error, exc_info=error)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Result of a coroutine on a new event loop; blocks. For programs and suites outside the engine's loop."""
    return asyncio.run(coroutine)


def spawn(coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Starts a task that is kept alive and whose failure is logged under its name."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _running.add(task)
    task.add_done_callback(_report)
    return task


def start(awaitable: Awaitable[T], *, name: str) -> asyncio.Task[T]:
    """As :func:`spawn`, for a caller that looks at the outcome itself: a failure is not logged."""

    async def wait() -> T:
        return await awaitable

    coroutine = awaitable if isinstance(awaitable, Coroutine) else wait()
    task: asyncio.Task[T] = asyncio.get_running_loop().create_task(coroutine, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def current() -> asyncio.Task[Any] | None:
    """The task that runs now; None in a callback."""
    return asyncio.current_task()


def future() -> asyncio.Future[Any]:
    """A fresh future of the running loop."""
    return asyncio.get_running_loop().create_future()


class EagerFuture(asyncio.Future[T]):
    """A future that runs one callback as soon as it has its result; others run theirs in the next iteration.

    The callback runs within the call of `set_result`, so it must not begin anything that may change what the setter is
    changing.
    """

    _callback: Callable[[asyncio.Future[T]], None] | None = None

    def add_callback(self, function: Callable[[asyncio.Future[T]], None]) -> None:
        """At most one, before there is a result. After an exception or a cancellation it runs in the next iteration."""
        self._callback = function
        self.add_done_callback(self._run_callback)

    def set_result(self, result: T) -> None:
        self.remove_done_callback(self._run_callback)  # it runs here, not again in the next iteration
        super().set_result(result)
        self._run_callback(self)

    def _run_callback(self, _done: asyncio.Future[T]) -> None:
        if self._callback is None:
            return
        try:
            self._callback(self)
        except Exception as error:  # as the loop does with what others raise: it is logged, and the setter goes on
            context = {"message": "Exception in the callback of an eager future", "exception": error, "future": self}
            self.get_loop().call_exception_handler(context)


def eager_future() -> EagerFuture[Any]:
    """A new one of the running loop."""
    return EagerFuture(loop=asyncio.get_running_loop())


class ShieldedFuture(asyncio.Future[T]):
    """A future that no cancellation ends: a task that is cancelled while it waits for it ends once it is done, and the
    outcome is dropped.
    """

    def cancel(self, msg: Any = None) -> bool:
        return False


def shielded_future() -> ShieldedFuture[Any]:
    """A new one of the running loop."""
    return ShieldedFuture(loop=asyncio.get_running_loop())


async def sleep_ms(delay_ms: float) -> None:
    """Waits; 0 gives other tasks a turn."""
    await asyncio.sleep(delay_ms / 1000.0)


async def wait_for(awaitable: Awaitable[T], timeout_ms: float) -> T:
    """Result within the time, else :data:`Timeout` and the awaitable is cancelled.

    Not asyncio.wait_for: before Python 3.12 that one swallows a cancellation that comes together with the result.
    """
    # As asyncio.timeout does it, in half of its steps: requests to other nodes go through here.
    task, expired = asyncio.current_task(), False
    assert task is not None
    cancelled_before = task.cancelling()

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(max(0.0, timeout_ms) / 1000.0, expire)
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        # A cancellation by another task meanwhile counts more.
        if expired and task.cancelling() == cancelled_before + 1:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
        if expired:
            task.uncancel()


def shield(awaitable: Awaitable[T]) -> asyncio.Future[T]:
    """Waits for it without cancelling it when the waiting is cancelled."""
    return asyncio.shield(awaitable)


async def first(running: Iterable[asyncio.Future[Any]]) -> None:
    """Returns once one of them is done; none is cancelled, also when the caller is."""
    await asyncio.wait(list(running), return_when=asyncio.FIRST_COMPLETED)


async def gather(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """All results in order; the first exception is raised."""
    return list(await asyncio.gather(*awaitables))


async def gather_settled(awaitables: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    """All results in order, exceptions as values."""
    return list(await asyncio.gather(*awaitables, return_exceptions=True))


def call_later(delay_ms: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
    """Calls once after the delay unless cancelled."""
    return asyncio.get_running_loop().call_later(delay_ms / 1000.0, callback)


def call_soon(callback: Callable[[], object]) -> None:
    """Calls after the current callback, before anything that waits for time."""
    asyncio.get_running_loop().call_soon(callback)


# A task that swallowed its cancellation is asked again after this time.
_CANCEL_AGAIN_S = 1.0


async def cancel(task: asyncio.Task[Any] | None) -> None:
    """Cancels a task and waits until it has ended; its own outcome is dropped."""
    if task is None:
        return
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_S)
