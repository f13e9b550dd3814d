"""Objects by key: the remote tier's storage. Blocking calls, made on worker threads.

obstore does the work for folders, memory, S3, Azure and GCS alike; missing objects raise
FileNotFoundError, everything else that fails raises OSError or obstore's own errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import obstore
from obstore.store import LocalStore, MemoryStore, from_url

Buffer = bytes | bytearray | memoryview


class ObjectStore(Protocol):
    """A flat namespace of immutable byte strings."""

    def put_file(self, key: str, path: str) -> None:
        """Uploads a file; overwrites."""
        ...

    def put(self, key: str, data: Buffer) -> None:
        """Stores bytes; overwrites."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object; FileNotFoundError when missing."""
        ...

    def get_range(self, key: str, start: int, size: int) -> bytes:
        """``size`` bytes from ``start``, fewer at the object's end; FileNotFoundError when missing."""
        ...

    def size(self, key: str) -> int:
        """Bytes of the object; FileNotFoundError when missing."""
        ...

    def delete(self, key: str) -> None:
        """Missing is fine."""
        ...

    def list(self, prefix: str) -> list[tuple[str, int]]:
        """(key, size) of every object whose key starts with the folder ``prefix``."""
        ...


class ObstoreObjectStore:
    """Any store that obstore reaches."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put_file(self, key: str, path: str) -> None:
        with open(path, "rb") as file:
            obstore.put(self._store, key, file)

    def put(self, key: str, data: Buffer) -> None:
        obstore.put(self._store, key, bytes(data))

    def get(self, key: str) -> bytes:
        return bytes(obstore.get(self._store, key).bytes())

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if size <= 0:
            return b""
        return bytes(obstore.get_range(self._store, key, start=start, length=size))

    def size(self, key: str) -> int:
        return int(obstore.head(self._store, key)["size"])

    def delete(self, key: str) -> None:
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return

    def list(self, prefix: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for page in obstore.list(self._store, prefix):
            found.extend((meta["path"], int(meta["size"])) for meta in page)
        return found


def open_object_store(
    location: str, *, config: Mapping[str, str] | None = None, client: Mapping[str, str] | None = None
) -> ObjectStore:
    """A store by location: a folder path, ``memory://``, or an URL such as ``s3://bucket/prefix``.

    `config` and `client` are obstore's settings of a store by URL and of its HTTP client (``aws_endpoint``,
    ``allow_http``); what is not given comes from the environment (``AWS_ENDPOINT``, …).
    """
    if location == "memory://":
        return ObstoreObjectStore(MemoryStore())
    if "://" not in location:
        return ObstoreObjectStore(LocalStore(location, mkdir=True))
    given: dict[str, Any] = {}
    if config:
        given["config"] = dict(config)
    if client:
        given["client_options"] = dict(client)
    return ObstoreObjectStore(from_url(location, **given))
