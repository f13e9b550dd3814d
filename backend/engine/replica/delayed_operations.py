"""The requests that wait for one partition, and the fetch sessions that watch it. Kafka: `DelayedOperations`.

A partition owns one and says when it has changed. Requests enter and leave it themselves (`purgatory`,
`delayed_remote`); nothing here knows what a partition is, nor what a request does with a change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from backend.protocol.errors import ErrorCode

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)

# A partition in a fetch session: the topic's id or name, and the index.
FetchKey = tuple[Hashable, int]


class DelayedRequest(Protocol[P_contra]):
    """A request that waits for one partition or several."""

    def try_complete(self, partition: P_contra) -> None:
        """The partition has changed: answers, if the request can be answered now."""
        ...


class DelayedRead(DelayedRequest[P_contra], Protocol):
    """A request that can always be answered with what can be read at the moment."""

    def complete(self) -> None: ...


class DelayedAcknowledgement(Protocol):
    """A produce of several partitions, known by their index in the request."""

    def acknowledge(self, index: int, error: ErrorCode) -> None: ...


class Watcher(Protocol[P_contra]):
    """A fetch session that need not look at the partition until it changes."""

    def on_partition_change(self, partition: P_contra, key: FetchKey) -> None:
        """Called once; `key` is what the session knows the partition by."""
        ...


class DelayedOperations(Generic[P]):
    """Every map is ordered by the time of entry."""

    __slots__ = ("deletes", "fetches", "produces", "remote", "watchers")

    def __init__(self) -> None:
        self.fetches: dict[DelayedRead[P], None] = {}
        # Invariant: the offsets that the high watermark must reach rise along the map.
        self.produces: OrderedDict[tuple[DelayedAcknowledgement, int], int] = OrderedDict()
        self.deletes: dict[DelayedRequest[P], None] = {}
        self.remote: dict[DelayedRequest[P], None] = {}
        self.watchers: dict[Watcher[P], FetchKey] = {}

    def notify_watchers(self, partition: P) -> None:
        """Notifies each watching session once; it has to watch again."""
        if self.watchers:
            watchers, self.watchers = self.watchers, {}
            for watcher, key in watchers.items():
                watcher.on_partition_change(partition, key)

    def try_complete(self, partition: P, acknowledged: Callable[[int], ErrorCode | None]) -> None:
        """Answers every request that can be answered. `acknowledged` is the state of a produce that ends before an
        offset: None while it must wait, else its error code.
        """
        # Records first: an acknowledgement takes as long to send, and nothing waits for it but its producer.
        if self.fetches:
            for fetch in list(self.fetches):
                fetch.try_complete(partition)
        if self.produces:
            self._acknowledge(acknowledged)
        if self.deletes:
            for delete in list(self.deletes):
                delete.try_complete(partition)

    def end_term(self, partition: P, acknowledged: Callable[[int], ErrorCode | None]) -> None:
        """The partition's role or its epoch changed: fetches are answered with what can be read now."""
        self._acknowledge(acknowledged)
        for fetch in list(self.fetches):
            fetch.complete()
        for delete in list(self.deletes):
            delete.try_complete(partition)
        for remote in list(self.remote):
            remote.try_complete(partition)

    def _acknowledge(self, acknowledged: Callable[[int], ErrorCode | None]) -> None:
        produces = self.produces
        while produces:
            (produce, index), offset = next(iter(produces.items()))
            error = acknowledged(offset)
            if error is None:
                return
            del produces[(produce, index)]
            produce.acknowledge(index, error)
