"""Input of the rules: one round of samples, the ledger's open work, settings. Frozen values, all of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.feature_requests import FeatureLevel
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState
from backend.store.backups.restoring import Restored
from backend.store.queries.config import TopicRow
from backend.store.queries.findings import StoredCopyEvent, UncleanRecovery
from backend.store.queries.lineage import FinishedSegment
from backend.store.queries.overview import BrokerRow
from backend.store.queries.partitions import SegmentRow
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.ids import TopicPartition

CRITICAL: Final = "critical"
WARNING: Final = "warning"
NOTICE: Final = "notice"
SEVERITIES: Final = (CRITICAL, WARNING, NOTICE)
FindingKey = tuple[str, str]
"""(slug, object): what a finding is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rule says that this is so now. It becomes a finding once it has been so for `for_ms`.

    `sentence` is the headline, `why` the evidence in words, `facts` the numbers behind it. `replaces` is the slug of a
    milder finding of the same object that this one makes superfluous.
    """

    slug: str
    object: str
    severity: str
    sentence: str
    why: str
    action: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    for_ms: int = 0
    replaces: str | None = None

    @property
    def key(self) -> FindingKey:
        return self.slug, self.object

    @property
    def evidence(self) -> dict[str, Any]:
        """As it is stored: the sentence and its numbers."""
        return {"sentence": self.why, **self.facts}


@dataclass(frozen=True, slots=True)
class ThrottleSetting:
    """A replication throttle that is set, on a topic (`broker_id` None) or on a broker (-1: for all brokers)."""

    name: str
    value: str
    topic: str | None = None
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Committed offset of a group with members; `moved`: not the same as at the sample before."""

    group: str
    topic: str
    partition: int
    committed: int
    moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingContext:
    """`ledger_ms`: up to when the pipeline is known to have stored everything; None: there is no pipeline. `moved_ms`:
    when the log end of a follower was last seen to change, by (topic, partition, broker). `kafka_rules`: the brokers
    keep Apache Kafka 4.3's own ways where the KIPs say otherwise. `disk_rates`: bytes an hour by (broker, path);
    absent: not known yet. `finished` None: not read in this round, or too many. `restored`: how this process put its
    database back. `reader_queues`: reads that wait for a reader of the remote tier, by broker; absent: the broker does
    not tell. `feature_levels`, `quorum_replicas`: empty until the cluster has reported them. `eligible`: of partitions
    without a leader, where the cluster tells. `passed_over`: records of internal topics that could not be read, by who
    reads: `broker 2`, or `events` for our own reader of `__ebbline_events`. `recoveries`: leaders elected by comparing
    logs within the last hour. `offline_logs`: why a broker that runs cannot use its log, by partition and broker.
    """

    at_ms: int
    brokers: Sequence[BrokerRow] = ()
    topics: Mapping[str, TopicRow] = field(default_factory=dict)
    partitions: Sequence[PartitionSample] = ()
    replicas: Sequence[ReplicaSample] = ()
    ledger_ms: int | None = None
    open_segments: Sequence[SegmentRow] = ()
    p99_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)
    copy_events: Sequence[StoredCopyEvent] = ()
    finished: Sequence[FinishedSegment] | None = None
    throttles: Sequence[ThrottleSetting] = ()
    moved_ms: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    flags: Mapping[int, bool] = field(default_factory=dict)
    disk_rates: Mapping[tuple[int, str], float] = field(default_factory=dict)
    kafka_rules: bool = False
    group_offsets: Sequence[GroupOffset] = ()
    reader_queues: Mapping[int, float] = field(default_factory=dict)
    restored: Sequence[Restored] = ()
    feature_levels: Mapping[str, FeatureLevel] = field(default_factory=dict)
    passed_over: Mapping[str, int] = field(default_factory=dict)
    recoveries: Sequence[UncleanRecovery] = ()
    quorum_replicas: Sequence[QuorumReplicaState] = ()
    eligible: Mapping[TopicPartition, EligibleReplicas] = field(default_factory=dict)
    offline_logs: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)

    def topic(self, name: str) -> TopicRow | None:
        """A topic's settings; None when they are not known."""
        return self.topics.get(name)

    @property
    def tiered(self) -> list[PartitionSample]:
        return [partition for partition in self.partitions if partition.tiered]


def name_of(row: PartitionSample | ReplicaSample | SegmentRow) -> str:
    """`orders-3`."""
    return f"{row.topic}-{row.partition}"


def count(number: int, noun: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def ids(broker_ids: Iterable[int]) -> str:
    """`1, 3`."""
    return ", ".join(str(broker_id) for broker_id in sorted(broker_ids))


def setting(topic: TopicRow | None, name: str) -> int | None:
    """An integer setting of a topic; None when it is not known."""
    value = None if topic is None else (topic.config or {}).get(name)
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def local_retention_bytes(topic: TopicRow | None) -> int | None:
    """Limit of a partition's local log; None: no limit, or not known. -2 is as `retention.bytes` (KIP-405)."""
    value = setting(topic, "local.retention.bytes")
    if value == -2:
        value = setting(topic, "retention.bytes")
    return None if value is None or value <= 0 else value
