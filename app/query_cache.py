"""Results of queries that this process has made: spared from reading again, and kept for when the database is away.

One entry per question, the newest answer only: shared by all sessions, never changed by who gets it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

ENTRIES_MAX: Final = 500
# An answer is never older than this, even if the data version stands still.
AGE_MS_MAX: Final = 30_000


@dataclass(frozen=True, slots=True)
class CachedResult:
    """The result of a query, the version of the data that it is of, and the time of reading."""

    value: Any
    version: Hashable
    read_ms: int


@dataclass(frozen=True, slots=True)
class SlidingMs:
    """A time that a query asks for, `before_ms` before now: other each moment, and the same question all the time.

    The query gets `at_ms`. It is part of the version of a cached result, not of its key: while the database is away
    the last result is of a moment before.
    """

    at_ms: int
    before_ms: int

    @classmethod
    def of(cls, now_ms: int, before_ms: int = 0, *, step_ms: int = 1) -> SlidingMs:
        """In steps, so that the reads of several parts of a page share one result."""
        return cls((now_ms - before_ms) // step_ms * step_ms, before_ms)


class QueryCache:
    """Answers by question; the one that was not used for longest goes first."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[Hashable, CachedResult] = OrderedDict()
        self._lock = Lock()

    def last(self, key: Hashable) -> CachedResult | None:
        """The newest answer, however old."""
        with self._lock:
            cached = self._entries.get(key)
            if cached is not None:
                self._entries.move_to_end(key)
            return cached

    def keep(self, key: Hashable, entry: CachedResult) -> None:
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)

    def get(self, key: Hashable, version: Hashable, now_ms: int, ask: Callable[[], Any]) -> Any:
        """The answer for this version of the data; asks only when it is not known. Two may ask at the same time."""
        cached = self.last(key)
        if cached is not None and cached.version == version and now_ms - cached.read_ms <= AGE_MS_MAX:
            return cached.value
        value = ask()
        self.keep(key, CachedResult(value, version, now_ms))
        return value
