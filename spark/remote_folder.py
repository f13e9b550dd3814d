"""The remote tier as it lies in a folder or bucket, in the layout of Kafka's LocalTieredStorage
(`backend.tiering.remote_keys`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from backend.runtime.redact import redact_url
from backend.tiering.ids import TopicIdPartition, uuid_bytes
from backend.tiering.remote_keys import ROOT, former_partition_folder, partition_folder
from backend.tiering.store_client import allows_plain_http, panics_as_errors

ID_CHARACTERS: Final = 22


class RemoteFolderError(Exception):
    """The remote tier cannot be listed. The message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """The `.log` object of one segment."""

    segment_id: str
    size_bytes: int
    modified_ms: int


def _from_url(location: str) -> Any:
    """A store by URL, with the environment's settings; an http:// endpoint needs no permission, as for brokers."""
    with panics_as_errors():
        if allows_plain_http({}, {}, os.environ):
            return from_url(location, client_options={"allow_http": True})
        return from_url(location)


class RemoteFolder:
    """Lists the segments' objects. Raises RemoteFolderError when that fails."""

    def __init__(self, location: str) -> None:
        self._location = location
        try:
            self._store = _from_url(location) if "://" in location else LocalStore(Path(location).absolute())
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(error) from error

    def partitions(self) -> list[tuple[str, str, int]]:
        """(topic, topic id, partition) of everything that has a folder; of a very long topic's name its beginning."""
        try:
            with panics_as_errors():
                listed = obstore.list_with_delimiter(self._store, f"{ROOT}/")["common_prefixes"]
        except (BaseError, OSError) as error:
            raise self._failed(error) from error
        return sorted(key for key in map(_partition_of, listed) if key is not None)

    def files(self, topic: str, topic_id: str, partition: int) -> Iterator[RemoteFile]:
        """The `.log` objects of one partition."""
        try:
            for place in self._folders(TopicIdPartition(topic, uuid_bytes(topic_id), partition)):
                for entry in self._entries(place):
                    stem, _, suffix = entry["path"].rsplit("/", 1)[-1].rpartition(".")
                    if suffix == "log" and len(stem) == 20 + 1 + ID_CHARACTERS:
                        modified_ms = int(entry["last_modified"].timestamp() * 1000)
                        yield RemoteFile(stem[21:], int(entry["size"]), modified_ms)
        except (BaseError, OSError) as error:
            raise self._failed(error) from error

    def _entries(self, place: str) -> Iterator[Any]:
        pages = iter(obstore.list(self._store, place))
        while True:
            with panics_as_errors():
                page = next(pages, None)
            if page is None:
                return
            yield from page

    def _folders(self, partition: TopicIdPartition) -> list[str]:
        former = former_partition_folder(partition)
        # A file system cannot have the longer name.
        longer = former is not None and "://" in self._location and not self._location.startswith("file:")
        return [partition_folder(partition), former] if longer and former else [partition_folder(partition)]

    def _failed(self, error: Exception) -> RemoteFolderError:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return RemoteFolderError(
            f"The remote tier {redact_url(self._location)} cannot be listed: {cause}. Check place and rights."
        )


def _partition_of(prefix: str) -> tuple[str, str, int] | None:
    name = prefix.rstrip("/").rsplit("/", 1)[-1]
    head, dash, topic_id = name[: -ID_CHARACTERS - 1], name[-ID_CHARACTERS - 1 : -ID_CHARACTERS], name[-ID_CHARACTERS:]
    topic, _, number = head.rpartition("-")
    return (topic, topic_id, int(number)) if topic and dash == "-" and number.isdigit() else None
