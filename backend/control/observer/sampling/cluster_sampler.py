"""Asks a cluster everything one round needs and puts it together as facts.

Every round: Metadata, moves in progress, each broker's disks, and the offsets of its replicas (`broker_sampler`): in a
whole round of all, else of those that move (`moving_partitions`). Less often settings (`settings_watch`), and with them
fenced brokers, features and the active controller; epoch chains (`epoch_chain_watch`) where they may have changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.last_response import LastResponse
from backend.control.gateway.requests.eligible_replica_requests import EligiblePage, EligibleReplicas, fetch_eligible
from backend.control.gateway.requests.epoch_requests import EpochChain
from backend.control.gateway.requests.log_dir_requests import BrokerDisk
from backend.control.gateway.requests.metadata_requests import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    fetch_brokers,
    fetch_cluster,
    fetch_features,
    last_metadata,
)
from backend.control.gateway.requests.offset_requests import ListedOffset
from backend.control.gateway.requests.quorum_requests import fetch_controller_id
from backend.control.gateway.requests.reassignment_requests import PartitionReassignment, list_reassignments
from backend.control.memo import Memo
from backend.control.observer.sampling.broker_sampler import BrokerSample, BrokerSampler
from backend.control.observer.sampling.cluster_facts import (
    BrokerFacts,
    ClusterFacts,
    PartitionFacts,
    ReplicaFacts,
    TopicFacts,
)
from backend.control.observer.sampling.epoch_chain_watch import ChainWatch
from backend.control.observer.sampling.moving_partitions import (
    DescribedPartition,
    moving_partitions,
    partition_states,
)
from backend.control.observer.sampling.settings_sample import topic_config
from backend.control.observer.sampling.settings_watch import SettingsWatch
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.eligible_leaders import below_min_isr
from backend.tiering.ids import TopicPartition

# Brokers hand these questions on to the active controller, which answers in milliseconds, or not at all until another
# one is elected: each broker that is asked then waits for as long as it is let.
CONTROLLER_ANSWER_S: Final = 3.0
# The brokers that answer must not be asked for offsets long after the metadata that these belong to.
DISKS_WAIT_S: Final = 2.0
_log = logging.getLogger(__name__)


class ClusterSampler:
    """Keeps what does not have to be asked each round."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.settings = SettingsWatch(gateway)
        self._leader_chains = ChainWatch(gateway)
        self._registered: dict[int, BrokerMetadata] = {}
        self._features: Mapping[str, int] = {}
        self._controller_id: int | None = None
        self._cluster: LastResponse[m.MetadataResponse, ClusterMetadata] = last_metadata()
        self._samplers: dict[int, BrokerSampler] = {}
        self._states: Mapping[TopicPartition, DescribedPartition] = {}
        self._listed_ms: Mapping[TopicPartition, int] = {}
        self._partitions: Memo[TopicPartition, PartitionFacts] = Memo()
        self._last_moves: dict[TopicPartition, PartitionReassignment] = {}

    @property
    def describes_movement(self) -> bool:
        """Whether a round may list moving partitions only: brokers describe their log directories."""
        return bool(self._states)

    async def round(self, now_ms: int, *, whole: bool = True) -> ClusterFacts:
        """Everything about the cluster now; not `whole`: of partitions that do not move, the offsets of before.

        Raises GatewayError when no broker answers.
        """
        view = await fetch_cluster(self._gateway, last=self._cluster)
        if self.settings.is_due(view, now_ms):
            await self.settings.sample(view, now_ms)
            await self._refresh(view)
        else:
            await self.settings.sample_new(view, now_ms)
        topics = tuple(self._topic(topic) for topic in view.topics)
        tiered = frozenset(topic.topic_id for topic, facts in zip(view.topics, topics, strict=True) if facts.tiered)
        by_name = {topic.topic: topic for topic in topics}
        moves, samples, eligible = await asyncio.gather(
            self._moves(), self._sample_brokers(view, tiered, now_ms, whole), self._eligible(view, by_name)
        )
        chains = await self._leader_chains.chains(view, samples)
        self._partitions.begin_round()
        partitions = tuple(
            _partition(self._partitions, p, by_name[p.topic], samples, chains.get(p.topic_partition), moves)
            for p in view.partitions
        )
        return ClusterFacts(
            at_ms=now_ms,
            cluster_id=view.cluster_id,
            controller_id=self._controller_id if self._controller_id is not None else view.controller_id,
            features=self._features,
            brokers=self._brokers(view, samples),
            topics=topics,
            partitions=partitions,
            eligible=eligible,
            earlier_ms={(tp.topic, tp.partition): ms for tp, ms in self._listed_ms.items() if ms != now_ms},
        )

    async def _refresh(self, view: ClusterMetadata) -> None:
        try:
            async with asyncio.timeout(CONTROLLER_ANSWER_S):
                self._registered = {b.broker_id: b for b in await fetch_brokers(self._gateway)}
                self._controller_id = await fetch_controller_id(self._gateway)
                if view.brokers:
                    self._features = await fetch_features(self._gateway, view.brokers[0].broker_id)
        except (GatewayError, KafkaError, TimeoutError) as error:
            _log.debug("the cluster's brokers cannot be described: %r", error)

    def _topic(self, topic: TopicMetadata) -> TopicFacts:
        return TopicFacts(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partition_count=len(topic.partitions),
            replication_factor=max((len(p.replicas) for p in topic.partitions), default=0),
            internal=topic.internal,
            config=topic_config(self.settings.newest.topics.get(topic.topic)),
        )

    async def _moves(self) -> dict[TopicPartition, PartitionReassignment]:
        """The moves in progress; while they cannot be listed, those that were seen last."""
        try:
            async with asyncio.timeout(CONTROLLER_ANSWER_S):
                self._last_moves = await list_reassignments(self._gateway, lane=Lane.CONTROLLER)
        except (GatewayError, KafkaError, TimeoutError) as error:
            _log.debug("moves in progress cannot be listed: %r", error)
        return self._last_moves

    async def _eligible(self, view: ClusterMetadata, topics: Mapping[str, TopicFacts]) -> EligiblePage:
        """Of all partitions for which the cluster may keep them; those without a leader first, as answers have a limit.

        The others' lists are empty by definition: in a healthy cluster nothing is asked.
        """
        leaderless = {p.topic for p in view.partitions if p.leader < 0}
        below = {p.topic for p in view.partitions if below_min_isr(topics[p.topic].config, p.replicas, p.isr)}
        lists: dict[TopicPartition, EligibleReplicas] = {}
        complete = True
        try:
            for names in (leaderless, below - leaderless):
                if names:
                    eligible = await fetch_eligible(self._gateway, names)
                    lists |= eligible.by_partition
                    complete &= eligible.complete
        except (GatewayError, KafkaError) as error:
            _log.debug("eligible leader replicas cannot be asked for: %s", describe_failure(error))
            return EligiblePage(lists, complete=False, cause=describe_failure(error))
        return EligiblePage(lists, complete)

    async def _sample_brokers(
        self, view: ClusterMetadata, tiered: frozenset[bytes], now_ms: int, whole: bool
    ) -> dict[int, BrokerSample]:
        alive = [b.broker_id for b in view.brokers]
        self._samplers = {b: self._samplers.get(b) or BrokerSampler(self._gateway, b) for b in alive}
        # After the wall clock was set back no time of before tells anything.
        later = any(listed_ms > now_ms for listed_ms in self._listed_ms.values())
        moving = None if whole or later else await self._moving(view, tiered, now_ms)
        samples = [sampler.sample(view.partitions, tiered, moving) for sampler in self._samplers.values()]
        sampled = {sample.broker_id: sample for sample in await asyncio.gather(*samples)}
        if moving is None:
            disks = {broker_id: sample.disk for broker_id, sample in sampled.items()}
            self._observe_states(view, tiered, {} if later else self._states, disks, now_ms)
        last_ms = self._listed_ms
        self._listed_ms = {
            p.topic_partition: now_ms
            if moving is None or p.topic_partition in moving
            else last_ms.get(p.topic_partition, now_ms)
            for p in view.partitions
        }
        return sampled

    async def _moving(
        self, view: ClusterMetadata, tiered: frozenset[bytes], now_ms: int
    ) -> frozenset[TopicPartition] | None:
        """The partitions to list; None: all, since a broker has come back."""
        reading = {broker_id: asyncio.create_task(sampler.disk()) for broker_id, sampler in self._samplers.items()}
        if reading:
            await asyncio.wait(reading.values(), timeout=DISKS_WAIT_S)
        disks: dict[int, BrokerDisk | None] = {}
        for broker_id, task in reading.items():
            disks[broker_id] = task.result() if task.done() else None
            task.cancel()
        if any(disk is not None and self._samplers[broker_id].has_failed for broker_id, disk in disks.items()):
            return None
        self._observe_states(view, tiered, self._states, disks, now_ms)
        return moving_partitions(self._states, self._listed_ms, now_ms)

    def _observe_states(
        self,
        view: ClusterMetadata,
        tiered: frozenset[bytes],
        before: Mapping[TopicPartition, DescribedPartition],
        disks: Mapping[int, BrokerDisk | None],
        now_ms: int,
    ) -> None:
        sizes = {broker_id: None if disk is None else disk.replicas for broker_id, disk in disks.items()}
        if before or any(of_broker is not None for of_broker in sizes.values()):
            self._states = partition_states(before, view.partitions, tiered, sizes, now_ms)

    def _brokers(self, view: ClusterMetadata, samples: Mapping[int, BrokerSample]) -> dict[int, BrokerFacts]:
        """Registered brokers, alive or not: Metadata lists only those that are alive."""
        alive = {b.broker_id: b for b in view.brokers}
        result: dict[int, BrokerFacts] = {}
        for broker_id, registered in sorted((self._registered | alive).items()):
            sample = samples.get(broker_id)
            if sample is None:
                absent = f"Broker {broker_id} is registered, but not alive."
                result[broker_id] = BrokerFacts(registered, reachable=False, error=absent)
                continue
            last_registered = self._registered.get(broker_id)
            facts = BrokerMetadata(
                broker_id, registered.address, registered.rack, fenced=bool(last_registered and last_registered.fenced)
            )
            log_dirs = sample.disk.log_dirs if sample.disk is not None else None
            result[broker_id] = BrokerFacts(facts, sample.error is None, sample.error, log_dirs)
        return result


