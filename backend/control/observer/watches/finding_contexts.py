"""The context that the rules judge: a round or a liveness as observed, and what the tables add to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection

from backend.control.control_database import Database
from backend.control.findings.copy_times import slow_together
from backend.control.findings.disk_rates import (
    DiskHistory,
    LogDirs,
    rates,
    remember,
    remember_log_dirs,
    with_last_log_dirs,
)
from backend.control.findings.finding_context import FindingContext, GroupOffset, RoundAge, ThrottleSetting
from backend.control.findings.group_starts import GroupStarts, remember_starts
from backend.control.findings.move_throttles import MoveThrottles, remember_throttles
from backend.control.findings.remote_read_growth import WINDOW_MS, ReadGrowth
from backend.control.findings.still_offsets import PartitionKey, PartitionStill
from backend.control.findings.thresholds import RuleSettings
from backend.control.findings.unclean_elections import UncleanElection
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.feature_requests import FeatureLevel
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.control.gateway.requests.transaction_requests import OpenTransaction
from backend.control.observer.sampling.settings_sample import SettingsSample
from backend.control.observer.sampling_round import FLAG, SamplingRound
from backend.control.observer.watches.liveness_watch import Liveness
from backend.control.observer.watches.observed_brokers import broker_rows, brokers_now
from backend.control.observer.watches.quorum_watch import QuorumObservation
from backend.control.observer.watches.sampled_settings import (
    copy_limits,
    election_try_ms,
    keeps_kafka_overlap,
    remote_wait_ms,
    task_intervals_ms,
    throttles,
)
from backend.store.ledger_completeness import ledger_ms
from backend.store.queries import findings as queries
from backend.store.queries import health, operations, overview, partitions
from backend.store.queries.config import TopicRow
from backend.store.queries.copy_attempts import failed_attempts, finished_copies
from backend.store.queries.health import ProcessHealth
from backend.store.queries.lineage import FinishedSegment, finished_segments
from backend.store.queries.partitions import SegmentRow
from backend.store.writes.samples import PartitionSample
from backend.tiering.ids import TopicPartition, uuid_text
from backend.tiering.segment_state import SegmentState

# 20,000 segments are read and compared in about 0.2 s: 1.5 % of a core.
LINEAGE_INTERVAL_MS: Final = 15_000
COPY_EVENTS_MS: Final = 600_000
# So long a crash of all brokers stays a finding after its elections.
RECOVERIES_MS: Final = 3_600_000
# A copy of a slow store ends, and the next one is not slow before 20 s.
SLOW_OUTLASTS_MS: Final = 45_000
# So long it is said that records were kept aside: the next rebuild reads them again.
QUARANTINED_MS: Final = 86_400_000
# A plan that has ended may stand in an older sample as a move that goes on.
MOVE_ENDED_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class ObservedRound:
    """One round as the observer hands it over; `brokers` and `topics` are rows of the tables."""

    round: SamplingRound
    brokers: Sequence[Mapping[str, Any]]
    topics: Sequence[Mapping[str, Any]]
    settings: SettingsSample
    group_offsets: Sequence[GroupOffset] = ()
    group_offsets_ms: int | None = None
    reader_queues: Mapping[int, float] = field(default_factory=dict)
    feature_levels: Mapping[str, FeatureLevel] = field(default_factory=dict)
    passed_over: Mapping[tuple[str, str], int] = field(default_factory=dict)
    eligible: Mapping[TopicPartition, EligibleReplicas] = field(default_factory=dict)
    offline_logs: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)
    still: Mapping[PartitionKey, PartitionStill] = field(default_factory=dict)
    transactions: Mapping[PartitionKey, OpenTransaction] = field(default_factory=dict)
    copy_lags: Mapping[tuple[int, str], float] = field(default_factory=dict)
    read_growth: Sequence[ReadGrowth] = ()


@dataclass(frozen=True, slots=True)
class ObservedLiveness:
    """The living at this moment, with the rows and settings of the newest round: brokers and topics of the tables."""

    liveness: Liveness
    brokers: Sequence[Mapping[str, Any]]
    topics: Sequence[Mapping[str, Any]]
    quorum: QuorumObservation = field(default_factory=QuorumObservation)
    offline_logs: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)
    unclean_elections: Collection[UncleanElection] = ()
    round_age: RoundAge | None = None


class FindingContexts:
    """Makes the contexts of one cluster, on the database thread; remembers what differences need."""

    def __init__(
        self, database: Database, cluster_id: str, *, attached: bool, rule_settings: Callable[[], RuleSettings]
    ) -> None:
        self._database = database
        self._cluster_id = cluster_id
        self._attached = attached
        self._rule_settings = rule_settings
        self._disks: DiskHistory = {}
        self._log_dirs: LogDirs = {}
        self._starts = GroupStarts()
        self._move_throttles = MoveThrottles()
        self._election_try_ms: int | None = None
        self._lineage_ms: int | None = None
        self._finished: list[FinishedSegment] | None = None
        self._ledger_ms: int | None = None
        self._slow_copies: tuple[Sequence[SegmentRow], int] = (), 0
        self._processes: Mapping[str, ProcessHealth] = {}
        self._missing_rights: Sequence[MissingRight] = ()
        self._listed: tuple[Sequence[PartitionMetadata], frozenset[str], list[PartitionSample]] = (), frozenset(), []

    def of_liveness(self, connection: Connection | None, seen: ObservedLiveness) -> FindingContext:
        """The context of the rules of liveness: no offsets, no ledger. Without a database (None) the product's
        processes are as they were last read.
        """
        if connection is not None:
            self._processes = health.processes(connection, self._cluster_id, seen.liveness.at_ms)
        self._missing_rights = seen.liveness.missing_rights
        liveness, at_ms = seen.liveness, seen.liveness.at_ms
        topics = {row["topic"]: TopicRow(**_own(row)) for row in seen.topics}
        return FindingContext(
            at_ms=at_ms,
            brokers=with_last_log_dirs(brokers_now(broker_rows(seen.brokers), liveness), self._log_dirs),
            topics=topics,
            partitions=self._partitions_now(liveness, topics),
            eligible=liveness.eligible,
            endangered=liveness.endangered,
            election_try_ms=self._election_try_ms,
            listed=liveness.listed,
            returning=liveness.returning,
            rejoining=liveness.rejoining,
            unclean_elections=seen.unclean_elections,
            offline_logs=seen.offline_logs,
            away=liveness.away,
            quorum_replicas=seen.quorum.replicas,
            quorum_ms=seen.quorum.described_ms,
            quorum_leader_id=seen.quorum.leader_id,
            quorum_silent_since_ms=seen.quorum.silent_since_ms,
            quorum_refused=seen.quorum.refused,
            missing_rights=liveness.missing_rights,
            vanished_topics=liveness.vanished_topics,
            repeated_absences=liveness.repeated_absences,
            back_ms=liveness.back_ms,
            processes=self._processes,
            round_age=seen.round_age,
            kafka_rules=self._attached,
            rule_settings=self._rule_settings(),
        )

    def of_round(self, connection: Connection, seen: ObservedRound, at_monotonic_ms: int) -> FindingContext:
        """The context of the rules of a round; `at_monotonic_ms`: when it came, by a clock that nobody sets."""
        at_ms, cluster_id = seen.round.at_ms, self._cluster_id
        brokers = broker_rows(seen.brokers)
        self._disks = remember(self._disks, brokers, at_monotonic_ms)
        self._log_dirs = remember_log_dirs(self._log_dirs, brokers)
        self._starts = remember_starts(
            self._starts, seen.group_offsets, seen.group_offsets_ms, seen.round.partitions, at_ms
        )
        throttles_now = self._remember_settings(seen, at_monotonic_ms)
        open_segments = partitions.open_segments(connection, cluster_id)
        if self._lineage_ms is None or at_monotonic_ms - self._lineage_ms >= LINEAGE_INTERVAL_MS:
            self._finished = finished_segments(connection, cluster_id)
            self._lineage_ms = at_monotonic_ms
        copying = {(s.topic, s.partition) for s in open_segments if s.state is SegmentState.COPY_SEGMENT_STARTED}
        copies_since_ms = at_ms - COPY_EVENTS_MS
        copy_events = queries.copy_events(connection, cluster_id, copies_since_ms)
        attempts = failed_attempts(connection, cluster_id, copies_since_ms)
        moving = any(row.adding_replicas or row.removing_replicas for row in seen.round.partitions)
        p99_ms = overview.copy_p99_ms(connection, cluster_id, copying)
        failing = attempts or any(event.outcome == "failed" for event in copy_events)
        context = FindingContext(
            at_ms=at_ms,
            brokers=with_last_log_dirs(brokers, self._log_dirs),
            topics={row["topic"]: TopicRow(**_own(row)) for row in seen.topics},
            partitions=seen.round.partitions,
            replicas=seen.round.replicas,
            earlier_ms=seen.round.earlier_ms,
            ledger_ms=self._known_ledger_ms(connection, at_ms, open_segments),
            open_segments=open_segments,
            p99_ms=p99_ms,
            cluster_p99_ms=overview.cluster_copy_p99_ms(connection, cluster_id) if copying - p99_ms.keys() else None,
            task_intervals_ms=task_intervals_ms(seen.settings),
            copy_limits=copy_limits(seen.settings),
            copy_events=copy_events,
            failed_attempts=attempts,
            finished_copies=finished_copies(connection, cluster_id, copies_since_ms) if failing else (),
            unclean_elections=seen.round.elections.elections.values(),
            recoveries=queries.unclean_recoveries(connection, cluster_id, at_ms - RECOVERIES_MS),
            finished=self._finished,
            throttles=throttles_now,
            move_throttles=self._move_throttles.in_use(at_monotonic_ms),
            moved_ms={key: memory.moved_ms for key, memory in seen.round.memories.items()},
            flags=seen.settings.flags(FLAG),
            disk_rates=rates(self._disks),
            group_offsets=seen.group_offsets,
            group_bounds=self._starts.bounds,
            readable_offsets=self._starts.readable,
            reader_queues=seen.reader_queues,
            restored=tuple(self._database.restored),
            feature_levels=seen.feature_levels,
            passed_over=dict(seen.passed_over) | _quarantined(connection, cluster_id, at_ms),
            eligible=seen.eligible,
            offline_logs=seen.offline_logs,
            still=seen.still,
            transactions=seen.transactions,
            copy_lags=seen.copy_lags,
            read_growth=seen.read_growth,
            failed_reads=queries.failed_reads(connection, cluster_id, at_ms - WINDOW_MS) if seen.read_growth else (),
            own_moves=operations.moved_partitions(connection, cluster_id, at_ms - MOVE_ENDED_MS) if moving else (),
            remote_wait_ms=remote_wait_ms(seen.settings),
            kafka_rules=self._attached or keeps_kafka_overlap(seen.settings),
            monotonic_ms=at_monotonic_ms,
            rule_settings=self._rule_settings(),
            missing_rights=self._missing_rights,
        )
        return self._with_slow_copies(context, at_monotonic_ms)

    def _remember_settings(self, seen: ObservedRound, at_monotonic_ms: int) -> list[ThrottleSetting]:
        """The throttles that are set; liveness is judged by the settings of the newest round that has some."""
        self._election_try_ms = election_try_ms(seen.settings) or self._election_try_ms
        throttles_now = throttles(seen.settings, seen.topics)
        self._move_throttles = remember_throttles(
            self._move_throttles, throttles_now, seen.round.partitions, at_monotonic_ms
        )
        return throttles_now

    def _with_slow_copies(self, context: FindingContext, at_monotonic_ms: int) -> FindingContext:
        """With the copies that were slow together a moment ago; those of now are remembered."""
        remembered, slow_ms = self._slow_copies
        if now_slow := slow_together(context):
            self._slow_copies = now_slow, at_monotonic_ms
        return replace(context, slow_copies=remembered if at_monotonic_ms - slow_ms < SLOW_OUTLASTS_MS else ())

    def _known_ledger_ms(self, connection: Connection, at_ms: int, open_segments: Sequence[SegmentRow]) -> int | None:
        pipeline = health.processes(connection, self._cluster_id, at_ms).get("pipeline")
        if pipeline is None:
            return max((segment.last_event_ms for segment in open_segments), default=None)
        self._ledger_ms = ledger_ms(pipeline, at_ms, self._ledger_ms)
        return self._ledger_ms

    def _partitions_now(self, liveness: Liveness, topics: Mapping[str, TopicRow]) -> list[PartitionSample]:
        """Of unchanged metadata the same rows: to make 10,000 every three seconds takes 5 % of a core."""
        tiered = frozenset(name for name, topic in topics.items() if topic.tiered)
        if self._listed[0] is not liveness.partitions or self._listed[1] != tiered:
            self._listed = liveness.partitions, tiered, partitions_now(liveness.partitions, tiered)
        return self._listed[2]


def partitions_now(partitions: Sequence[PartitionMetadata], tiered: AbstractSet[str]) -> list[PartitionSample]:
    """The partitions of the newest Metadata, without offsets; `tiered`: names of topics."""
    return [
        PartitionSample(
            topic=p.topic,
            partition=p.partition,
            topic_id=uuid_text(p.topic_id),
            leader=p.leader,
            leader_epoch=p.leader_epoch,
            replicas=p.replicas,
            isr=p.isr,
            tiered=p.topic in tiered,
        )
        for p in partitions
    ]


def _quarantined(connection: Connection, cluster_id: str, at_ms: int) -> dict[tuple[str, str], int]:
    """The records that the pipeline has kept aside within the last day."""
    number = queries.quarantined_records(connection, cluster_id, at_ms - QUARANTINED_MS)
    return {("__remote_log_metadata", "the pipeline"): number} if number else {}


def _own(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "cluster_id"}
