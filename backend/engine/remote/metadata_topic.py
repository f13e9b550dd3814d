"""What the topic-based remote log metadata manager needs of the topic ``__remote_log_metadata``.

``rlmm`` says what it needs; ``net`` implements it with the Kafka protocol over loopback, tests with a list in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from backend.protocol.errors import ErrorCode
from backend.tiering.ids import OffsetRange

METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class MetadataTopicSettings:
    """How the topic is created (KIP-405, KIP-1235; `TopicBasedRemoteLogMetadataManagerConfig`)."""

    partitions: int = 50
    replication_factor: int = 3
    min_insync_replicas: int = 2
    retention_ms: int = -1

    def topic_configs(self) -> dict[str, str]:
        """Topic settings by Kafka's names."""
        return {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(self.min_insync_replicas),
            "remote.storage.enable": "false",
            "retention.ms": str(self.retention_ms),
        }


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """One record of the topic; ``value`` is None for a record without one."""

    offset: int
    timestamp_ms: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What a fetch brought for one partition of the topic.

    ``next_offset`` is where to read on (past control batches and gaps too); with an error it is the position asked for.
    """

    partition: int
    next_offset: int
    records: Sequence[MetadataRecord] = field(default=())
    error: ErrorCode = ErrorCode.NONE


class MetadataTopic(Protocol):
    """Access to the partitions of the topic. Everything raises KafkaError (its `retriable` counts) or OSError."""

    async def ensure_created(self, settings: MetadataTopicSettings) -> int:
        """Creates the topic if it is absent ("exists already" is success) and returns how many partitions it has."""
        ...

    async def produce(self, partition: int, value: bytes) -> int:
        """Appends one record with a null key (acks=all, idempotent) and returns its offset once all in-sync replicas
        have it.
        """
        ...

    async def offsets(self, partitions: Iterable[int]) -> dict[int, OffsetRange]:
        """Log start and high watermark of each partition, as of now; a partition without an answer is left out."""
        ...

    async def fetch(self, positions: Mapping[int, int], *, max_wait_ms: int) -> Sequence[FetchedPartition]:
        """Committed records of several partitions from the given offsets.

        Returns as soon as any partition has records (or an error), else empty after about ``max_wait_ms``. Only one
        call runs at a time. Cancelling it abandons its requests; the next call does not wait for them.
        """
        ...

    async def close(self) -> None:
        """Ends connections and requests in flight."""
        ...
