"""Remote storage on an object store: a folder by default, or any URL the object-store port opens (KIP-405).

Keys are exactly the layout of Kafka's `LocalTieredStorage` (`tiering.remote_keys`), so a folder written by Kafka can be
read and the other way round.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from errno import ENAMETOOLONG
from typing import Final, TypeVar

from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from backend.engine.ports.object_store import ObjectStore, open_object_store
from backend.engine.remote.storage.remote_storage_manager import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from backend.engine.remote.storage.store_errors import reason_of
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.runtime.redact import redact, redact_url
from backend.tiering.ids import TopicIdPartition, uuid_text
from backend.tiering.remote_keys import ROOT, former_partition_folder, partition_folder

T = TypeVar("T")

LOG_SUFFIX: Final = "log"
INDEX_SUFFIXES: Final[Mapping[IndexType, str]] = {
    IndexType.OFFSET: "index",
    IndexType.TIMESTAMP: "timeindex",
    IndexType.TRANSACTION: "txnindex",
    IndexType.LEADER_EPOCH: "leader_epoch_checkpoint",
    IndexType.PRODUCER_SNAPSHOT: "snapshot",
}
SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES.values())

# About 300 bytes an event: 4,096 of them stay at 1.2 MiB.
HISTORY_EVENTS_MAX: Final = 4096

_NOT_FOUND: Final = (FileNotFoundError, NotFoundError)
# A retry meets the same refusal.
_PERMANENT: Final = (
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

_log = logging.getLogger(__name__)


class EventType(Enum):
    """The operations on the storage, by the names of Kafka's `LocalTieredStorageEvent`."""

    COPY_SEGMENT = "COPY_SEGMENT"
    FETCH_SEGMENT = "FETCH_SEGMENT"
    FETCH_OFFSET_INDEX = "FETCH_OFFSET_INDEX"
    FETCH_TIME_INDEX = "FETCH_TIME_INDEX"
    FETCH_TRANSACTION_INDEX = "FETCH_TRANSACTION_INDEX"
    FETCH_LEADER_EPOCH_CHECKPOINT = "FETCH_LEADER_EPOCH_CHECKPOINT"
    FETCH_PRODUCER_SNAPSHOT = "FETCH_PRODUCER_SNAPSHOT"
    DELETE_SEGMENT = "DELETE_SEGMENT"


_FETCH_EVENTS: Final[Mapping[IndexType, EventType]] = {
    IndexType.OFFSET: EventType.FETCH_OFFSET_INDEX,
    IndexType.TIMESTAMP: EventType.FETCH_TIME_INDEX,
    IndexType.TRANSACTION: EventType.FETCH_TRANSACTION_INDEX,
    IndexType.LEADER_EPOCH: EventType.FETCH_LEADER_EPOCH_CHECKPOINT,
    IndexType.PRODUCER_SNAPSHOT: EventType.FETCH_PRODUCER_SNAPSHOT,
}


@dataclass(frozen=True, slots=True)
class StorageEvent:
    """One call to the storage and whether it succeeded."""

    type: EventType
    broker_id: int
    topic_id_partition: TopicIdPartition
    segment_id: bytes
    start_offset: int
    succeeded: bool


def object_key(metadata: SegmentMetadata, suffix: str) -> str:
    """Key of one file of a segment; every file is named by the segment's own start offset."""
    return f"{partition_folder(metadata.topic_id_partition)}/{_name(metadata, suffix)}"


def former_object_key(metadata: SegmentMetadata, suffix: str) -> str | None:
    """The key that earlier versions gave it, where that is another one: of topics with very long names."""
    folder = former_partition_folder(metadata.topic_id_partition)
    return None if folder is None else f"{folder}/{_name(metadata, suffix)}"


def _name(metadata: SegmentMetadata, suffix: str) -> str:
    return f"{metadata.start_offset:020d}-{uuid_text(metadata.segment_id)}.{suffix}"


