"""Contract of a remote storage plug-in (KIP-405, `RemoteStorageManager`): the bytes of segments, nothing about which
exist.

Calls block and are made on worker threads, several at once. The metadata's `segment_id` is unique for every attempt
to copy, so a plug-in may name its objects by it and never needs to look for what an earlier attempt left.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from backend.protocol.remote_log.metadata_serde import SegmentMetadata


class RemoteStorageError(Exception):
    """The remote storage refused or failed for good; a retry of the same call would fail again."""


class RemoteResourceNotFound(RemoteStorageError):
    """The remote storage has no such object."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The remote storage failed for the moment; the same call may succeed later."""


class RemoteStorageNotReady(RetriableRemoteStorageError):
    """Remote log metadata of the partition has not been read up to its end yet."""


class IndexType(IntEnum):
    """Files that accompany a segment, by Kafka's names."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The local files of a segment to copy. `producer_snapshot_path` is the state at the segment's end."""

    log_path: str
    offset_index_path: str
    time_index_path: str
    txn_index_path: str | None
    producer_snapshot_path: str
    leader_epochs: bytes


class RemoteStorageManager(Protocol):
    """Stores and returns segments. Every method may raise RemoteStorageError or a subclass, and nothing else but what
    `fetch_log_segment` says of its positions.
    """

    def copy_log_segment_data(self, metadata: SegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Stores all files of a segment (state COPY_SEGMENT_STARTED) and returns custom metadata, if any.

        Idempotent: repeating it overwrites. When it fails it leaves nothing behind, as far as the storage lets it.
        """
        ...

    def fetch_log_segment(
        self, metadata: SegmentMetadata, start_position: int, end_position: int | None = None
    ) -> bytes:
        """Bytes of the log file from `start_position` to `end_position` (both included; None: to the end).

        Shorter at the end of the file, empty at or past it. RemoteResourceNotFound when the segment is missing.
        ValueError for positions that are no range: a start below 0, an end below the start.
        """
        ...

    def fetch_index(self, metadata: SegmentMetadata, index_type: IndexType) -> bytes:
        """The whole file; RemoteResourceNotFound when there is none, which for TRANSACTION is ordinary."""
        ...

    def delete_log_segment_data(self, metadata: SegmentMetadata) -> None:
        """Removes all files of a segment; what is missing already counts as removed."""
        ...

    def close(self) -> None:
        """No calls come after this one."""
        ...
