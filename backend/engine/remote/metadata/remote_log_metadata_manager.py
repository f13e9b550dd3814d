"""Contract of a metadata manager: which remote segments of a partition exist, and in which state they are (KIP-405).

``topic_based_metadata_manager`` is the built-in implementation, ``in_memory_metadata_manager`` the one for tests; the
suite in ``conformance`` holds for all of them. Kafka: `RemoteLogMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from backend.protocol.remote_log.metadata_serde import PartitionDelete, SegmentMetadata, SegmentUpdate
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState


class RemoteLogMetadataManager(Protocol):
    """Contract of the part that knows and records which remote segments exist.

    Queries answer from this broker's own cache: RemoteResourceNotFound for a partition that is not hosted,
    KafkaError(REPLICA_NOT_AVAILABLE) while its cache is still catching up.
    """

    def start(self) -> None:
        """Begins to work; the broker serves requests from now on."""
        ...

    async def add_segment(self, metadata: SegmentMetadata) -> None:
        """Records that a copy starts (COPY_SEGMENT_STARTED, else ValueError). RemoteStorageError when it fails."""
        ...

    async def update_segment(self, update: SegmentUpdate) -> None:
        """Records any later state. RemoteStorageError when it fails."""
        ...

    async def put_partition_delete(self, event: PartitionDelete) -> None:
        """Records how far the removal of a deleted partition's remote data is; the partition need not be hosted.
        With DELETE_PARTITION_FINISHED everything known of it is forgotten. RemoteStorageError when it fails.
        """
        ...

    def lookup(self, partition: TopicIdPartition, epoch: int, offset: int) -> SegmentMetadata | None:
        """The finished segment that holds `offset` as a record of leader epoch `epoch`."""
        ...

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """Highest offset ever finished for a leader epoch."""
        ...

    def segments(self, partition: TopicIdPartition) -> Iterator[SegmentMetadata]:
        """Every segment that is not deleted, in no order."""
        ...

    def segments_of(self, partition: TopicIdPartition, epoch: int) -> list[SegmentMetadata]:
        """Segments of a leader epoch by ascending start offset, those in copy or deletion included."""
        ...

    def size_bytes(self, partition: TopicIdPartition, epoch: int) -> int:
        """Sum over `segments_of` (`remoteLogSize`)."""
        ...

    def next_with_txn_index(self, partition: TopicIdPartition, epoch: int, offset: int) -> SegmentMetadata | None:
        """From (epoch, offset) on, the first segment of the epoch that has a transaction index."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether the partition's cache has caught up once."""
        ...

    async def wait_ready(self, partition: TopicIdPartition, timeout_ms: float) -> bool:
        """`is_ready` after waiting for it."""
        ...

    def on_partition_leadership_changes(
        self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]
    ) -> None:
        """This broker hosts these partitions now; both roles are treated the same."""
        ...

    def on_stop_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        """This broker does not host these partitions any more."""
        ...

    async def close(self) -> None: ...


def check_new(metadata: SegmentMetadata) -> None:
    """ValueError unless the segment may be added."""
    if metadata.state is not SegmentState.COPY_SEGMENT_STARTED:
        raise ValueError(f"a new segment starts as COPY_SEGMENT_STARTED, not {metadata.state.name}")


def check_update(update: SegmentUpdate) -> None:
    """ValueError unless the state is one that an update may bring."""
    if update.state is SegmentState.COPY_SEGMENT_STARTED:
        raise ValueError("an update cannot go back to COPY_SEGMENT_STARTED")
