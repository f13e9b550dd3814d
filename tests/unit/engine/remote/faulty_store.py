"""An object store that fails the way stores do when they are read: slow, refusing, cutting answers short."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

from backend.engine.ports.object_store import ObjectStore
from backend.engine.remote.storage.object_store_manager import ObjectStoreRemoteStorageManager
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageManager
from backend.protocol.buffers import Buffer

# A blocked call lets go after this time whatever the test does, so that no thread outlives it.
LET_GO_S = 30.0


class FaultyStore:
    """A real store behind faults that a test switches on and off. Writes go through."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        # Raised by so many reads to come; -1: by all.
        self.error: Exception | None = None
        self.failures = 0
        # A function that changes the bytes that reads return.
        self.damage: Callable[[str, bytes], bytes] = lambda key, data: data
        self.reads = 0
        # Reads that are blocked now, and the most that ever were at once.
        self.blocked = 0
        self.blocked_max = 0

    def block(self) -> None:
        """Reads hang from now on."""
        self._open.clear()

    def unblock(self) -> None:
        """Calls that hang, and all later ones, go on."""
        self._open.set()

    def fail(self, error: Exception, times: int = -1) -> None:
        """Reads raise the error."""
        self.error, self.failures = error, times

    def heal(self) -> None:
        """The store is as good as new."""
        self.failures, self.damage = 0, lambda key, data: data
        self.unblock()

    def _read(self, key: str, read: Callable[[], bytes]) -> bytes:
        with self._lock:
            self.reads += 1
            self.blocked += 1
            self.blocked_max = max(self.blocked_max, self.blocked)
            error = self.error if self.failures else None
            self.failures -= self.failures > 0
        try:
            self._open.wait(LET_GO_S)
        finally:
            with self._lock:
                self.blocked -= 1
        if error is not None:
            raise error
        return self.damage(key, read())

    def get(self, key: str) -> bytes:
        return self._read(key, lambda: self._store.get(key))

    def get_range(self, key: str, start: int, size: int) -> bytes:
        return self._read(key, lambda: self._store.get_range(key, start, size))

    def put_file(self, key: str, path: str) -> None:
        self._store.put_file(key, path)

    def put(self, key: str, data: Buffer) -> None:
        self._store.put(key, data)

    def size(self, key: str) -> int:
        return self._store.size(key)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return self._store.list(prefix)


def with_faults(storage: RemoteStorageManager) -> FaultyStore:
    """Puts faults between a running storage manager and its store, once."""
    manager = cast(ObjectStoreRemoteStorageManager, storage)
    if not isinstance(manager._store, FaultyStore):
        manager._store = FaultyStore(manager._store)
    return manager._store
