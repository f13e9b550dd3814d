"""An event loop whose time jumps to the next timer instead of waiting: no sockets, no threads, no real time.

Callbacks run in the order in which asyncio would run them, those of one moment in the order in which they were asked
for, so a run depends on nothing but what the callbacks do. Most of a run's callbacks are a few instructions long: what
asyncio does around each of them is done here in fewer steps.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

T = TypeVar("T")

# Timers that fall together within this time run in one round, as on a real loop.
RESOLUTION_S: Final = 1e-6

# The process whose code is running: what it starts belongs to it, and ends with it when its machine crashes.
PROCESS: ContextVar[object | None] = ContextVar("simulated process", default=None)


class Stuck(AssertionError):
    """Nothing is ready and no timer is set: every waiting task would wait for ever."""


class _Call(asyncio.TimerHandle):
    """A callback that is to run, at once or at a time."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        # Not the supertype's: it asks the loop for its debug mode, each time.
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]  # as asyncio does: nothing is kept alive


class VirtualLoop(asyncio.BaseEventLoop):
    """Run it with :meth:`play`."""

    _ready: Any
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        # (when, number, callback): of two at one time the older one is first.
        self._timers: list[tuple[float, int, _Call]] = []
        self._number = 0
        # Called when all that was ready has run, before time moves on, but not before this time.
        self.on_jump: Callable[[], None] | None = None
        self.no_jump_before_s = 0.0

    def time(self) -> float:
        return self._now_s

    @property
    def now_ms(self) -> float:
        return self._now_s * 1000.0

    def call_soon(  # type: ignore[override]  # the supertype's is generic over its arguments
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        call = _Call(0.0, callback, args, copy_context() if context is None else context)
        self._ready.append(call)
        return call

    def call_at(  # type: ignore[override]  # likewise
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        call = _Call(when, callback, args, copy_context() if context is None else context)
        self._number = number = self._number + 1
        heapq.heappush(self._timers, (when, number, call))
        return call

    def call_later(  # type: ignore[override]  # likewise
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """The callbacks that are ready; if there are none, time moves on to the next timer."""
        ready, timers, pop = self._ready, self._timers, heapq.heappop
        while timers and timers[0][2]._cancelled:
            pop(timers)
        if not (ready or self._stopping):
            if not timers:
                raise Stuck("the simulation waits for something that nothing will bring")
            if self.on_jump is not None and self._now_s >= self.no_jump_before_s:
                self.on_jump()
            if timers[0][0] > self._now_s:
                self._now_s = timers[0][0]
        end_s = self._now_s + RESOLUTION_S
        while timers and timers[0][0] < end_s:
            ready.append(pop(timers)[2])
        # The callbacks that these schedule run in the next round.
        for _ in range(len(ready)):
            call = ready.popleft()
            if not call._cancelled:
                try:
                    call._context.run(call._callback, *call._args)
                except Exception as error:
                    self.call_exception_handler({"message": f"in {call}", "exception": error})

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
        for call in self._ready:
            if call._context.get(PROCESS) is process:
                call.cancel()
        for _, _, call in self._timers:
            if call._context.get(PROCESS) is process:
                call.cancel()
        self._timers[:] = [timer for timer in self._timers if not timer[2]._cancelled]
        heapq.heapify(self._timers)

    def play(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs to the end of `main` and closes the loop."""
        try:
            return self.run_until_complete(main)
        finally:
            self.close()
