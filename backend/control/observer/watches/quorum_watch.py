"""Looks after the metadata quorum: leader, epoch, lag of each voter and observer (DescribeQuorum, KIP-595), snapshot.

The newest look travels in the backend's heartbeat, so that pages read it from the database like all else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.feature_requests import FeatureLevel, fetch_features
from backend.control.gateway.requests.quorum_requests import QuorumInfo, QuorumReplicaState, fetch_quorum
from backend.control.observer.watches.broker_numbers import BrokerMetricSource
from backend.protocol.errors import ErrorCode, KafkaError

AGE_GAUGE: Final = "kafka_server_snapshotemitter_latestsnapshotgeneratedagems"
SIZE_GAUGE: Final = "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes"
# A snapshot is written at most every few minutes.
SNAPSHOT_LOOK_MS: Final = 15_000
# Kafka's limits of a quorum are far below; observers are all other nodes. 180 bytes each: 90 kB in a heartbeat.
REPLICAS_MAX: Final = 500
# The active controller answers in milliseconds; brokers hand the question on, and wait up to 60 s for one.
ANSWER_S: Final = 3.0
CONNECT_S: Final = 1.0
# Quorums have three or five voters: a connection to each with every request while the quorum is silent.
VOTERS_MAX: Final = 31
NO_ANSWER: Final = f"No active controller answered in {ANSWER_S:.0f} s."
NOT_DESCRIBED: Final = "The cluster does not tell (DescribeQuorum), or the quorum has no leader now."
NOT_BY_PROTOCOL: Final = "Kafka tells this by JMX only (SnapshotEmitter), which is not asked on an attached cluster."
NONE_WRITTEN: Final = "The leader has written no snapshot yet."
_log = logging.getLogger(__name__)


def quorum_facts(quorum: QuorumInfo, now_ms: int) -> dict[str, Any]:
    """The reading as JSON. Times in ms since the epoch, None: never; lags in records."""
    return {
        "seen_ms": now_ms,
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": [
            {
                "node_id": replica.node_id,
                "role": replica.role,
                "log_end_offset": replica.log_end_offset if replica.log_end_offset >= 0 else None,
                "lag_records": quorum.lag(replica) if replica.log_end_offset >= 0 else None,
                "last_fetch_ms": replica.last_fetch_ms if replica.last_fetch_ms >= 0 else None,
                "last_caught_up_ms": replica.last_caught_up_ms if replica.last_caught_up_ms >= 0 else None,
                "directory_id": replica.directory_id,
                "counted": replica.counted,
            }
            for replica in quorum.replicas[:REPLICAS_MAX]
        ],
    }


def snapshot_facts(sources: Iterable[BrokerMetricSource], leader_id: int, now_ms: int) -> dict[str, Any]:
    """When the leader wrote its last snapshot and how large it is; a cause where that is not known."""
    result: dict[str, float] = {}
    for source in sources:
        for family in source.only((AGE_GAUGE, SIZE_GAUGE)).collect():
            for sample in family.samples:
                if sample.labels.get("broker") == str(leader_id):
                    result[family.name] = sample.value
    age_ms = result.get(AGE_GAUGE)
    if age_ms is None:
        return {"generated_ms": None, "bytes": None, "cause": f"Node {leader_id} does not tell its meters."}
    if age_ms < 0:
        return {"generated_ms": None, "bytes": None, "cause": NONE_WRITTEN}
    return {"generated_ms": now_ms - int(age_ms), "bytes": int(result.get(SIZE_GAUGE, 0)), "cause": None}


async def refused_voters(voters: Iterable[int], listeners: Mapping[int, tuple[str, int]]) -> frozenset[int]:
    """Voters whose host refuses a connection to them; empty where none takes one: then a firewall may refuse it.

    A voter that takes one may still hang. At most `VOTERS_MAX` are tried: who they are is what the cluster says.
    """
    voters = sorted(voter for voter in voters if voter in listeners)[:VOTERS_MAX]
    taken = await asyncio.gather(*(_takes_connections(*listeners[voter]) for voter in voters))
    by_voter = dict(zip(voters, taken, strict=True))
    if True not in by_voter.values():
        return frozenset()
    return frozenset(voter for voter, takes in by_voter.items() if takes is False)


async def _takes_connections(host: str, port: int) -> bool | None:
    """None: there is no way to know, as behind a firewall that drops what comes."""
    try:
        async with asyncio.timeout(CONNECT_S):
            _reader, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError):
        return None
    writer.close()
    return True


@dataclass(frozen=True, slots=True)
class QuorumObservation:
    """The quorum as last described, at `described_ms`; `silent_since_ms`: no attempt since then got a description.
    `refused`: voters whose listener refuses connections meanwhile, so that they do not run.
    """

    replicas: tuple[QuorumReplicaState, ...] = ()
    leader_id: int = -1
    described_ms: int | None = None
    silent_since_ms: int | None = None
    listeners: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    refused: frozenset[int] = frozenset()


class QuorumWatch:
    """Belongs to one event loop. `meters` None: an attached cluster, which gives no metrics."""

    def __init__(self, gateway: Gateway, meters: Callable[[], Iterable[BrokerMetricSource]] | None) -> None:
        self._gateway = gateway
        self._meters = meters
        self._snapshot: dict[str, Any] = {}
        self._snapshot_ms = 0
        self.feature_levels: Mapping[str, FeatureLevel] = {}
        self.quorum = QuorumObservation()
        self.facts: Mapping[str, Any] | None = None
        """The newest look; its ``cause`` says why the rest is older, or missing. None before the first."""

    async def refresh(self, now_ms: int) -> None:
        """Asks once; a failure becomes the cause."""
        try:
            async with asyncio.timeout(ANSWER_S):
                quorum = await fetch_quorum(self._gateway, lane=Lane.CONTROLLER)
        except (GatewayError, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # The missing right is a finding, and the quorum may be well.
                self.facts = {**(self.facts or {}), "cause": describe_failure(error)}
                self.quorum = replace(self.quorum, silent_since_ms=None, refused=frozenset())
            else:
                await self._set_silent(now_ms, describe_failure(error))
            return
        except TimeoutError:
            await self._set_silent(now_ms, NO_ANSWER)
            return
        if quorum is None:
            await self._set_silent(now_ms, NOT_DESCRIBED)
            return
        self.quorum = QuorumObservation(quorum.replicas, quorum.leader_id, now_ms, listeners=quorum.listeners)
        try:
            self.feature_levels = await fetch_features(self._gateway)
        except (GatewayError, KafkaError) as error:
            _log.debug("the feature levels are not known again yet: %s", error)
        snapshot = await self._read_snapshot(quorum.leader_id, now_ms)
        features = {
            name: {"level": feature.level, "max_level": feature.max_level}
            for name, feature in self.feature_levels.items()
        }
        self.facts = {**quorum_facts(quorum, now_ms), "features": features, "snapshot": snapshot, "cause": None}

    async def _set_silent(self, now_ms: int, cause: str) -> None:
        """A cluster that never described its quorum is not silent: it may be too old for it."""
        self.facts = {**(self.facts or {}), "cause": cause}
        if self.quorum.described_ms is None:
            return
        since_ms = now_ms if self.quorum.silent_since_ms is None else self.quorum.silent_since_ms
        voters = [replica.node_id for replica in self.quorum.replicas if replica.role == "voter"]
        refused = await refused_voters(voters, self.quorum.listeners)
        self.quorum = replace(self.quorum, silent_since_ms=since_ms, refused=refused)

    async def _read_snapshot(self, leader_id: int, now_ms: int) -> dict[str, Any]:
        if self._meters is None:
            return {"generated_ms": None, "bytes": None, "cause": NOT_BY_PROTOCOL}
        if now_ms - self._snapshot_ms >= SNAPSHOT_LOOK_MS or self._snapshot.get("leader_id") != leader_id:
            self._snapshot_ms = now_ms
            sources = list(self._meters())
            snapshot = await asyncio.to_thread(snapshot_facts, sources, leader_id, now_ms)
            self._snapshot = {**snapshot, "leader_id": leader_id}
        return {name: value for name, value in self._snapshot.items() if name != "leader_id"}
