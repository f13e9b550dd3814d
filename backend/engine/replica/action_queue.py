"""Partitions whose delayed requests are tried once the present callback has ended. Kafka: `DelayedActionQueue`.

To complete a request inside of an append would answer others while the partition's own change is half made.
"""

from __future__ import annotations

import logging
from typing import Protocol

from backend.engine.ports import tasks

_log = logging.getLogger(__name__)


class Completable(Protocol):
    """A partition with delayed requests."""

    def complete_delayed_requests(self) -> None: ...


class ActionQueue:
    """The partitions of one broker that have changed."""

    def __init__(self) -> None:
        self._changed: dict[Completable, None] = {}

    def add(self, partition: Completable) -> None:
        """Tries the partition's delayed requests after the present callback, unless `complete_actions` comes before."""
        if not self._changed:
            tasks.call_soon(self.complete_actions)
        self._changed[partition] = None

    def complete_actions(self) -> None:
        """Tries them now. Requests are answered; none begins here."""
        changed, self._changed = self._changed, {}
        for partition in changed:
            try:
                partition.complete_delayed_requests()
            except Exception:  # neither the other partitions nor the caller are to fail with this one
                _log.exception("%s could not answer the requests that wait for it", partition)
