"""The interface of a checker, and its view of replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from backend.engine.apis.services import BrokerServices
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.remote.metadata.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from backend.engine.replica.partition import Partition
from backend.tiering.ids import TopicIdPartition, TopicPartition
from tests.simulation.client import Read
from tests.simulation.history import PartitionHistory, TopicHistory

if TYPE_CHECKING:
    from tests.simulation.world import World

# (node, topic, the partition's history, replica)
Seen: TypeAlias = tuple[int, TopicHistory, PartitionHistory, Partition]


class Violation(AssertionError):
    """A property does not hold."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


def metadata_version(remote: RemoteLogManager, partition: TopicIdPartition) -> tuple[object, int]:
    """Changes whenever a broker learns something about a partition's remote segments."""
    metadata = remote._tier.metadata
    assert isinstance(metadata, TopicBasedRemoteLogMetadataManager)
    assert metadata._consumer is not None
    hosted = metadata._consumer.hosted[partition]
    return hosted.cache, hosted.changes


def hosted_metadata(world: World) -> Iterator[tuple[int, Collection[TopicIdPartition]]]:
    """(node, partitions whose remote segments it keeps in memory) of every running broker."""
    for node, broker in world.brokers().items():
        remote = broker.services.remote_log_manager
        if remote is not None:
            metadata = remote._tier.metadata
            assert isinstance(metadata, TopicBasedRemoteLogMetadataManager)
            yield node, metadata.hosted


class Checker:
    """One property."""

    def __init__(self, world: World) -> None:
        self.world = world

    def violated(self, text: str) -> Violation:
        return Violation(type(self).__name__, text)

    def step(self, replicas: Sequence[Seen]) -> None:
        """Something may have changed; these are all usable replicas now."""

    def look(self) -> None:
        """Some time has gone by."""

    def read(self, topic: TopicHistory, index: int, node: int, offset: int, answer: Read) -> None:
        """A consumer was answered by this node."""

    async def finish(self) -> None:
        """The faults are over and the cluster has recovered."""

    # How replicas are seen

    def replicas(self) -> Iterator[Seen]:
        """(node, topic, its history, replica) of every usable replica of every living topic on a running broker."""
        topics = self.world.history.living
        for node, broker in self.world.brokers().items():
            services = broker._services
            if not isinstance(services, BrokerServices):
                continue
            manager = services.replica_manager
            partitions, broken = manager._partitions, self.world.machines[node].disk.broken
            for topic in topics:
                for index, history in topic.partitions.items():
                    partition = partitions.get((topic.name, index))
                    if (
                        partition is not None
                        and partition.topic_id_partition.topic_id == topic.topic_id
                        and partition.log.offline_reason is None
                        # Its broker has not noticed yet, and must do so by itself.
                        and not (broken is not None and partition.log.dir.startswith(broken))
                    ):
                        yield node, topic, history, partition

    def leaders(self) -> Iterator[Seen]:
        """Of these, the ones that lead as the controller has it, under the present epoch."""
        for node, topic, history, replica in self.replicas():
            registration = self.world.registration(TopicPartition(topic.name, replica.topic_id_partition.partition))
            if (
                replica.is_leader
                and registration is not None
                and registration.leader == node
                and registration.leader_epoch == replica.leader_epoch
            ):
                yield node, topic, history, replica
