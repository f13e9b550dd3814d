"""The parts of a broker that its partitions and the fetchers of its partitions use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from backend.engine.common.event_sink import EventSink
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Clock
from backend.engine.replica.action_queue import ActionQueue
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.partition_state import IsrProposal
from backend.engine.replica.remote_logs import RemoteLogs
from backend.engine.replica.replication_quota import ReplicationQuota
from backend.tiering.ids import TopicPartition


class IsrChanges(Protocol):
    """The way of ISR changes to the controller; `AlterPartitionManager` is it."""

    def submit(self, proposal: IsrProposal) -> None:
        """Sends the proposal; the outcome comes to `Partition.isr_decided` or `isr_refused`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PartitionContext:
    """One per broker."""

    metadata: AppliedMetadata
    clock: Clock
    actions: ActionQueue
    isr_changes: IsrChanges
    leader_quota: ReplicationQuota
    follower_quota: ReplicationQuota
    events: EventSink
    metrics: BrokerMetrics
    # None on a broker without tiered storage.
    remote_logs: RemoteLogs | None

    @property
    def node_id(self) -> int:
        return self.metadata.node_id

    def count_replicated(self, partition: TopicPartition, bytes_in: int) -> None:
        """Counts bytes appended as a follower."""
        self.metrics.all_topics.replicationbytesin += bytes_in
        if self.follower_quota.is_throttled(partition.topic, partition.partition):
            self.follower_quota.record(bytes_in, self.clock.monotonic_ms())
