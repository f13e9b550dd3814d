"""Facts of one round of requests to a cluster: frozen values, no conclusions.

None means "not known", and an ``error`` beside it says why; -1 is kept where Kafka answered -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.control.gateway.requests.eligible_replica_requests import EligiblePage
from backend.control.gateway.requests.log_dir_requests import LogDirDescription
from backend.control.gateway.requests.metadata_requests import BrokerMetadata, PartitionMetadata
from backend.control.gateway.requests.reassignment_requests import PartitionReassignment
from backend.tiering.epoch_lineage import EpochEntry
from backend.tiering.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A registered broker and whether it answered."""

    view: BrokerMetadata
    reachable: bool
    error: str | None = None
    log_dirs: tuple[LogDirDescription, ...] | None = None


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """A replica said that this offset belongs to this leader epoch."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """One broker's statement about its own replica."""

    broker_id: int
    log_start: int | None = None
    local_start: int | None = None
    latest_tiered: int | None = None
    log_end: int | None = None
    points: tuple[EpochPoint, ...] = ()
    local_bytes: int | None = None
    log_dir: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition: its metadata, what only the leader says, and its replicas."""

    view: PartitionMetadata
    tiered: bool
    compacted: bool
    replicas: Mapping[int, ReplicaFacts]
    pending: int | None = None
    high_watermark: int | None = None
    epochs: tuple[EpochEntry, ...] | None = None
    epochs_complete: bool = True
    move: PartitionReassignment | None = None
    error: str | None = None
    last_stable: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.view.topic_partition

    @property
    def leader(self) -> ReplicaFacts | None:
        """The leader's replica; None while there is no leader."""
        return self.replicas.get(self.view.leader)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic and the settings of it that this product shows; None: not described yet."""

    topic: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    internal: bool
    config: Mapping[str, str | None] | None

    @property
    def tiered(self) -> bool:
        return self.config is not None and self.config.get("remote.storage.enable") == "true"

    @property
    def compacted(self) -> bool:
        return self.config is not None and "compact" in (self.config.get("cleanup.policy") or "")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One round: everything that was learned at `at_ms`."""

    at_ms: int
    cluster_id: str
    controller_id: int | None
    features: Mapping[str, int]
    brokers: Mapping[int, BrokerFacts]
    topics: tuple[TopicFacts, ...]
    partitions: tuple[PartitionFacts, ...]
    # Of partitions without a leader, and of those whose ISR is below min.insync.replicas, where the cluster tells.
    eligible: EligiblePage = field(default_factory=EligiblePage)
    # Partitions whose offsets were not listed in this round, and when they were.
    earlier_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def offline_logs(self) -> dict[tuple[TopicPartition, int], str]:
        """Why brokers cannot use their logs, by partition and broker; what silent ones cannot use is not known."""
        return {
            (offline_log.partition, broker_id): offline_log.reason
            for broker_id, broker in self.brokers.items()
            for directory in broker.log_dirs or ()
            for offline_log in directory.offline_logs
        }


@dataclass(frozen=True, slots=True)
class RemoteFacts:
    """The ledger's sums of one partition: the pipeline's work, read from the database."""

    finished_bytes: int = 0
    finished_segments: int = 0
    highest_copied: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerSums:
    """The ledger's sums by (topic id text, partition), and the copies and deletions that are open.

    `complete`: the pipeline has read everything, so that a partition without sums has nothing in the remote tier.
    """

    partitions: Mapping[tuple[str, int], RemoteFacts] = field(default_factory=dict)
    open_copies: int = 0
    oldest_open_copy_ms: int | None = None
    open_deletes: int = 0
    oldest_open_delete_ms: int | None = None
    complete: bool = False
