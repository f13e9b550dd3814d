"""Work in time slices, so that it never holds the loop up for long.

Work that takes time for each of many elements is a generator: it yields after each, where the loop may serve others,
and returns its result. Mostly it ends within its first time slice and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from backend.engine.ports import tasks

T = TypeVar("T")
Steps = Generator[None, None, T]

# Between two turns of others. Five such turns, each with a garbage collection or another request in it, are below the
# 250 ms that any other client may be held up.
SLICE_MS: Final = 20.0
# The first turn of work that begins while other such work waits for its next one.
BUSY_SLICE_MS: Final = 2.0


def in_parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """So many items at a time."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


class Unfinished(Generic[T]):
    """Work that is not done after its first time slice."""

    __slots__ = ("steps",)

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps


class TimeSlice:
    """Gives the loop to others whenever the time slice of its coroutine is over."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._ends_ms = monotonic_ms() + SLICE_MS

    async def step(self) -> None:
        """Call it between two elements."""
        if self._monotonic_ms() >= self._ends_ms:
            await tasks.sleep_ms(0)
            self._ends_ms = self._monotonic_ms() + SLICE_MS


class TimeSlicer:
    """Shares the loop of one node: of all such work one part is done between two time slices of others."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = tasks.Lock()
        self._waiting = 0

    def begin(self, steps: Steps[T]) -> T | Unfinished[T]:
        """The result, if the work ends within its first turn."""
        return self._go_on(steps, BUSY_SLICE_MS if self._waiting else SLICE_MS)

    async def finish(self, unfinished: Unfinished[T]) -> T:
        """The result of work that has begun; others have turns in between."""
        self._waiting += 1
        try:
            while True:
                async with self._lock:
                    await tasks.sleep_ms(0)
                    outcome = self._go_on(unfinished.steps, SLICE_MS)
                if not isinstance(outcome, Unfinished):
                    return outcome
        finally:
            self._waiting -= 1

    async def do(self, steps: Steps[T]) -> T:
        """All of it."""
        outcome = self.begin(steps)
        return await self.finish(outcome) if isinstance(outcome, Unfinished) else outcome

    def time_slice(self) -> TimeSlice:
        """For a coroutine that does something for each of many elements."""
        return TimeSlice(self._monotonic_ms)

    def _go_on(self, steps: Steps[T], slice_ms: float) -> T | Unfinished[T]:
        ends_ms = self._monotonic_ms() + slice_ms
        try:
            while True:
                next(steps)
                if self._monotonic_ms() >= ends_ms:
                    return Unfinished(steps)
        except StopIteration as done:
            result: T = done.value
            return result
