"""Asks a cluster everything one round needs and puts it together as facts.

Every round: Metadata, moves in progress, and each broker's replicas (`broker_sample`). Less often (`pace`) also
settings, fenced brokers, features and the active controller. Epoch chains are asked when a partition is new, its leader
epoch has changed, or its chain was not complete: in a quiet cluster that is never.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.control.gateway.client import Gateway, sentence
from backend.control.gateway.configs import TopicSettings
from backend.control.gateway.connection import LastAnswer
from backend.control.gateway.epochs import EpochChain, EpochQuestion, fetch_chains, from_log_start
from backend.control.gateway.errors import GatewayError
from backend.control.gateway.metadata import (
    BrokerView,
    ClusterView,
    PartitionView,
    TopicView,
    fetch_brokers,
    fetch_cluster,
    fetch_features,
)
from backend.control.gateway.offsets import OffsetAnswer
from backend.control.gateway.quorum import fetch_controller_id
from backend.control.gateway.reassignments import Move, list_reassignments
from backend.control.memo import Memo
from backend.control.observer.broker_sample import BrokerSample, BrokerSampler
from backend.control.observer.facts import BrokerFacts, ClusterFacts, PartitionFacts, ReplicaFacts, TopicFacts
from backend.control.observer.pace import settings_interval_ms
from backend.control.observer.settings_sample import (
    TOPIC_SETTINGS,
    SettingsSample,
    sample_settings,
    sample_topic_settings,
    topic_config,
)
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Chain:
    topic_id: bytes
    leader: int
    leader_epoch: int
    chain: EpochChain


class Sampler:
    """Keeps what does not have to be asked each round."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._settings = SettingsSample()
        self._settings_ms: int | None = None
        self._asked: SettingsSample | None = None
        # Ids of the topics whose settings are known, by name: one that was made again is asked again.
        self._described: dict[str, bytes] = {}
        self._registered: dict[int, BrokerView] = {}
        self._features: Mapping[str, int] = {}
        self._controller_id: int | None = None
        self._chains: dict[TopicPartition, _Chain] = {}
        self._chains_of_view: ClusterView | None = None
        self._cluster: LastAnswer[m.MetadataResponse, ClusterView] = LastAnswer()
        self._topic_settings = TopicSettings(TOPIC_SETTINGS)
        self._samplers: dict[int, BrokerSampler] = {}
        self._partitions: Memo[TopicPartition, PartitionFacts] = Memo()

    @property
    def settings(self) -> SettingsSample:
        """The newest settings of brokers and topics."""
        return self._settings

    def take_asked(self) -> SettingsSample | None:
        """The settings that were told since the last call: all of them, those of new topics, or None."""
        asked, self._asked = self._asked, None
        return asked

    def forget_settings(self) -> None:
        """What was told of them is not of our cluster."""
        self._settings, self._asked, self._described = SettingsSample(), None, {}
        self.ask_settings_again()

    def ask_settings_again(self) -> None:
        """The next round asks for the settings whatever their age: somebody has just changed one."""
        self._settings_ms = None

    async def round(self, now_ms: int) -> ClusterFacts:
        """Everything about the cluster now. Raises GatewayError when no broker answers."""
        view = await fetch_cluster(self._gateway, last=self._cluster)
        if self._settings_ms is None or now_ms - self._settings_ms >= settings_interval_ms(len(view.topics)):
            await self._refresh(view, now_ms)
        else:
            await self._describe_new_topics(view, now_ms)
        topics = tuple(self._topic(topic) for topic in view.topics)
        tiered = frozenset(topic.topic_id for topic, facts in zip(view.topics, topics, strict=True) if facts.tiered)
        moves, samples = await asyncio.gather(self._moves(), self._sample_brokers(view, tiered))
        chains = await self._ask_chains(view, samples)
        by_name = {topic.topic: topic for topic in topics}
        self._partitions.turn()
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
        )

    async def _refresh(self, view: ClusterView, now_ms: int) -> None:
        self._settings_ms = now_ms  # before it is asked: who wants it asked again meanwhile is heard
        try:
            await self._look_at_settings(view, now_ms)
        except BaseException:
            self.ask_settings_again()
            raise
        try:
            self._registered = {b.broker_id: b for b in await fetch_brokers(self._gateway)}
            self._controller_id = await fetch_controller_id(self._gateway)
            if view.brokers:
                self._features = await fetch_features(self._gateway, view.brokers[0].broker_id)
        except (GatewayError, KafkaError) as error:
            _log.debug("the cluster's brokers cannot be described: %s", sentence(error))

    async def _look_at_settings(self, view: ClusterView, now_ms: int) -> None:
        ids = {topic.topic: topic.topic_id for topic in view.topics}
        told = await sample_settings(self._gateway, [b.broker_id for b in view.brokers], ids, self._topic_settings)
        # A topic that does not answer now has what it had.
        before = self._settings.topics
        kept = {name: before[name] for name in before.keys() & ids.keys() if self._described.get(name) == ids[name]}
        self._settings = replace(told, topics=kept | told.topics)
        self._described = {name: ids[name] for name in self._settings.topics}
        self._asked = replace(told, at_ms=now_ms)

    async def _describe_new_topics(self, view: ClusterView, now_ms: int) -> None:
        new = {t.topic: t.topic_id for t in view.topics if self._described.get(t.topic) != t.topic_id}
        if not new:
            return
        told = await sample_topic_settings(self._gateway, new, TopicSettings(TOPIC_SETTINGS))
        # Without those of a topic of such a name that is no more. Others may be reading the sample of the round before.
        kept = {name: entries for name, entries in self._settings.topics.items() if name not in new}
        self._settings = replace(self._settings, topics=kept | told)
        self._described = {name: new.get(name) or self._described[name] for name in self._settings.topics}
        if told:
            self._asked = self._asked or SettingsSample(at_ms=now_ms)
            self._asked.topics.update(told)

    def _topic(self, topic: TopicView) -> TopicFacts:
        return TopicFacts(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partition_count=len(topic.partitions),
            replication_factor=max((len(p.replicas) for p in topic.partitions), default=0),
            internal=topic.internal,
            config=topic_config(self._settings.topics.get(topic.topic)),
        )

    async def _moves(self) -> dict[TopicPartition, Move]:
        try:
            return await list_reassignments(self._gateway)
        except (GatewayError, KafkaError) as error:
            _log.debug("moves in progress cannot be listed: %s", sentence(error))
            return {}

    async def _sample_brokers(self, view: ClusterView, tiered: frozenset[bytes]) -> dict[int, BrokerSample]:
        alive = [b.broker_id for b in view.brokers]
        self._samplers = {b: self._samplers.get(b) or BrokerSampler(self._gateway, b) for b in alive}
        asked = [sampler.sample(view.partitions, tiered) for sampler in self._samplers.values()]
        return {sample.broker_id: sample for sample in await asyncio.gather(*asked)}

    def _brokers(self, view: ClusterView, samples: Mapping[int, BrokerSample]) -> dict[int, BrokerFacts]:
        """Registered brokers, alive or not: Metadata lists only those that are alive."""
        alive = {b.broker_id: b for b in view.brokers}
        found: dict[int, BrokerFacts] = {}
        for broker_id, registered in sorted((self._registered | alive).items()):
            sample = samples.get(broker_id)
            if sample is None:
                absent = f"Broker {broker_id} is registered, but not alive."
                found[broker_id] = BrokerFacts(registered, reachable=False, error=absent)
                continue
            known = self._registered.get(broker_id)
            facts = BrokerView(broker_id, registered.address, registered.rack, fenced=bool(known and known.fenced))
            log_dirs = sample.disk.log_dirs if sample.disk is not None else None
            found[broker_id] = BrokerFacts(facts, sample.error is None, sample.error, log_dirs)
        return found

    async def _ask_chains(
        self, view: ClusterView, samples: Mapping[int, BrokerSample]
    ) -> dict[TopicPartition, EpochChain]:
        questions: dict[int, dict[TopicPartition, EpochQuestion]] = defaultdict(dict)
        chains: dict[TopicPartition, EpochChain] = {}
        for p in view.partitions:
            sample = samples.get(p.leader)
            replica = sample.replicas.get(p.topic_partition) if sample is not None else None
            if replica is None or replica.log_start is None or replica.log_end is None:
                continue
            known = self._chains.get(p.topic_partition)
            same_topic = known is not None and known.topic_id == p.topic_id
            if known is not None and same_topic and _is_current(known, p):
                chains[p.topic_partition] = _from_log_start(known.chain, replica.log_start)
                continue
            before = known.chain.entries if known is not None and same_topic else ()
            question = EpochQuestion(p.leader_epoch, replica.log_start, replica.log_end, before)
            questions[p.leader][p.topic_partition] = question
        asked = await asyncio.gather(*(self._chains_of(leader, question) for leader, question in questions.items()))
        if view is not self._chains_of_view or questions:
            views = {p.topic_partition: p for p in view.partitions}
            for answer in asked:
                for tp, chain in answer.items():
                    p = views[tp]
                    self._chains[tp] = _Chain(p.topic_id, p.leader, p.leader_epoch, chain)
                    chains[tp] = chain
            self._chains = {tp: chain for tp, chain in self._chains.items() if tp in views}
        self._chains_of_view = view
        return chains

    async def _chains_of(
        self, leader: int, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochChain]:
        try:
            return await fetch_chains(self._gateway, leader, questions)
        except (GatewayError, KafkaError) as error:
            _log.debug("broker %d tells no leader epochs: %s", leader, sentence(error))
            return {}


