"""Objects by key: the remote tier's storage. Blocking calls, made on worker threads.

obstore does the work for folders, memory, S3, Azure and GCS alike; missing objects raise
FileNotFoundError, everything else that fails raises OSError or obstore's own errors. A bucket that is not there is no
missing object: a caller that deletes would believe that all of them are deleted. In a folder the bytes of objects
go the short way: the kernel copies a segment's file, and a range is one read.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, Protocol

import obstore
from obstore.store import LocalStore, MemoryStore, from_url

from backend.protocol.buffers import Buffer
from backend.tiering.store_client import allows_plain_http, panics_as_errors


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


# Three pauses of at most 100 ms: a store that refuses has done so within a consumer's wait for it, which is 500 ms by
# default (remote.fetch.max.wait.ms). Uploads keep obstore's patience, 10 retries within 180 s: nobody waits for them,
# and what they give up is sent again from the start.
READ_RETRIES_MAX: Final = 3
READ_RETRIES: Final[Any] = {
    "max_retries": READ_RETRIES_MAX,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {
        "init_backoff": timedelta(milliseconds=50),
        "max_backoff": timedelta(milliseconds=100),
        "base": 2,
    },
}

# Answers of S3, Azure and GCS for a bucket or container that does not exist; obstore has one "not found" for all 404.
# The code is looked for as such: a bucket may have the code for its name, and the name stands in the text.
_NO_BUCKET: Final = re.compile(
    r"<Code>\s*(?:NoSuchBucket|ContainerNotFound)\s*</Code>|bucket does not exist", re.IGNORECASE
)


class BucketMissing(OSError):
    """The whole bucket or container is not there."""


@contextmanager
def errors_of_a_bucket() -> Iterator[None]:
    """Raises BucketMissing for a "not found" that is the bucket's, and ClientPanic for a panic of the client."""
    try:
        with panics_as_errors():
            yield
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            raise BucketMissing(f"the bucket or container does not exist: {first}") from error
        raise


class ObstoreObjectStore:
    """Any store that obstore reaches. `reads`: the same one with other patience, for what somebody waits for."""

    def __init__(self, store: Any, reads: Any = None) -> None:
        self._store = store
        self._reads = store if reads is None else reads

    def put_file(self, key: str, path: str) -> None:
        with open(path, "rb") as file, errors_of_a_bucket():
            obstore.put(self._store, key, file)

    def put(self, key: str, data: Buffer) -> None:
        with errors_of_a_bucket():
            obstore.put(self._store, key, bytes(data))

    def get(self, key: str) -> bytes:
        with errors_of_a_bucket():
            return bytes(obstore.get(self._reads, key).bytes())

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if size <= 0:
            return b""
        with errors_of_a_bucket():
            return bytes(obstore.get_range(self._reads, key, start=start, length=size))

    def size(self, key: str) -> int:
        with panics_as_errors():
            return int(obstore.head(self._reads, key)["size"])

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError), errors_of_a_bucket():
            obstore.delete(self._store, key)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        objects: list[tuple[str, int]] = []
        with panics_as_errors():
            for page in obstore.list(self._store, prefix):
                objects.extend((meta["path"], int(meta["size"])) for meta in page)
        return objects


# Keys that obstore escapes, so that a file has another name than its key, stay with obstore.
_PLAIN_KEY: Final = re.compile(r"(?!.*(^|/)\.{0,2}(/|$))[A-Za-z0-9._/-]+")
# An object that is being written; obstore passes over such names when it lists, its own are like it.
_STAGED: Final = "#1"


class FolderObjectStore(ObstoreObjectStore):
    """A folder. An object is there whole or not at all; it is not synced to the device, as obstore's are not."""

    def __init__(self, folder: str) -> None:
        super().__init__(LocalStore(folder, mkdir=True))
        self._folder = os.path.realpath(folder)

    def _path(self, key: str) -> str | None:
        return f"{self._folder}/{key}" if _PLAIN_KEY.fullmatch(key) else None

    def put_file(self, key: str, path: str) -> None:
        target = self._path(key)
        if target is None:
            super().put_file(key, path)
        else:
            self._write_staged(target, lambda staged: shutil.copyfile(path, staged))

    def put(self, key: str, data: Buffer) -> None:
        def write(staged: str) -> None:
            with open(staged, "wb") as file:
                file.write(data)

        target = self._path(key)
        if target is None:
            super().put(key, data)
        else:
            self._write_staged(target, write)

    @staticmethod
    def _write_staged(target: str, write: Callable[[str], object]) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        staged = target + _STAGED
        try:
            write(staged)
            os.replace(staged, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(staged)
            raise

    def get(self, key: str) -> bytes:
        path = self._path(key)
        if path is None:
            return super().get(key)
        with open(path, "rb") as file:
            return file.read()

    def get_range(self, key: str, start: int, size: int) -> bytes:
        path = self._path(key)
        if path is None:
            return super().get_range(key, start, size)
        if size <= 0:
            return b""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # At most 2 GiB a call, which no range of ours reaches.
            return os.pread(file, size, start)
        finally:
            os.close(file)


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
        return FolderObjectStore(location)
    given: dict[str, Any] = {}
    if config:
        given["config"] = dict(config)
    options = dict(client or {})
    if allows_plain_http(config or {}, options, os.environ):
        options["allow_http"] = "true"
    if options:
        given["client_options"] = options
    with panics_as_errors():
        store = from_url(location, **given)
        if location.startswith(("file:", "memory:")):
            return ObstoreObjectStore(store)
        return ObstoreObjectStore(store, from_url(location, retry_config=READ_RETRIES, **given))
