"""A foreign storage plug-in held to its contract: whatever it does, the engine sees the contract's errors and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from backend.engine.remote.storage.remote_storage_manager import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageManager,
)
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import uuid_text

T = TypeVar("T")


class CheckedStorage:
    """Passes calls on. An exception that the contract does not know is a permanent failure with the plug-in's name."""

    def __init__(self, name: str, storage: RemoteStorageManager) -> None:
        self.name = name
        self.storage = storage

    def copy_log_segment_data(self, metadata: SegmentMetadata, data: LogSegmentData) -> bytes | None:
        custom: object = self._call("copy", metadata, lambda: self.storage.copy_log_segment_data(metadata, data))
        if custom is None or isinstance(custom, bytes):
            return custom
        raise self._broken("copy", metadata, f"custom metadata is {type(custom).__name__}, not bytes")

    def fetch_log_segment(
        self, metadata: SegmentMetadata, start_position: int, end_position: int | None = None
    ) -> bytes:
        return self._bytes(
            "fetch", metadata, lambda: self.storage.fetch_log_segment(metadata, start_position, end_position)
        )

    def fetch_index(self, metadata: SegmentMetadata, index_type: IndexType) -> bytes:
        return self._bytes(
            f"fetch of the {index_type.name} index", metadata, lambda: self.storage.fetch_index(metadata, index_type)
        )

    def delete_log_segment_data(self, metadata: SegmentMetadata) -> None:
        try:
            self._call("deletion", metadata, lambda: self.storage.delete_log_segment_data(metadata))
        except RemoteResourceNotFound:
            # Kafka counts what is missing as deleted, and so must a plug-in that forgot.
            return

    def close(self) -> None:
        self.storage.close()

    def _bytes(self, what: str, metadata: SegmentMetadata, call: Callable[[], object]) -> bytes:
        result = self._call(what, metadata, call)
        if isinstance(result, bytes):
            return result
        raise self._broken(what, metadata, f"it returned {type(result).__name__}, not bytes")

    def _call(self, what: str, metadata: SegmentMetadata, call: Callable[[], T]) -> T:
        try:
            return call()
        except (RemoteStorageError, ValueError):
            raise
        except Exception as error:  # the plug-in is others' code, which may raise anything
            raise self._broken(what, metadata, f"{type(error).__name__}: {error}") from error

    def _broken(self, what: str, metadata: SegmentMetadata, problem: str) -> RemoteStorageError:
        segment = f"segment {uuid_text(metadata.segment_id)} of {metadata.topic_id_partition}"
        return RemoteStorageError(f"Storage plug-in {self.name}: {what} of {segment} broke the contract ({problem})")