def _is_current(known: _Chain, p: PartitionView) -> bool:
    """The newest entry is that of the leader's own epoch: nothing can be added before the next election."""
    entries = known.chain.entries
    newest = entries[-1][0] if entries else -1
    return (known.leader, known.leader_epoch) == (p.leader, p.leader_epoch) and newest == p.leader_epoch


def _from_log_start(chain: EpochChain, log_start: int) -> EpochChain:
    entries = from_log_start(chain.entries, log_start)
    return chain if entries == chain.entries else EpochChain(entries, chain.complete)


def _partition(
    memo: Memo[TopicPartition, PartitionFacts],
    view: PartitionView,
    topic: TopicFacts,
    samples: Mapping[int, BrokerSample],
    chain: EpochChain | None,
    moves: Mapping[TopicPartition, Move],
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
        chain,
        moves.get(tp),
    )


def _facts(
    view: PartitionView,
    tiered: bool,
    compacted: bool,
    replicas: tuple[ReplicaFacts, ...],
    pending: OffsetAnswer | None,
    high_watermark: OffsetAnswer | None,
    chain: EpochChain | None,
    move: Move | None,
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
    )


def _replica(view: PartitionView, broker_id: int, sample: BrokerSample | None) -> ReplicaFacts:
    if sample is None:
        return ReplicaFacts(broker_id, error=f"Broker {broker_id} is not alive.")
    if sample.error is not None:
        return ReplicaFacts(broker_id, error=sample.error)
    told = sample.replicas.get(view.topic_partition)
    if told is None:
        return ReplicaFacts(broker_id, error=f"Broker {broker_id} said nothing about {view.topic_partition}.")
    return told


def _offset(answer: OffsetAnswer | None) -> int | None:
    return answer.offset if answer is not None and answer.error is ErrorCode.NONE else None


def _error(view: PartitionView) -> str | None:
    if view.leader < 0:
        return f"{view.topic_partition} has no leader: none of its in-sync replicas {list(view.isr)} is alive."
    return None
