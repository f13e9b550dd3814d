"""An object store that a person may break: for the lab and for tests of what a broker does without its remote tier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from backend.engine.ports.object_store import ObjectStore, open_object_store
from backend.protocol.buffers import Buffer

T = TypeVar("T")
StoreFault = Literal["none", "unreachable", "slow", "held"]
"""``waiting_uploads``: uploads wait until the fault is cleared; all else is served."""
SLOW_S: Final = 2.0
# A held upload sits on one of the broker's copier threads; so it checks this often whether the fault is cleared.
HELD_LOOK_S: Final = 0.2


class ObjectStoreFaults:
    """The fault of one broker's connection to the object store. Thread-safe; outlives a restart of the broker."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._fault: StoreFault = "none"
        self._generation = 0
        self._held = 0

    @property
    def waiting_uploads(self) -> int:
        """Uploads that wait now."""
        return self._held

    def set(self, fault: StoreFault) -> None:
        """From now on; what waits goes on when it may."""
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def break_off(self) -> None:
        """Uploads that wait fail, as they do when a broker crashes; the fault is over."""
        with self._changed:
            self._fault = "none"
            self._generation += 1
            self._changed.notify_all()

    def opener(self, inner: Callable[..., ObjectStore] = open_object_store) -> Callable[..., ObjectStore]:
        """As :attr:`Ports.object_store`, behind this switch."""

        def opened(location: str, **options: Any) -> ObjectStore:
            return FaultyObjectStore(inner(location, **options), self)

        return opened

    def enter(self, *, upload: bool) -> None:
        """Applies the fault to one call. Raises OSError."""
        if self._fault == "unreachable":
            raise OSError("The object store is unreachable: the lab has cut it off.")
        if self._fault == "slow":
            time.sleep(SLOW_S)
        if upload and self._fault == "held":
            self._wait()

    def _wait(self) -> None:
        with self._changed:
            generation = self._generation
            self._held += 1
            try:
                while self._fault == "held" and self._generation == generation:
                    self._changed.wait(HELD_LOOK_S)
            finally:
                self._held -= 1
            if self._generation != generation:
                raise OSError("The lab broke off this upload, as a crash of the broker does.")


class FaultyObjectStore:
    """An :class:`ObjectStore` behind a switch."""

    def __init__(self, inner: ObjectStore, switch: ObjectStoreFaults) -> None:
        self._inner = inner
        self._switch = switch

    def put_file(self, key: str, path: str) -> None:
        self._switch.enter(upload=True)
        self._inner.put_file(key, path)

    def put(self, key: str, data: Buffer) -> None:
        self._switch.enter(upload=True)
        self._inner.put(key, data)

    def get(self, key: str) -> bytes:
        self._switch.enter(upload=False)
        return self._inner.get(key)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        self._switch.enter(upload=False)
        return self._inner.get_range(key, start, size)

    def size(self, key: str) -> int:
        self._switch.enter(upload=False)
        return self._inner.size(key)

    def delete(self, key: str) -> None:
        self._switch.enter(upload=False)
        self._inner.delete(key)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        self._switch.enter(upload=False)
        return self._inner.list(prefix)
