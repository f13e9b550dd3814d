"""The queries that the built-in metadata managers answer from their partitions' caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from backend.engine.remote.metadata.remote_log_metadata_cache import RemoteLogMetadataCache
from backend.engine.remote.metadata.segment_summary import SegmentSummary
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import TopicIdPartition


class CachedLookups(ABC):
    """The look-ups of `RemoteLogMetadataManager`, which says what they promise."""

    @abstractmethod
    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """Raises RemoteResourceNotFound for a partition that is not hosted, KafkaError for one that is not ready."""

    def lookup(self, partition: TopicIdPartition, epoch: int, offset: int) -> SegmentMetadata | None:
        return self._cache(partition).lookup(epoch, offset)

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        return self._cache(partition).highest_offset(epoch)

    def segments(self, partition: TopicIdPartition) -> Iterator[SegmentMetadata]:
        return self._cache(partition).segments()

    def segments_of(self, partition: TopicIdPartition, epoch: int) -> list[SegmentMetadata]:
        return self._cache(partition).segments_of(epoch)

    def size_bytes(self, partition: TopicIdPartition, epoch: int) -> int:
        return self._cache(partition).size_bytes(epoch)

    def next_with_txn_index(self, partition: TopicIdPartition, epoch: int, offset: int) -> SegmentMetadata | None:
        return self._cache(partition).next_with_txn_index(epoch, offset)

    def next_for_timestamp(
        self,
        partition: TopicIdPartition,
        epoch: int,
        timestamp_ms: int,
        offset: int,
        accept: Callable[[SegmentMetadata], bool],
    ) -> SegmentMetadata | None:
        """See `RemoteLogMetadataCache`; not part of the contract, so callers can do without."""
        return self._cache(partition).next_for_timestamp(epoch, timestamp_ms, offset, accept)

    def oldest_of(self, partition: TopicIdPartition, epoch: int) -> Iterator[SegmentMetadata]:
        """See `RemoteLogMetadataCache`; like the rest below, not part of the contract."""
        return self._cache(partition).oldest_of(epoch)

    def summary(self, partition: TopicIdPartition) -> SegmentSummary:
        return self._cache(partition).summary()
