"""Followers of the metadata log without a vote, as its leader sees them (Kafka's LeaderState.observers)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

# LeaderState.OBSERVER_SESSION_TIMEOUT_MS: who has not fetched for so long is forgotten.
SESSION_TIMEOUT_MS: Final = 300_000
# 9 nodes at most; a stranger that makes up ids pushes out the one that fetched longest ago.
OBSERVERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ObserverProgress:
    """One replica that fetches. Times in ms since the epoch; `last_caught_up_ms` is -1 until it was once at the end."""

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class Observers:
    """The latest fetch of each observer."""

    def __init__(self) -> None:
        self._observers: OrderedDict[int, ObserverProgress] = OrderedDict()

    def note(self, replica_id: int, directory_id: bytes, fetch_offset: int, high_watermark: int, now_ms: int) -> None:
        """A fetch has come; replica ids below 0 are tools."""
        if replica_id < 0:
            return
        before = self._observers.pop(replica_id, None)
        caught_up_ms = now_ms if fetch_offset >= high_watermark else before.last_caught_up_ms if before else -1
        self._observers[replica_id] = ObserverProgress(replica_id, directory_id, fetch_offset, now_ms, caught_up_ms)
        if len(self._observers) > OBSERVERS_MAX:
            self._observers.popitem(last=False)

    def forget(self, replica_id: int) -> None:
        """It is none any more."""
        self._observers.pop(replica_id, None)

    def of(self, replica_id: int) -> ObserverProgress | None:
        """The latest fetch of one replica."""
        return self._observers.get(replica_id)

    def current(self, now_ms: int) -> list[ObserverProgress]:
        """The observers whose session is not over, by id."""
        alive = [
            observer for observer in self._observers.values() if now_ms - observer.last_fetch_ms < SESSION_TIMEOUT_MS
        ]
        return sorted(alive, key=lambda observer: observer.replica_id)
