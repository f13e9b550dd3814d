"""Deadlines of any number of waiting requests with one timer: a request that waits costs nothing until it is due."""

from __future__ import annotations

import heapq
import math
from typing import Final, Protocol

from backend.engine.ports import Clock, tasks


class Expiring(Protocol):
    """Something that ends when its time is up."""

    def expire(self) -> None:
        """The time is up; nothing to do when it has ended already."""
        ...


# A deadline may be late by this part of its delay, so that the many equal time-outs of producers share buckets.
LATENESS: Final = 1 / 64


class Deadlines:
    """Due times in buckets: never early, late by at most one 64th of the delay or 1 ms.

    A bucket stays until it or one before it is due, so that requests which come and go reuse it. Delays of one
    magnitude have at most 128 buckets, all delays up to a day under 4,000: below 1 MB whatever the load.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[int, dict[Expiring, None]] = {}
        self._due: list[int] = []
        self._timer: tasks.TimerHandle | None = None
        self._timer_due = 0

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, waiting: Expiring, delay_ms: float) -> int:
        """Calls ``waiting.expire()`` after the delay; the result is for :meth:`remove`."""
        # A power of two, so that the buckets of different delays fall together.
        width = 1 << max(0, int(delay_ms * LATENESS).bit_length() - 1)
        due = math.ceil((self._clock.monotonic_ms() + delay_ms) / width) * width
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._buckets[due] = {}
            heapq.heappush(self._due, due)
            if self._timer is None or due < self._timer_due:
                self._arm(due)
        bucket[waiting] = None
        return due

    def remove(self, waiting: Expiring, due: int) -> None:
        """Forgets a deadline; one that is gone already is fine."""
        bucket = self._buckets.get(due)
        if bucket is not None:
            bucket.pop(waiting, None)

    def _arm(self, due: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = tasks.call_later(max(0.0, due - self._clock.monotonic_ms()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        expired: list[dict[Expiring, None]] = []
        while self._due and self._due[0] <= now_ms:
            expired.append(self._buckets.pop(heapq.heappop(self._due)))
        # A client that is answered every millisecond leaves a hundred empty buckets: to wake for each would cost more
        # than to wait.
        while self._due and not self._buckets[self._due[0]]:
            del self._buckets[heapq.heappop(self._due)]
        if self._due:
            self._arm(self._due[0])
        for bucket in expired:
            # Expiring one may complete others of the same bucket: they note it themselves.
            for waiting in list(bucket):
                waiting.expire()

    def close(self) -> None:
        """Stops the timer; nothing expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._due.clear()
