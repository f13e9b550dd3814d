"""Stores one batch while Spark reads the next: the two take about the same time, on two cores.

A batch may be said to be done before it is stored, because where a stream starts is read from the database and never
from Spark's checkpoint (`spark.job`). At most one batch is being stored and one is read: twice the driver's memory for
a batch. Batches are stored one after the other in the order they came in.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

import pyarrow as pa

T = TypeVar("T")
_NAME: Final = "pipeline store"


class WriteBehind(Generic[T]):
    """Calls ``store`` in another thread with what ``ready`` makes of a batch in the caller's.

    A batch that fails ends it: no later one is stored.
    """

    def __init__(self, ready: Callable[[pa.Table], T], store: Callable[[int, T], None]) -> None:
        self._ready = ready
        self._store = store
        self._pool = ThreadPoolExecutor(1, _NAME)
        self._storing: Future[None] | None = None

    def hand_over(self, batch_id: int, records: pa.Table) -> None:
        """Store the batch once the one before is stored. Raises what that one raised."""
        batch = self._ready(records)
        if self._storing is not None:
            self._storing.result()
        self._storing = self._pool.submit(self._store, batch_id, batch)

    def failed(self) -> bool:
        """Whether the batch handed over last could not be stored."""
        storing = self._storing
        return storing is not None and storing.done() and storing.exception() is not None

    def close(self) -> BaseException | None:
        """Wait until the last batch is stored; what it raised."""
        self._pool.shutdown(wait=True)
        return None if self._storing is None else self._storing.exception()
