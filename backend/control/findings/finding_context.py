"""Input of the rules: one round of samples, the ledger's open work, settings. Frozen values, all of one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from backend.control.findings.broker_absences import RepeatedAbsence
from backend.control.findings.endangered_partitions import EndangeredPartitions
from backend.control.findings.remote_read_growth import ReadGrowth
from backend.control.findings.still_offsets import PartitionKey, PartitionStill
from backend.control.findings.thresholds import RuleSettings, Thresholds
from backend.control.findings.unclean_elections import UncleanElection
from backend.control.findings.vanished_topics import VanishedTopics
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.feature_requests import FeatureLevel
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.control.gateway.requests.transaction_requests import OpenTransaction
from backend.store.backups.restoring import Restored
from backend.store.queries.config import TopicRow
from backend.store.queries.copy_attempts import FailedAttempt, FinishedCopy
from backend.store.queries.findings import FailedRead, StoredCopyEvent, UncleanRecovery
from backend.store.queries.health import ProcessHealth
from backend.store.queries.lineage import FinishedSegment
from backend.store.queries.overview import BrokerRow
from backend.store.queries.partitions import SegmentRow
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.ids import TopicPartition

CRITICAL: Final = "critical"
WARNING: Final = "warning"
NOTICE: Final = "notice"
SEVERITIES: Final = (CRITICAL, WARNING, NOTICE)
# Nodes of a cluster that was away start one after another: the first that answers has no majority yet.
CLUSTER_STARTED_MS: Final = 60_000
# Consumers that assign partitions commit seldom: those of Flink with each checkpoint, 10 minutes at most as a rule.
READS_FOR_MS: Final = 600_000
ThrottleKey = tuple[str, str | None, int | None]
"""(name, topic, broker): a throttle whatever its value."""
NOT_ALLOWED: Final = "not allowed"
"""The rule of a finding about something that our principal may not read."""
# Objects that a sentence names, and that the evidence lists.
NAMED_MAX: Final = 10
FindingKey = tuple[str, str]
"""(slug, object): what a finding is about."""
REMOTE_STORE: Final = "remote storage"
"""The object of a finding about the store itself, not about one of its topics or brokers."""
# Rule of `follower-stuck` about a replica that a throttle holds back: `throttle-left` explains no other.
THROTTLED: Final = "throttled"
# Rule of `records-unreadable` about a topic that brokers read no further than to such a record.
READING_ENDS: Final = "brokers stop reading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rule says that this is so now. It becomes a finding once it has been so for `for_ms`.

    `sentence` is the headline, `why` the evidence in words, `facts` the numbers behind it. `replaces` is the slug of a
    milder finding of the same object that this one makes superfluous. `depends_on`: other brokers whose failure would
    explain it. `also_about`: partitions besides its own that it explains. `cause` is set by `causes`, and `seen_ms`,
    when it was last seen where that is not now, by the watch. `unseen`: a right is missing that shows it; it is kept.
    `evidence_ms`: when the newest period began in which it showed, of a rule that judges periods.
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
    depends_on: frozenset[int] = frozenset()
    also_about: tuple[tuple[str, int], ...] = ()
    cause: FindingKey | None = None
    seen_ms: int | None = None
    unseen: bool = False
    evidence_ms: int | None = None

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

    @property
    def key(self) -> ThrottleKey:
        return self.name, self.topic, self.broker_id


@dataclass(frozen=True, slots=True)
class ClusterSilence:
    """No broker answers since then, and why."""

    since_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class RoundAge:
    """For how long no round of samples has ended well while the cluster answers; rounds come every `interval_ms`.
    `reason`: why the newest one failed, None: it waits.
    """

    age_ms: int
    interval_ms: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Committed offset of a group; `moved`: not the same as at the sample before.

    A group without `members` reads where it commits: `moved_ms` is when it was last seen to, None: never.
    """

    group: str
    topic: str
    partition: int
    committed: int
    moved: bool = False
    members: bool = True
    moved_ms: int | None = None

    def is_read(self, at_ms: int) -> bool:
        """Whether somebody reads from there, as far as can be seen."""
        return self.members or (self.moved_ms is not None and at_ms - self.moved_ms <= READS_FOR_MS)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Log start and log end of a partition; `end` None: not known."""

    start: int
    end: int | None

    @property
    def empty(self) -> bool:
        return self.end == self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingContext:
    """`ledger_ms`: up to when the pipeline is known to have stored everything; None: there is no pipeline. `moved_ms`:
    when the log end of a follower was last seen to change, by (topic, partition, broker). `earlier_ms`: partitions
    whose offsets were not listed in this round, since nothing moved there, and when they were. `kafka_rules`: the
    brokers keep Apache Kafka 4.3's own ways where the KIPs say otherwise. `disk_rates`: bytes an hour by (broker,
    path);
    absent: not known yet. `finished` None: not read in this round, or too many. `restored`: how this process put its
    database back. `reader_queues`: reads that wait for a reader of the remote tier, by broker; absent: the broker does
    not tell. `feature_levels`, `quorum_replicas`: empty until the cluster has reported them; `quorum_ms`: when it
    described its quorum last. `eligible`: of partitions
    without a leader, where the cluster tells. `passed_over`: records of internal topics that could not be read, by
    topic and reader. `recoveries`: leaders elected by comparing logs within the last hour.
    `offline_logs`: why a broker that runs cannot use its log, by partition and broker.
    `failed_attempts` and `finished_copies`: copies of the last minutes by the ledger, newest first. `still`: offsets at
    which partitions wait. `transactions`: the open ones that hold partitions, where they were asked for. `copy_lags`:
    sealed bytes that a broker has not copied of a topic, where its meters are read. `read_growth`: reads of the remote
    tier by these meters, oldest first; `failed_reads`: the newest that the embedded engine reported. `remote_wait_ms`:
    how long a broker waits for the store (remote.fetch.max.wait.ms). `group_bounds`: logs of the time when the
    groups' offsets were read; `readable_offsets`: (group, topic, partition) that were at or above the log start once.
    `slow_copies`: those that were slow together within the last 45 s.
    `move_throttles`: those that a move uses or used a short while ago. `p99_ms`: how long copies of partitions with an
    open one take, `cluster_p99_ms` those of all; None: not known. `task_intervals_ms`: how often a broker looks for
    segments to copy (remote.log.manager.task.interval.ms); `copy_limits`: bytes a second that a broker copies at most,
    of those with a limit (remote.log.manager.copy.max.bytes.per.second).
    `endangered`: partitions that wait for the broker that led last, which has less than another replica;
    `election_try_ms`: how often the controller tries to elect leaders, None: no broker tells. `listed`: the
    brokers of the newest Metadata, None: not known. `unclean_elections`: seen by comparing samples. `away`: no broker
    answers.
    `repeated_absences`: brokers that come and go. `returning`: brokers that were silent before the cluster listed them
    again, `rejoining`: those that answer again and whose replicas may yet join the ISRs. `back_ms`: for how long the
    cluster answers again, None: always.
    `missing_rights`: lines of docs/attach.md that our principal lacks.
    `own_moves`: partitions that our plans move.
    `processes`: the last heartbeats of the product's own processes, by name. `round_age`: of the observer's newest
    round, None: not known. `monotonic_ms`: the same moment by a clock
    that nobody sets, for holds; None: `at_ms` is as good. `rule_settings`: what the file of alerts says about rules.
    """

    at_ms: int
    brokers: Sequence[BrokerRow] = ()
    topics: Mapping[str, TopicRow] = field(default_factory=dict)
    partitions: Sequence[PartitionSample] = ()
    replicas: Sequence[ReplicaSample] = ()
    earlier_ms: Mapping[PartitionKey, int] = field(default_factory=dict)
    ledger_ms: int | None = None
    open_segments: Sequence[SegmentRow] = ()
    p99_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)
    cluster_p99_ms: int | None = None
    task_intervals_ms: Mapping[int, int] = field(default_factory=dict)
    copy_limits: Mapping[int, int] = field(default_factory=dict)
    copy_events: Sequence[StoredCopyEvent] = ()
    failed_attempts: Sequence[FailedAttempt] = ()
    finished_copies: Sequence[FinishedCopy] = ()
    finished: Sequence[FinishedSegment] | None = None
    throttles: Sequence[ThrottleSetting] = ()
    move_throttles: Collection[ThrottleKey] = ()
    moved_ms: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    flags: Mapping[int, bool] = field(default_factory=dict)
    disk_rates: Mapping[tuple[int, str], float] = field(default_factory=dict)
    kafka_rules: bool = False
    group_offsets: Sequence[GroupOffset] = ()
    group_bounds: Mapping[PartitionKey, LogBounds] = field(default_factory=dict)
    readable_offsets: Collection[tuple[str, str, int]] = ()
    reader_queues: Mapping[int, float] = field(default_factory=dict)
    restored: Sequence[Restored] = ()
    feature_levels: Mapping[str, FeatureLevel] = field(default_factory=dict)
    passed_over: Mapping[tuple[str, str], int] = field(default_factory=dict)
    recoveries: Sequence[UncleanRecovery] = ()
    quorum_replicas: Sequence[QuorumReplicaState] = ()
    quorum_ms: int | None = None
    slow_copies: Sequence[SegmentRow] = ()
    quorum_leader_id: int = -1
    quorum_silent_since_ms: int | None = None
    quorum_refused: Collection[int] = ()
    eligible: Mapping[TopicPartition, EligibleReplicas] = field(default_factory=dict)
    offline_logs: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)
    still: Mapping[PartitionKey, PartitionStill] = field(default_factory=dict)
    transactions: Mapping[PartitionKey, OpenTransaction] = field(default_factory=dict)
    copy_lags: Mapping[tuple[int, str], float] = field(default_factory=dict)
    read_growth: Sequence[ReadGrowth] = ()
    failed_reads: Sequence[FailedRead] = ()
    remote_wait_ms: Mapping[int, int] = field(default_factory=dict)
    endangered: EndangeredPartitions = field(default_factory=EndangeredPartitions)
    election_try_ms: int | None = None
    listed: Collection[int] | None = None
    unclean_elections: Collection[UncleanElection] = ()
    away: ClusterSilence | None = None
    missing_rights: Sequence[MissingRight] = ()
    vanished_topics: VanishedTopics | None = None
    repeated_absences: Mapping[int, RepeatedAbsence] = field(default_factory=dict)
    returning: frozenset[int] = frozenset()
    rejoining: frozenset[int] = frozenset()
    back_ms: int | None = None
    own_moves: Collection[tuple[str, int]] = ()
    processes: Mapping[str, ProcessHealth] = field(default_factory=dict)
    round_age: RoundAge | None = None
    monotonic_ms: int | None = None
    rule_settings: RuleSettings = field(default_factory=RuleSettings)

    @property
    def just_back(self) -> bool:
        """The whole cluster was away, and its nodes have started one after another since."""
        return self.back_ms is not None and self.back_ms < CLUSTER_STARTED_MS

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of what belongs to no topic."""
        return self.rule_settings.thresholds(None)

    def thresholds_of(self, topic: str) -> Thresholds:
        """Thresholds of a topic; asked for what is to become a finding, not for each partition."""
        return self.rule_settings.thresholds(topic)

    def set_for_ms(self, slug: str, topic: str | None = None) -> int | None:
        """The hold that the settings give a rule; None: they do not. For rules that measure it themselves."""
        setting = self.rule_settings.of(slug, topic)
        return None if setting is None else setting.for_ms

    def for_ms(self, slug: str, default_ms: int, topic: str | None = None) -> int:
        """The hold that is in force, as `set_for_ms`."""
        for_ms = self.set_for_ms(slug, topic)
        return default_ms if for_ms is None else for_ms

    def listed_ms(self, topic: str, partition: int) -> int:
        """When the offsets of a partition were listed: what they did since is not known."""
        return self.earlier_ms.get((topic, partition), self.at_ms)

    def topic(self, name: str) -> TopicRow | None:
        """A topic's settings; None when they are not known."""
        return self.topics.get(name)

    @property
    def tiered(self) -> list[PartitionSample]:
        return [partition for partition in self.partitions if partition.tiered]


def name_of(row: PartitionSample | ReplicaSample | SegmentRow) -> str:
    """`orders-3`."""
    return f"{row.topic}-{row.partition}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def first_names(names: Sequence[str]) -> str:
    """`a, b, c`; of more than `NAMED_MAX` the first, `, and 3 more`."""
    more = f", and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


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
