"""The partitions that one broker hosts, by name and by topic id, and the reason for each that is missing."""

from __future__ import annotations

from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.partition import Partition
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition, TopicPartition


class HostedPartitions:
    """Changed by `role_changes` alone."""

    def __init__(self, metadata: AppliedMetadata) -> None:
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        # Partitions that metadata puts here and that have no usable log, with the reason.
        self.broken: dict[tuple[str, int], str] = {}
        self._metadata = metadata

    def add(self, partition: Partition) -> None:
        """The partition is served from now on."""
        tip = partition.topic_id_partition
        self.by_name[(tip.topic, tip.partition)] = partition
        self.by_id[(tip.topic_id, tip.partition)] = partition

    def remove(self, partition: Partition) -> None:
        """The partition is served no longer."""
        tip = partition.topic_id_partition
        if self.by_name.get((tip.topic, tip.partition)) is partition:
            del self.by_name[(tip.topic, tip.partition)]
        self.by_id.pop((tip.topic_id, tip.partition), None)

    def has(self, partition: Partition) -> bool:
        """Whether it is still served: its log may have broken since."""
        tip = partition.topic_id_partition
        return self.by_name.get((tip.topic, tip.partition)) is partition

    def partition(self, topic: str, index: int) -> Partition:
        """A hosted partition. Raises 56 when its log is unusable, 6 when only others have it, 3 when there is none."""
        partition = self.find(topic, index)
        if isinstance(partition, Partition):
            return partition
        missing = f"broker {self._metadata.node_id} has no replica of {topic}-{index}"
        raise KafkaError(partition, self.broken.get((topic, index)) or missing)

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """As :meth:`partition`, with the error as a value."""
        partition = self.by_name.get((topic, index))
        return self.why_absent(topic, index) if partition is None else partition

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """As :meth:`find`; 100 when there is no topic with the id."""
        partition = self.by_id.get((topic_id, index))
        if partition is not None:
            return partition
        topic = self._metadata.image.topics.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self.find(topic.name, index)

    def why_absent(self, topic: str, index: int) -> ErrorCode:
        """The error for a partition that is not served here."""
        if (topic, index) in self.broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._metadata.image.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def of_tip(self, tip: TopicIdPartition) -> Partition | None:
        """The hosted partition of this topic id; None when another one has its name."""
        return self.by_id.get((tip.topic_id, tip.partition))

    @property
    def broken_partitions(self) -> dict[TopicPartition, str]:
        """Replicas that metadata puts here and that cannot be used, with the reason."""
        return {TopicPartition(topic, index): reason for (topic, index), reason in self.broken.items()}
