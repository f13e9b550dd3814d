"""Epoch chains of leaders: asked when a partition is new, its leader epoch has changed, or its chain was not complete.

In a quiet cluster that is never.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.epoch_requests import ChainRequest, EpochChain, fetch_chains, from_log_start
from backend.control.gateway.requests.metadata_requests import ClusterMetadata, PartitionMetadata
from backend.control.observer.sampling.broker_sampler import BrokerSample
from backend.protocol.errors import KafkaError
from backend.tiering.ids import TopicPartition

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Chain:
    topic_id: bytes
    leader: int
    leader_epoch: int
    chain: EpochChain


class ChainWatch:
    """Keeps the chains that are known."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._chains: dict[TopicPartition, _Chain] = {}
        self._view: ClusterMetadata | None = None  # of the last call

    async def chains(
        self, view: ClusterMetadata, samples: Mapping[int, BrokerSample]
    ) -> dict[TopicPartition, EpochChain]:
        """Of every partition whose leader answered. Never raises."""
        requests: dict[int, dict[TopicPartition, ChainRequest]] = defaultdict(dict)
        chains: dict[TopicPartition, EpochChain] = {}
        for p in view.partitions:
            sample = samples.get(p.leader)
            replica = sample.replicas.get(p.topic_partition) if sample is not None else None
            if replica is None or replica.log_start is None or replica.log_end is None:
                continue
            cached = self._chains.get(p.topic_partition)
            same_topic = cached is not None and cached.topic_id == p.topic_id
            if cached is not None and same_topic and _is_current(cached, p):
                chains[p.topic_partition] = _from_log_start(cached.chain, replica.log_start)
                continue
            before = cached.chain.entries if cached is not None and same_topic else ()
            request = ChainRequest(p.leader_epoch, replica.log_start, replica.log_end, before)
            requests[p.leader][p.topic_partition] = request
        chains_by_leader = await asyncio.gather(
            *(self._chains_of(leader, request) for leader, request in requests.items())
        )
        if view is not self._view or requests:
            views = {p.topic_partition: p for p in view.partitions}
            for leader_chains in chains_by_leader:
                for tp, chain in leader_chains.items():
                    p = views[tp]
                    self._chains[tp] = _Chain(p.topic_id, p.leader, p.leader_epoch, chain)
                    chains[tp] = chain
            self._chains = {tp: chain for tp, chain in self._chains.items() if tp in views}
        self._view = view
        return chains

    async def _chains_of(
        self, leader: int, requests: Mapping[TopicPartition, ChainRequest]
    ) -> dict[TopicPartition, EpochChain]:
        try:
            return await fetch_chains(self._gateway, leader, requests)
        except (GatewayError, KafkaError) as error:
            _log.debug("broker %d tells no leader epochs: %s", leader, describe_failure(error))
            return {}


def _is_current(cached: _Chain, p: PartitionMetadata) -> bool:
    """The newest entry is that of the leader's own epoch: nothing can be added before the next election."""
    entries = cached.chain.entries
    newest = entries[-1][0] if entries else -1
    return (cached.leader, cached.leader_epoch) == (p.leader, p.leader_epoch) and newest == p.leader_epoch


def _from_log_start(chain: EpochChain, log_start: int) -> EpochChain:
    entries = from_log_start(chain.entries, log_start)
    return chain if entries == chain.entries else EpochChain(entries, chain.complete)
