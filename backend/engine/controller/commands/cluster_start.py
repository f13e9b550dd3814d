"""The start of a whole cluster: leaders are elected once the brokers that were in sync when it stopped are back.

Apache Kafka takes each broker that registers out of its ISRs and elects the first that may lead, so the order of a
start decides: the ISR is gone, and with it what only the last leader had (acks=1). Here a broker that stopped cleanly
keeps its place, since its log holds all that was committed, and no leader is elected before all of ISR and ELR are back
or have been given up (decision 34). Then the last leader leads again. Decisions alone: `controller.start_wait` carries
them out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.partition.elections import LocatedPartition, all_partitions, election_settings
from backend.engine.controller.commands.partition.partition_change import AcceptableLeader, change_record, target_of
from backend.engine.controller.image.metadata_image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from backend.engine.controller.image.replay import FENCE
from backend.protocol import messages as m
from backend.protocol.messages import Message


@dataclass(frozen=True, slots=True)
class ClusterStart:
    """The cluster's image when its controller became active, and the brokers that are waited for no longer."""

    at_start: MetadataImage
    given_up: frozenset[int] = frozenset()
    # A broker that was unfenced then has been heard: the cluster had not stopped.
    still_runs: bool = False

    def is_former_life(self, broker: BrokerRegistration) -> bool:
        """Whether the registration is one that the controller found unfenced: unless the cluster goes on, its broker
        has ended.
        """
        before = self.at_start.brokers.get(broker.id)
        return not self.still_runs and before is not None and not before.fenced and before.epoch == broker.epoch

    def is_back(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether the broker may lead, in a life that is not over."""
        broker = image.brokers.get(broker_id)
        return broker is not None and broker.active and not self.is_former_life(broker)

    def waits_for(
        self, image: MetadataImage, partition: PartitionRegistration, unfencing: int | None = None
    ) -> set[int]:
        """Members of ISR and ELR that are to come before the partition gets a leader; `unfencing` is back already."""
        members = eligible(partition) - self.given_up - {unfencing}
        return {member for member in members if not self.is_back(image, member)}


def eligible(partition: PartitionRegistration) -> set[int]:
    """Replicas that have every committed record as far as metadata knows."""
    return {*partition.isr, *partition.elr}


def start_of(image: MetadataImage) -> ClusterStart | None:
    """The brokers that a controller waits for when it becomes active; None when none can be missing."""
    partitions = any(topic.partitions for topic in image.topics.values())
    return ClusterStart(image) if partitions else None


def broker_contacted(start: ClusterStart, broker_id: int, broker_epoch: int) -> ClusterStart:
    """After a heartbeat: one of a life that was unfenced before the controller became active is of a living broker."""
    before = start.at_start.brokers.get(broker_id)
    lives = before is not None and not before.fenced and before.epoch == broker_epoch
    return replace(start, still_runs=True) if lives else start


def missing(image: MetadataImage, start: ClusterStart) -> frozenset[int]:
    """Registered brokers that are not back and have not been given up, whether anything waits for them or not."""
    return frozenset(
        broker for broker in image.brokers if broker not in start.given_up and not start.is_back(image, broker)
    )


def any_broker_returned(image: MetadataImage, start: ClusterStart) -> bool:
    """Whether a broker has registered, or was unfenced, since the controller became active."""
    former = start.at_start.brokers
    return any(
        broker.id not in former
        or broker.epoch != former[broker.id].epoch
        or (former[broker.id].fenced and not broker.fenced)
        for broker in image.brokers.values()
    )


@dataclass(frozen=True, slots=True)
class Awaited:
    """Partitions that get no leader yet, and the brokers that they wait for."""

    partitions: tuple[LocatedPartition, ...]
    brokers: frozenset[int]


def awaited(image: MetadataImage, start: ClusterStart) -> Awaited:
    """Partitions without a leader in its present registration that wait for a broker."""
    partitions: list[LocatedPartition] = []
    brokers: set[int] = set()
    for located in all_partitions(image):
        partition = located[2]
        leader = image.brokers.get(partition.leader)
        if leader is not None and not start.is_former_life(leader) and not leader.fenced:
            continue
        if missing := start.waits_for(image, partition):
            partitions.append(located)
            brokers |= missing
    return Awaited(tuple(partitions), frozenset(brokers))


def give_up(start: ClusterStart, brokers: Collection[int]) -> ClusterStart:
    """The start without these brokers from now on."""
    return replace(start, given_up=start.given_up | frozenset(brokers))


def stays_in_sync_fenced(
    image: MetadataImage, ended: BrokerRegistration, in_sync: Collection[LocatedPartition]
) -> list[m.PartitionChangeRecord]:
    """A broker comes back from a clean shutdown of the whole cluster: it stays in sync, and leads nothing until it is
    unfenced. No leader has moved a high watermark without it, since nobody was there to take it out of an ISR.
    """
    return [
        m.PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=NO_LEADER)
        for topic, index, partition in in_sync
        if partition.leader == ended.id
    ]


def leaders_at_start(
    image: MetadataImage, config: BrokerConfig, start: ClusterStart, *, unfencing: int | None = None
) -> list[m.PartitionChangeRecord]:
    """Brokers that were given up leave their ISRs; partitions that wait for no broker get a leader: the last one where
    it may lead, else by an ordinary election.
    """
    absent = {
        broker_id for broker_id in start.given_up if broker_id != unfencing and not start.is_back(image, broker_id)
    }

    def acceptable(broker: int) -> bool:
        return broker == unfencing or start.is_back(image, broker)

    records = []
    for topic, index, partition in all_partitions(image):
        leaves = partition.leader in absent or not absent.isdisjoint(partition.isr)
        if not leaves and partition.leader != NO_LEADER:
            continue
        waits = bool(start.waits_for(image, partition, unfencing))
        if waits and not leaves:
            continue
        election, min_isr = election_settings(image, config, topic.name)
        before = start.at_start.partition_by_id(topic.id, index)
        record = change_record(
            image,
            topic.id,
            index,
            partition,
            replace(
                target_of(partition),
                isr=tuple(member for member in partition.isr if member not in absent),
                last_leader=NO_LEADER if before is None else _last_leader(before),
            ),
            min_isr=min_isr,
            acceptable=_only(partition.leader, acceptable) if waits else acceptable,
            election=election,
        )
        if record is not None:
            records.append(record)
    return records


def _only(leader: int, acceptable: AcceptableLeader) -> AcceptableLeader:
    """Present leaders may stay; no leader is elected."""
    return lambda broker: broker == leader and acceptable(broker)


def _last_leader(before: PartitionRegistration) -> int:
    """The last leader, which stands first in the last known ELR when the ISR became empty."""
    return next(iter(before.last_known_elr), NO_LEADER) if before.leader == NO_LEADER else before.leader


def without_given_up(image: MetadataImage, config: BrokerConfig, start: ClusterStart) -> ControllerResult[None]:
    """Fences the brokers that were given up, and elects leaders of partitions that wait for no other broker."""
    ended = (broker for broker in image.brokers.values() if broker.id in start.given_up and not broker.fenced)
    fenced: list[Message] = [
        m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
        for broker in sorted(ended, key=lambda broker: broker.id)
        if start.is_former_life(broker)
    ]
    return ControllerResult((*fenced, *leaders_at_start(image, config, start)), None)
