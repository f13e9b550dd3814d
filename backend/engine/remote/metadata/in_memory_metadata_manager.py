"""A remote log metadata manager that keeps everything in memory: for tests and one broker that may forget.

Its contract is ``remote_log_metadata_manager``, as that of ``topic_based_metadata_manager``; both pass one suite. Its
contents end with the process, and no other broker sees them.
"""

from __future__ import annotations

from collections.abc import Iterable

from backend.engine.remote.metadata.cached_lookups import CachedLookups
from backend.engine.remote.metadata.remote_log_metadata_cache import ApplyOutcome, Overlap, RemoteLogMetadataCache
from backend.engine.remote.metadata.remote_log_metadata_manager import check_new, check_update
from backend.engine.remote.storage.remote_storage_manager import RemoteResourceNotFound, RemoteStorageError
from backend.protocol.remote_log.metadata_serde import PartitionDelete, SegmentMetadata, SegmentUpdate
from backend.tiering.ids import TopicIdPartition, uuid_text
from backend.tiering.segment_state import PartitionDeleteState


class InMemoryRemoteLogMetadataManager(CachedLookups):
    """Ready for every hosted partition at once; what it knows of one that leaves stays for its return."""

    def __init__(self, overlap: Overlap = Overlap.KIP) -> None:
        self._overlap = overlap
        self._caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
        self._hosted: set[TopicIdPartition] = set()

    def start(self) -> None:
        """There is nothing to read."""

    async def add_segment(self, metadata: SegmentMetadata) -> None:
        check_new(metadata)
        self._apply(metadata)

    async def update_segment(self, update: SegmentUpdate) -> None:
        check_update(update)
        self._apply(update)

    def _apply(self, event: SegmentMetadata | SegmentUpdate) -> None:
        partition = event.topic_id_partition
        subject = f"{event.state.name} of {partition} segment {uuid_text(event.segment_id)}"
        if partition not in self._hosted:
            raise RemoteStorageError(f"{subject} cannot be recorded: {partition} is not hosted by this broker")
        # Illegal events are dropped without an error, as records of the metadata topic are.
        if self._cache(partition).apply(event) is ApplyOutcome.UNKNOWN_SEGMENT:
            raise RemoteResourceNotFound(f"{subject} cannot be recorded: there is no such segment")

    async def put_partition_delete(self, event: PartitionDelete) -> None:
        if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            self._caches.pop(event.topic_id_partition, None)

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        if partition not in self._hosted:
            raise RemoteResourceNotFound(f"{partition} has no remote log metadata here: this broker does not host it")
        cache = self._caches.get(partition)
        if cache is None:
            cache = self._caches[partition] = RemoteLogMetadataCache(partition, self._overlap)
        return cache

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return partition in self._hosted

    async def wait_ready(self, partition: TopicIdPartition, timeout_ms: float) -> bool:
        return partition in self._hosted

    def on_partition_leadership_changes(
        self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]
    ) -> None:
        self._hosted |= {*leaders, *followers}

    def on_stop_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        self._hosted -= set(partitions)

    async def close(self) -> None:
        """There is nothing to end."""