def _partition(
    memo: Memo[TopicPartition, PartitionFacts],
    view: PartitionMetadata,
    topic: TopicFacts,
    samples: Mapping[int, BrokerSample],
    chain: EpochChain | None,
    moves: Mapping[TopicPartition, PartitionReassignment],
) -> PartitionFacts:
    tp = view.topic_partition
    leader = samples.get(view.leader)
    return memo.value(
        tp,
        _facts,
        view,
        topic.tiered,
        topic.compacted,
        tuple(_replica(view, broker_id, samples.get(broker_id)) for broker_id in view.replicas),
        leader.pending.get(tp) if leader else None,
        leader.high_watermarks.get(tp) if leader else None,
        leader.last_stable.get(tp) if leader else None,
        chain,
        moves.get(tp),
    )


def _facts(
    view: PartitionMetadata,
    tiered: bool,
    compacted: bool,
    replicas: tuple[ReplicaFacts, ...],
    pending: ListedOffset | None,
    high_watermark: ListedOffset | None,
    last_stable: ListedOffset | None,
    chain: EpochChain | None,
    move: PartitionReassignment | None,
) -> PartitionFacts:
    return PartitionFacts(
        view=view,
        tiered=tiered,
        compacted=compacted,
        replicas={replica.broker_id: replica for replica in replicas},
        pending=-1 if not tiered else _offset(pending),
        high_watermark=_offset(high_watermark),
        epochs=None if chain is None else chain.entries,
        epochs_complete=chain is None or chain.complete,
        move=move,
        error=_error(view),
        last_stable=_offset(last_stable),
    )


def _replica(view: PartitionMetadata, broker_id: int, sample: BrokerSample | None) -> ReplicaFacts:
    if sample is None:
        return ReplicaFacts(broker_id, error=f"Broker {broker_id} is not alive.")
    if sample.error is not None:
        return ReplicaFacts(broker_id, error=sample.error)
    replica = sample.replicas.get(view.topic_partition)
    if replica is None:
        return ReplicaFacts(broker_id, error=f"Broker {broker_id} said nothing about {view.topic_partition}.")
    return replica


def _offset(listed: ListedOffset | None) -> int | None:
    return listed.offset if listed is not None and listed.error is ErrorCode.NONE else None


def _error(view: PartitionMetadata) -> str | None:
    if view.leader < 0:
        return f"{view.topic_partition} has no leader: none of its in-sync replicas {list(view.isr)} is alive."
    return None
