"""An event loop whose time jumps to the next timer instead of waiting: no sockets, no threads, no real time.

Callbacks run in the order in which asyncio would run them, so a run depends on nothing but what the callbacks do.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVar

T = TypeVar("T")

# Timers that fall together within this time run in one round, as on a real loop.
RESOLUTION_S: Final = 1e-6

# The process whose code is running: what it starts belongs to it, and ends with it when its machine crashes.
PROCESS: ContextVar[object | None] = ContextVar("simulated process", default=None)


class Stuck(AssertionError):
    """Nothing is ready and no timer is set: whoever waits would wait for ever."""


class _Jump:
    """In place of a selector: instead of waiting for sockets it moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck("the simulation waits for something that nothing will bring")
        if timeout > 0:
            self._loop.jump()
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Run it with :meth:`play`."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = _Jump(self)
        self._clock_resolution = RESOLUTION_S
        # Called when all that was ready has run, before time moves on.
        self.on_jump: Callable[[], None] | None = None

    def time(self) -> float:
        return self._now_s

    @property
    def now_ms(self) -> float:
        return self._now_s * 1000.0

    def jump(self) -> None:
        """To the time of the next timer."""
        if self.on_jump is not None:
            self.on_jump()
        self._now_s = max(self._now_s, self._timers[0].when())

    @property
    def _timers(self) -> list[asyncio.TimerHandle]:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own heap
        return timers

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        raise AssertionError("another thread calls into the simulation")

    def run_in_executor(  # type: ignore[override]  # the supertype's is generic over its arguments
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        raise AssertionError(f"{func} would run on a thread; simulated code goes through ports.workers")

    def drop(self, process: object) -> None:
        """Nothing of a process runs any more: not its tasks, not its timers."""
        for handle in self._ready:  # type: ignore[attr-defined]  # asyncio's own queue
            if _owner(handle) is process:
                handle.cancel()
        kept = []
        for timer in self._timers:
            if _owner(timer) is process:
                timer.cancel()
            if timer.cancelled():
                # What a heap of timers counts: this one is out of it.
                timer._scheduled = False  # type: ignore[attr-defined]  # asyncio's own flag
            else:
                kept.append(timer)
        self._timers[:] = kept
        self._timer_cancelled_count = 0
        heapq.heapify(self._timers)

    def play(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs to the end of `main` and closes the loop."""
        try:
            return self.run_until_complete(main)
        finally:
            self.close()


def _owner(handle: asyncio.Handle) -> object | None:
    context: Context = handle._context  # type: ignore[attr-defined]  # what the callback runs in
    return context.get(PROCESS)
