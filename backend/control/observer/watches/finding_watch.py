"""Judges each round by the rules and keeps the table of findings: reads what the rules need, writes what changed.

It works beside the observer: a round that arrives while the database is slow takes the place of the one that waits, so
neither rounds nor memory pile up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from backend.control.alerts.notices import Notice, NoticeEvent, OpenAlerts, open_alerts, open_counts
from backend.control.control_database import Database, DatabaseAway
from backend.control.findings.catalogue import LIVENESS_RULES, OWN_SLUGS, RULES, FindingLane, lane_of
from backend.control.findings.disk_rates import DiskHistory, rates, remember
from backend.control.findings.evaluate import Changes, candidates, compare, retained
from backend.control.findings.finding_context import (
    CRITICAL,
    Candidate,
    FindingContext,
    FindingKey,
    GroupOffset,
    ThrottleSetting,
)
from backend.control.findings.remote_read_growth import WINDOW_MS, ReadGrowth
from backend.control.findings.rules.remote_read_rules import WAIT
from backend.control.findings.still_offsets import PartitionKey, PartitionStill
from backend.control.findings.thresholds import RuleSettings
from backend.control.findings.unseen_findings import unseen
from backend.control.gateway.requests.config_requests import ConfigEntry
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.feature_requests import FeatureLevel
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.control.gateway.requests.transaction_requests import OpenTransaction
from backend.control.observer.sampling.settings_sample import SettingsSample
from backend.control.observer.sampling_round import FLAG, SamplingRound
from backend.control.observer.watches.liveness_watch import Liveness
from backend.store.connection.database import reading, writing
from backend.store.connection.database_faults import first_line
from backend.store.queries import findings as queries
from backend.store.queries import health, maintenance, operations, overview, partitions
from backend.store.queries.config import TopicRow
from backend.store.queries.copy_attempts import failed_attempts, finished_copies
from backend.store.queries.findings import Finding
from backend.store.queries.lineage import FinishedSegment, finished_segments
from backend.store.queries.overview import BrokerRow
from backend.store.queries.partitions import SegmentRow
from backend.store.writes import cluster_rows, finding_rows
from backend.store.writes.samples import PartitionSample
from backend.tiering.ids import TopicPartition, uuid_text
from backend.tiering.segment_state import SegmentState

# 20,000 segments are read and compared in about 0.2 s: 1.5 % of a core.
LINEAGE_INTERVAL_MS: Final = 15_000
COPY_EVENTS_MS: Final = 600_000
# So long a crash of all brokers stays a finding after its elections.
RECOVERIES_MS: Final = 3_600_000
# Closed findings stay a year: 100 a day of 1 kB are 36 MB.
KEEP_CLOSED_MS: Final = 365 * 86_400_000
PRUNE_INTERVAL_MS: Final = 3_600_000
# So long it is said that records were kept aside: the next rebuild reads them again.
QUARANTINED_MS: Final = 86_400_000
# A plan that has ended may stand in an older sample as a move that goes on.
MOVE_ENDED_MS: Final = 60_000
RETRY_S: Final = 2.0
# 10,000 partitions with 3 replicas take 0.2 s of a core: then they are judged every 4 s, not every 2.
SHARE_MAX: Final = 0.05
PAUSE_S_MAX: Final = 10.0
THROTTLED_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
HIDDEN: Final = "set (Kafka does not tell to what)"
THROTTLE_RATES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
OVERLAP: Final = "remote.log.metadata.overlap"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedRound:
    """One round as the observer hands it over; `brokers` and `topics` are rows of the tables."""

    round: SamplingRound
    brokers: Sequence[Mapping[str, Any]]
    topics: Sequence[Mapping[str, Any]]
    settings: SettingsSample
    group_offsets: Sequence[GroupOffset] = ()
    reader_queues: Mapping[int, float] = field(default_factory=dict)
    feature_levels: Mapping[str, FeatureLevel] = field(default_factory=dict)
    passed_over: Mapping[tuple[str, str], int] = field(default_factory=dict)
    quorum_replicas: Sequence[QuorumReplicaState] = ()
    quorum_ms: int | None = None
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
    offline_logs: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """The candidates of one lane, and the moment of the facts that they rest on."""

    at_ms: int
    candidates: Mapping[FindingKey, Candidate]


class FindingWatch:
    """Keeps the findings of one cluster. Belongs to one event loop; `run` is the only writer of opening and closing."""

    def __init__(
        self,
        database: Database,
        cluster_id: str,
        *,
        attached: bool = False,
        notify: Callable[[OpenAlerts], None] = lambda _: None,
        rule_settings: Callable[[], RuleSettings] = RuleSettings,
        monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        """`notify` is given what is open after each round, once it is stored. `monotonic_ms` measures holds."""
        self._notify = notify
        self._rule_settings = rule_settings
        self._monotonic_ms = monotonic_ms
        self._database = database
        self._cluster_id = cluster_id
        self._attached = attached
        self._newest: tuple[ObservedRound, int] | None = None
        self._newest_liveness: ObservedLiveness | None = None
        self._arrived = asyncio.Event()
        self._round_due_s = 0.0
        self._verdicts: dict[FindingLane, _Verdicts] = {}
        self._waiting: Mapping[FindingKey, int] = {}
        self._outlasting: Mapping[FindingKey, int] = {}
        self._missing_rights: Sequence[MissingRight] = ()
        self._disks: DiskHistory = {}
        self._lineage_ms: int | None = None
        self._finished: list[FinishedSegment] | None = None
        self._pruned_ms = 0
        self._alerts = OpenAlerts()
        self._waits_since_ms: int | None = None
        self.rounds = 0
        self.open_counts: Mapping[tuple[str, str], int] = {}

    def submit(self, seen: ObservedRound) -> None:
        """The newest round; never waits."""
        now_ms = self._monotonic_ms()
        self._newest = seen, now_ms
        if self._waits_since_ms is None:
            self._waits_since_ms = now_ms
        self._arrived.set()

    def submit_liveness(self, seen: ObservedLiveness) -> None:
        """The newest liveness; never waits."""
        self._newest_liveness = seen
        self._arrived.set()

    @property
    def behind_ms(self) -> int:
        """Time since the oldest round that is not judged and stored; 0: all are."""
        return 0 if self._waits_since_ms is None else self._monotonic_ms() - self._waits_since_ms

    async def run(self) -> None:
        """Judges rounds, and between them who is alive, until it is cancelled."""
        while True:
            await self._work()
            began_s, clock_ms = time.monotonic(), self._monotonic_ms()
            liveness, self._newest_liveness = self._newest_liveness, None
            newest = None
            if began_s >= self._round_due_s:
                newest, self._newest = self._newest, None
            if newest is None and liveness is None:
                continue
            times_ms = [newest[0].round.at_ms] if newest is not None else []
            times_ms += [liveness.liveness.at_ms] if liveness is not None else []
            at_ms = max(times_ms)
            try:
                self._alerts = await self._database.observe(
                    partial(self._judge, None if newest is None else newest[0], liveness, at_ms, clock_ms)
                )
                self._notify(self._alerts)
                if newest is not None:
                    self._waits_since_ms = None if self._newest is None else self._newest[1]
                    self.rounds += 1
                    took_s = time.monotonic() - began_s
                    self._round_due_s = time.monotonic() + min(PAUSE_S_MAX, took_s / SHARE_MAX - took_s)
            except DatabaseAway as error:
                _log.debug("the findings of this round are not stored: %s", error)
                self._notify_of_loss(at_ms)
                await asyncio.sleep(RETRY_S)
            except SQLAlchemyError as error:
                _log.error("The findings of a round were refused by the database: %s", first_line(error))
                await asyncio.sleep(RETRY_S)

    async def _work(self) -> None:
        """Returns when something new has arrived, or when a round that waits for its turn is due."""
        pause_s = None if self._newest is None else max(0.0, self._round_due_s - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._arrived.wait()
        self._arrived.clear()

    def _notify_of_loss(self, at_ms: int) -> None:
        """A database that was lost cannot store its loss: it is sent beside what was open last."""
        if self._database.lost is None:
            return
        key = ("database-lost", "database")
        before = self._alerts.open.get(key)
        opened_ms = at_ms if before is None else before.opened_ms
        sentence, action = self._database.lost, "Put the file back; else it is restored by itself."
        loss = Notice(NoticeEvent.OPENED, opened_ms, *key, CRITICAL, sentence, action, {}, None, None, None, opened_ms)
        self._alerts = replace(self._alerts, at_ms=at_ms, open={**self._alerts.open, key: loss})
        self._notify(self._alerts)

    def _judge(
        self, seen: ObservedRound | None, liveness: ObservedLiveness | None, at_ms: int, clock_ms: int
    ) -> OpenAlerts:
        """On the database thread. Repeating it after a failure in the middle gives the same rows."""
        with reading(self._database.engine) as connection:
            open_findings = queries.all_open(connection, self._cluster_id)
            if seen is not None:
                context = self._context(connection, seen, clock_ms)
                self._set_verdicts(FindingLane.ROUND, candidates(context, RULES), context, open_findings)
            if liveness is not None:
                context = self._liveness_context(connection, liveness)
                self._missing_rights = context.missing_rights
                self._judge_liveness(candidates(context, LIVENESS_RULES), context, open_findings)
            muted = queries.muted_until(connection, self._cluster_id, at_ms)
            windows = maintenance.windows_at(connection, self._cluster_id, at_ms)
        changes = compare(self._current(open_findings), open_findings, self._waiting, at_ms, clock_ms, self._outlasting)
        if changes.opened or changes.kept or changes.closed or at_ms - self._pruned_ms >= PRUNE_INTERVAL_MS:
            with writing(self._database.engine) as connection:
                self._write(connection, changes, muted, at_ms)
        self._waiting, self._outlasting = changes.waiting, changes.outlasting
        for candidate in changes.opened:
            if candidate.cause is None:
                _log.info("Finding %s opened: %s. %s", candidate.slug, candidate.sentence, candidate.why)
        for finding in changes.closed:
            if finding.cause is None:
                _log.info("Finding %s closed: %s", finding.slug, finding.sentence)
        alerts = open_alerts(open_findings, changes, muted, windows, at_ms)
        self.open_counts = open_counts(alerts)
        return alerts

    def _set_verdicts(
        self,
        lane: FindingLane,
        now: Mapping[FindingKey, Candidate],
        context: FindingContext,
        open_findings: Sequence[Finding],
    ) -> None:
        visible = {row.topic for row in context.partitions}
        kept = unseen(open_findings, lane, visible, self._missing_rights, context.at_ms)
        self._verdicts[lane] = _Verdicts(context.at_ms, kept | dict(now))

    def _judge_liveness(
        self, now: Mapping[FindingKey, Candidate], context: FindingContext, open_findings: Sequence[Finding]
    ) -> None:
        """While no broker answers, what was last seen of them stays as it was then."""
        last = self._verdicts.get(FindingLane.LIVENESS)
        if context.away is not None:
            kept = {} if last is None else {k: c for k, c in last.candidates.items() if k[0] not in OWN_SLUGS}
            now = {key: replace(c, seen_ms=c.seen_ms or context.away.since_ms) for key, c in kept.items()} | dict(now)
            self._verdicts[FindingLane.LIVENESS] = _Verdicts(context.at_ms, now)
        elif not context.topics and last is None:
            return  # the first settings are not there yet: nothing can be said of what was open before
        else:
            self._set_verdicts(FindingLane.LIVENESS, now, context, open_findings)

    def _current(self, open_findings: Sequence[Finding]) -> dict[FindingKey, Candidate]:
        """The newest candidates of each lane; of one that has nothing to say yet, what is open."""
        current = {
            (finding.slug, finding.object): retained(finding)
            for finding in open_findings
            if lane_of(finding.slug) not in self._verdicts
        }
        newest_ms = max((verdicts.at_ms for verdicts in self._verdicts.values()), default=0)
        for verdicts in self._verdicts.values():
            for key, candidate in verdicts.candidates.items():
                stale = verdicts.at_ms < newest_ms and candidate.seen_ms is None
                current[key] = replace(candidate, seen_ms=verdicts.at_ms) if stale else candidate
        return current

    def _write(self, connection: Connection, changes: Changes, muted: Mapping[FindingKey, int], at_ms: int) -> None:
        finding_rows.open_findings(connection, [self._row(c, at_ms, muted.get(c.key)) for c in changes.opened])
        finding_rows.refresh_findings(
            connection,
            [
                {
                    "finding_id": finding.id,
                    "severity": candidate.severity,
                    "sentence": candidate.sentence,
                    "action": candidate.action,
                    "evidence": candidate.evidence,
                    "seen_ms": at_ms if candidate.seen_ms is None else candidate.seen_ms,
                    **_cause(candidate),
                }
                for finding, candidate in changes.kept
            ],
        )
        finding_rows.close_findings(connection, [finding.id for finding in changes.closed], at_ms)
        if at_ms - self._pruned_ms >= PRUNE_INTERVAL_MS:
            finding_rows.prune_findings(connection, self._cluster_id, at_ms - KEEP_CLOSED_MS)
            self._pruned_ms = at_ms
        if changes.worth_a_look:
            cluster_rows.data_changed(connection, self._cluster_id, "observer")

    def _row(self, candidate: Candidate, at_ms: int, muted_until_ms: int | None) -> dict[str, Any]:
        return {
            "cluster_id": self._cluster_id,
            "slug": candidate.slug,
            "object": candidate.object,
            "topic": candidate.topic,
            "partition": candidate.partition,
            "broker_id": candidate.broker_id,
            "severity": candidate.severity,
            "sentence": candidate.sentence,
            "action": candidate.action,
            "evidence": candidate.evidence,
            "opened_ms": at_ms,
            "seen_ms": at_ms,
            "muted_until_ms": muted_until_ms,
            **_cause(candidate),
        }

    def _liveness_context(self, connection: Connection, seen: ObservedLiveness) -> FindingContext:
        """The context of the rules of liveness: no offsets, no ledger."""
        liveness, at_ms = seen.liveness, seen.liveness.at_ms
        topics = {row["topic"]: TopicRow(**_own(row)) for row in seen.topics}
        return FindingContext(
            at_ms=at_ms,
            brokers=brokers_now([BrokerRow(**_own(row)) for row in seen.brokers], liveness),
            topics=topics,
            partitions=partitions_now(liveness, topics),
            eligible=liveness.eligible,
            log_ends=liveness.log_ends,
            offline_logs=seen.offline_logs,
            away=liveness.away,
            missing_rights=liveness.missing_rights,
            vanished_topics=liveness.vanished_topics,
            processes=health.processes(connection, self._cluster_id, at_ms),
            kafka_rules=self._attached,
            rule_settings=self._rule_settings(),
        )

    def _context(self, connection: Connection, seen: ObservedRound, at_monotonic_ms: int) -> FindingContext:
        at_ms, cluster_id = seen.round.at_ms, self._cluster_id
        brokers = [BrokerRow(**_own(row)) for row in seen.brokers]
        # Rates and intervals are differences: by a clock that nobody sets.
        self._disks = remember(self._disks, brokers, at_monotonic_ms)
        open_segments = partitions.open_segments(connection, cluster_id)
        if self._lineage_ms is None or at_monotonic_ms - self._lineage_ms >= LINEAGE_INTERVAL_MS:
            self._finished = finished_segments(connection, cluster_id)
            self._lineage_ms = at_monotonic_ms
        copying = {(s.topic, s.partition) for s in open_segments if s.state is SegmentState.COPY_SEGMENT_STARTED}
        copies_since_ms = at_ms - COPY_EVENTS_MS
        copy_events = queries.copy_events(connection, cluster_id, copies_since_ms)
        attempts = failed_attempts(connection, cluster_id, copies_since_ms)
        moving = any(row.adding_replicas or row.removing_replicas for row in seen.round.partitions)
        failing = attempts or any(event.outcome == "failed" for event in copy_events)
        return FindingContext(
            at_ms=at_ms,
            brokers=brokers,
            topics={row["topic"]: TopicRow(**_own(row)) for row in seen.topics},
            partitions=seen.round.partitions,
            replicas=seen.round.replicas,
            ledger_ms=_ledger_ms(connection, cluster_id, at_ms, open_segments),
            open_segments=open_segments,
            p99_ms=overview.copy_p99_ms(connection, cluster_id, copying),
            copy_events=copy_events,
            failed_attempts=attempts,
            finished_copies=finished_copies(connection, cluster_id, copies_since_ms) if failing else (),
            recoveries=queries.unclean_recoveries(connection, cluster_id, at_ms - RECOVERIES_MS),
            finished=self._finished,
            throttles=throttles(seen.settings, seen.topics),
            moved_ms={key: memory.moved_ms for key, memory in seen.round.memories.items()},
            flags=seen.settings.flags(FLAG),
            disk_rates=rates(self._disks),
            group_offsets=seen.group_offsets,
            reader_queues=seen.reader_queues,
            restored=tuple(self._database.restored),
            feature_levels=seen.feature_levels,
            passed_over=dict(seen.passed_over) | _quarantined(connection, cluster_id, at_ms),
            quorum_replicas=seen.quorum_replicas,
            quorum_ms=seen.quorum_ms,
            eligible=seen.eligible,
            offline_logs=seen.offline_logs,
            still=seen.still,
            transactions=seen.transactions,
            copy_lags=seen.copy_lags,
            read_growth=seen.read_growth,
            failed_reads=queries.failed_reads(connection, cluster_id, at_ms - WINDOW_MS) if seen.read_growth else (),
            own_moves=operations.moved_partitions(connection, cluster_id, at_ms - MOVE_ENDED_MS) if moving else (),
            remote_wait_ms=_remote_wait_ms(seen.settings),
            kafka_rules=self._attached or _kafka_overlap(seen.settings),
            monotonic_ms=at_monotonic_ms,
            rule_settings=self._rule_settings(),
        )


def brokers_now(rows: Sequence[BrokerRow], liveness: Liveness) -> list[BrokerRow]:
    """The brokers of the newest round with what they answered since; one that was not asked yet stays as it was."""
    result = []
    for row in rows:
        broker = liveness.brokers.get(row.broker_id)
        if broker is None:
            result.append(row)
            continue
        seen_ms = max(row.seen_ms, broker.seen_ms or 0)
        result.append(
            replace(row, reachable=broker.error is None, error=broker.error, seen_ms=seen_ms, sampled_ms=liveness.at_ms)
        )
    return result


def partitions_now(liveness: Liveness, topics: Mapping[str, TopicRow]) -> list[PartitionSample]:
    """The partitions of the newest Metadata, without offsets."""
    tiered = {name for name, topic in topics.items() if topic.tiered}
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
        for p in liveness.partitions
    ]


def _quarantined(connection: Connection, cluster_id: str, at_ms: int) -> dict[tuple[str, str], int]:
    """The records that the pipeline has kept aside within the last day."""
    number = queries.quarantined_records(connection, cluster_id, at_ms - QUARANTINED_MS)
    return {("__remote_log_metadata", "the pipeline"): number} if number else {}


def _cause(candidate: Candidate) -> dict[str, str | None]:
    slug, object_ = candidate.cause or (None, None)
    return {"cause_slug": slug, "cause_object": object_}


def _own(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "cluster_id"}


def _ledger_ms(connection: Connection, cluster_id: str, at_ms: int, open_segments: Sequence[SegmentRow]) -> int | None:
    """Up to when the ledger is known: now while the pipeline works, else when it last gave a sign of life."""
    pipeline = health.processes(connection, cluster_id, at_ms).get("pipeline")
    if pipeline is not None:
        return at_ms if pipeline.alive else min(at_ms, pipeline.updated_ms)
    return max((segment.last_event_ms for segment in open_segments), default=None)


def throttles(settings: SettingsSample, topics: Sequence[Mapping[str, Any]]) -> list[ThrottleSetting]:
    """Every replication throttle that is set."""
    result = []
    for topic in topics:
        for name in THROTTLED_REPLICAS:
            value = (topic["config"] or {}).get(name)
            if value:
                result.append(ThrottleSetting(name, value, topic=topic["topic"]))
    for broker_id, entries in sorted(settings.brokers.items()):
        for name in THROTTLE_RATES:
            entry = entries.get(name)
            if entry is not None and _is_set(entry) and entry.source.name == "DYNAMIC_BROKER_CONFIG":
                result.append(ThrottleSetting(name, entry.value or HIDDEN, broker_id=broker_id))
    for name in THROTTLE_RATES:
        entry = (settings.cluster_default or {}).get(name)
        if entry is not None and _is_set(entry):
            result.append(ThrottleSetting(name, entry.value or HIDDEN, broker_id=-1))
    return result


def _remote_wait_ms(settings: SettingsSample) -> dict[int, int]:
    """How long each broker waits for the store with a fetch, of those that tell it."""
    entries = {broker_id: of_broker.get(WAIT) for broker_id, of_broker in settings.brokers.items()}
    values = {broker_id: entry.value for broker_id, entry in entries.items() if entry is not None and entry.value}
    return {broker_id: int(value) for broker_id, value in values.items() if value.isdigit()}


def _is_set(entry: ConfigEntry) -> bool:
    """Kafka treats the rates as secrets: it reports that they are set, not their value."""
    return bool(entry.value) or entry.sensitive


def _kafka_overlap(settings: SettingsSample) -> bool:
    """Whether the embedded engine is configured to keep one segment per epoch and first offset, as Kafka 4.3.1 does."""
    return any(
        entry.value == "kafka" for entries in settings.brokers.values() if (entry := entries.get(OVERLAP)) is not None
    )