class ObjectStoreRemoteStorageManager:
    """The built-in :class:`~backend.engine.remote.storage.remote_storage_manager.RemoteStorageManager`."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        broker_id: int,
        delete_enable: bool = True,
        delete_on_close: bool = False,
        history_events_max: int = HISTORY_EVENTS_MAX,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._delete_enable = delete_enable
        self._delete_on_close = delete_on_close
        self.history: deque[StorageEvent] = deque(maxlen=history_events_max)

    def copy_log_segment_data(self, metadata: SegmentMetadata, data: LogSegmentData) -> bytes | None:
        with self._recorded(EventType.COPY_SEGMENT, metadata):
            try:
                for suffix, put in self._uploads(data):
                    put(object_key(metadata, suffix))
            except BaseException:
                self._remove_partial_copy(metadata)
                raise
        return None

    def _uploads(self, data: LogSegmentData) -> Iterator[tuple[str, Callable[[str], None]]]:
        def file(path: str) -> Callable[[str], None]:
            return lambda key: self._store.put_file(key, path)

        yield LOG_SUFFIX, file(data.log_path)
        yield "index", file(data.offset_index_path)
        yield "timeindex", file(data.time_index_path)
        if data.txn_index_path is not None:
            yield "txnindex", file(data.txn_index_path)
        yield "snapshot", file(data.producer_snapshot_path)
        if data.leader_epochs:
            yield "leader_epoch_checkpoint", lambda key: self._store.put(key, data.leader_epochs)

    def _remove_partial_copy(self, metadata: SegmentMetadata) -> None:
        """Stops at the first object that stays: a storage that is away refuses the others just as slowly."""
        try:
            self._delete_objects(metadata)
        except (OSError, BaseError) as error:
            # The line that says why the copy failed comes next; this is the same store, and the same reason.
            _log.debug(
                "What a failed copy left of segment %s of %s could not be removed; retention tries again: %s",
                uuid_text(metadata.segment_id),
                metadata.topic_id_partition,
                _reason(error),
            )

    def fetch_log_segment(
        self, metadata: SegmentMetadata, start_position: int, end_position: int | None = None
    ) -> bytes:
        size = metadata.segment_size_bytes
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise ValueError(
                f"positions {start_position} to {end_position} are no range of segment {metadata.segment_id.hex()}"
            )
        end = size if end_position is None else min(size, end_position + 1)
        with self._recorded(EventType.FETCH_SEGMENT, metadata):
            if start_position >= end:
                # The range is empty, but a missing segment must not look like one.
                self._read(metadata, LOG_SUFFIX, self._store.size)
                return b""
            size = end - start_position
            return self._read(metadata, LOG_SUFFIX, lambda key: self._store.get_range(key, start_position, size))

    def fetch_index(self, metadata: SegmentMetadata, index_type: IndexType) -> bytes:
        with self._recorded(_FETCH_EVENTS[index_type], metadata):
            return self._read(metadata, INDEX_SUFFIXES[index_type], self._store.get)

    def delete_log_segment_data(self, metadata: SegmentMetadata) -> None:
        if not self._delete_enable:
            return
        with self._recorded(EventType.DELETE_SEGMENT, metadata):
            self._delete_objects(metadata)

    def _read(self, metadata: SegmentMetadata, suffix: str, read: Callable[[str], T]) -> T:
        former = former_object_key(metadata, suffix)
        if former is None:
            return read(object_key(metadata, suffix))
        try:
            return read(object_key(metadata, suffix))
        except _NOT_FOUND as error:
            try:
                return read(former)
            except (OSError, BaseError) as second:
                raise error if _is_too_long(second) else second from None

    def _delete_objects(self, metadata: SegmentMetadata) -> None:
        for suffix in SUFFIXES:
            self._store.delete(object_key(metadata, suffix))
            former = former_object_key(metadata, suffix)
            if former is not None:
                try:
                    self._store.delete(former)
                except (OSError, BaseError) as error:
                    if not _is_too_long(error):
                        raise

    def close(self) -> None:
        if self._delete_on_close:
            for key, _ in self._store.list(ROOT):
                self._store.delete(key)

    @contextmanager
    def _recorded(self, type: EventType, metadata: SegmentMetadata) -> Iterator[None]:
        """Translates the store's errors into the contract's and notes the call in the history."""
        succeeded = False
        try:
            yield
            succeeded = True
        except _NOT_FOUND as error:
            if type is EventType.COPY_SEGMENT:
                raise RemoteStorageError(
                    f"{_subject(type, metadata)}: a local file is gone: {_reason(error)}"
                ) from error
            raise RemoteResourceNotFound(
                f"{_subject(type, metadata)}: the object is missing: {_reason(error)}"
            ) from error
        except _PERMANENT as error:
            raise RemoteStorageError(f"{_subject(type, metadata)} was refused: {_reason(error)}") from error
        except (OSError, BaseError) as error:
            raise RetriableRemoteStorageError(f"{_subject(type, metadata)} failed: {_reason(error)}") from error
        finally:
            self.history.append(
                StorageEvent(
                    type,
                    self._broker_id,
                    metadata.topic_id_partition,
                    metadata.segment_id,
                    metadata.start_offset,
                    succeeded,
                )
            )


def _is_too_long(error: Exception) -> bool:
    """Whether a file system says that it cannot have such a file, so that there is none."""
    return getattr(error, "errno", None) == ENAMETOOLONG or f"os error {ENAMETOOLONG}" in str(error)


def _subject(type: EventType, metadata: SegmentMetadata) -> str:
    return f"{type.value} of {metadata.topic_id_partition} segment {uuid_text(metadata.segment_id)}"


def _reason(error: Exception) -> str:
    """The first line of the client's error; obstore's messages go on with a dump of its state."""
    return reason_of(str(error)) or type(error).__name__


def check_location(location: str) -> None:
    """ValueError with one sentence for a location that can never be opened. Reads and creates no object or folder:
    whether a folder can be written, or a bucket answers, shows when it is used.
    """
    if "://" not in location:
        return
    try:
        open_object_store(location)
    except (OSError, ValueError, BaseError) as error:
        raise ValueError(_unusable(location, error)) from error


def _unusable(location: str, error: Exception) -> str:
    cause = redact(_reason(error), location)
    return (
        f"The remote location {redact_url(location)} cannot be used ({cause}): set EBBLINE_REMOTE_LOCATION, or"
        " rsm.config.dir or rsm.config.url of a single broker, to a folder that can be written or a URL such as"
        " s3://bucket/prefix."
    )


def open_storage(
    config: Mapping[str, str], *, broker_id: int, open_store: Callable[..., ObjectStore] = open_object_store
) -> ObjectStoreRemoteStorageManager:
    """Storage from the ``rsm.config.`` settings without their prefix: ``dir`` (a folder) or ``url`` (such as
    ``s3://bucket/prefix``), ``delete.enable``, ``delete.on.close``; for a URL also ``store.<name>`` and
    ``client.<name>``, obstore's settings of the store and of its HTTP client (``store.aws_endpoint``,
    ``client.allow_http``), which otherwise come from the environment.

    ValueError says which setting is missing or wrong.
    """
    location = config.get("url") or config.get("dir")
    if not location:
        raise ValueError("Tiered storage has no place to go; set rsm.config.dir (a folder) or rsm.config.url (s3://…)")
    try:
        store = open_store(location, config=_below(config, "store."), client=_below(config, "client."))
    except (OSError, ValueError, BaseError) as error:
        raise ValueError(_unusable(location, error)) from error
    return ObjectStoreRemoteStorageManager(
        store,
        broker_id=broker_id,
        delete_enable=_flag(config, "delete.enable", default=True),
        delete_on_close=_flag(config, "delete.on.close", default=False),
    )


def _below(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def _flag(config: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = config.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"rsm.config.{name} is {text!r}; it must be true or false")
    return text.lower() == "true"
