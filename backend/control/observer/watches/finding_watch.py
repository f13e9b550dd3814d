"""Judges each round by the rules and keeps the table of findings: reads what the rules need, writes what changed.

It works beside the observer: a round that arrives while the database is slow takes the place of the one that waits, so
neither rounds nor memory pile up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from backend.control.alerts.notices import Notice, NoticeEvent, notices, open_counts
from backend.control.control_database import Database, DatabaseAway
from backend.control.findings.disk_rates import DiskHistory, rates, remember
from backend.control.findings.evaluate import Changes, evaluate
from backend.control.findings.finding_context import (
    CRITICAL,
    Candidate,
    FindingContext,
    FindingKey,
    GroupOffset,
    ThrottleSetting,
)
from backend.control.gateway.requests.config_requests import ConfigEntry
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.feature_requests import FeatureLevel
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState
from backend.control.observer.sampling.settings_sample import SettingsSample
from backend.control.observer.sampling_round import FLAG, SamplingRound
from backend.store.connection.database import reading, writing
from backend.store.connection.database_faults import first_line
from backend.store.queries import findings as queries
from backend.store.queries import health, overview, partitions
from backend.store.queries.config import TopicRow
from backend.store.queries.lineage import FinishedSegment, finished_segments
from backend.store.queries.overview import BrokerRow
from backend.store.queries.partitions import SegmentRow
from backend.store.writes import cluster_rows, finding_rows
from backend.tiering.ids import TopicPartition
from backend.tiering.segment_state import SegmentState

# 20,000 segments are read and compared in about 0.2 s: 1.5 % of a core.
LINEAGE_INTERVAL_MS: Final = 15_000
COPY_EVENTS_MS: Final = 600_000
# So long a crash of all brokers stays a finding after its elections.
RECOVERIES_MS: Final = 3_600_000
# Closed findings stay a year: 100 a day of 1 kB are 36 MB.
KEEP_CLOSED_MS: Final = 365 * 86_400_000
PRUNE_INTERVAL_MS: Final = 3_600_000
RETRY_S: Final = 2.0
# 10,000 partitions with 3 replicas take 0.2 s of a core: then they are judged every 4 s, not every 2.
SHARE_MAX: Final = 0.05
PAUSE_S_MAX: Final = 10.0
THROTTLED_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
HIDDEN: Final = "set (Kafka does not tell to what)"
THROTTLE_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
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
    passed_over: Mapping[str, int] = field(default_factory=dict)
    quorum_replicas: Sequence[QuorumReplicaState] = ()
    eligible: Mapping[TopicPartition, EligibleReplicas] = field(default_factory=dict)
    offline_logs: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)


class FindingWatch:
    """Keeps the findings of one cluster. Belongs to one event loop; `run` is the only writer of opening and closing."""

    def __init__(
        self,
        database: Database,
        cluster_id: str,
        *,
        attached: bool = False,
        notify: Callable[[Sequence[Notice]], None] = lambda _: None,
    ) -> None:
        """`notify` is given what opens, changes and closes, once it is stored."""
        self._notify = notify
        self._database = database
        self._cluster_id = cluster_id
        self._attached = attached
        self._newest: ObservedRound | None = None
        self._arrived = asyncio.Event()
        self._waiting: Mapping[FindingKey, int] = {}
        self._disks: DiskHistory = {}
        self._lineage_ms = 0
        self._finished: list[FinishedSegment] | None = None
        self._pruned_ms = 0
        self._notified_opening = 0
        self.rounds = 0
        self.open_counts: Mapping[tuple[str, str], int] = {}

    def submit(self, seen: ObservedRound) -> None:
        """The newest round; never waits."""
        self._newest = seen
        self._arrived.set()

    async def run(self) -> None:
        """Judges rounds until it is cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            seen, self._newest = self._newest, None
            if seen is None:
                continue
            began_s = time.monotonic()
            try:
                self._notify(await self._database.observe(partial(self._judge, seen)))
                self.rounds += 1
                took_s = time.monotonic() - began_s
                await asyncio.sleep(min(PAUSE_S_MAX, took_s / SHARE_MAX - took_s))
            except DatabaseAway as error:
                _log.debug("the findings of this round are not stored: %s", error)
                self._notify_of_loss(seen.round.at_ms)
                await asyncio.sleep(RETRY_S)
            except SQLAlchemyError as error:
                _log.error("The findings of a round were refused by the database: %s", first_line(error))
                await asyncio.sleep(RETRY_S)

    def _notify_of_loss(self, at_ms: int) -> None:
        """A database that was lost cannot store its loss: notices go out, once for each opening."""
        if self._database.lost is None or self._notified_opening == self._database.openings:
            return
        self._notified_opening = self._database.openings
        sentence, action = self._database.lost, "Put the file back; else it is restored by itself."
        self._notify(
            [
                Notice(
                    NoticeEvent.OPENED,
                    at_ms,
                    "database-lost",
                    "database",
                    CRITICAL,
                    sentence,
                    action,
                    {},
                    None,
                    None,
                    None,
                )
            ]
        )

    def _judge(self, seen: ObservedRound) -> list[Notice]:
        """On the database thread. Repeating it after a failure in the middle gives the same rows."""
        at_ms = seen.round.at_ms
        with reading(self._database.engine) as connection:
            open_findings = queries.all_open(connection, self._cluster_id)
            context = self._context(connection, seen)
            muted = queries.muted_until(connection, self._cluster_id, at_ms)
        changes = evaluate(context, open_findings, self._waiting)
        if changes.opened or changes.kept or changes.closed or at_ms - self._pruned_ms >= PRUNE_INTERVAL_MS:
            with writing(self._database.engine) as connection:
                self._write(connection, changes, muted, at_ms)
        self._waiting = changes.waiting
        for candidate in changes.opened:
            _log.info("Finding %s opened: %s. %s", candidate.slug, candidate.sentence, candidate.why)
        for finding in changes.closed:
            _log.info("Finding %s closed: %s", finding.slug, finding.sentence)
        self.open_counts = open_counts(open_findings, changes, muted, at_ms)
        return notices(changes, muted, at_ms)

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
                    "seen_ms": at_ms,
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
        }

    def _context(self, connection: Connection, seen: ObservedRound) -> FindingContext:
        at_ms, cluster_id = seen.round.at_ms, self._cluster_id
        brokers = [BrokerRow(**_own(row)) for row in seen.brokers]
        self._disks = remember(self._disks, brokers, at_ms)
        open_segments = partitions.open_segments(connection, cluster_id)
        if at_ms - self._lineage_ms >= LINEAGE_INTERVAL_MS:
            self._finished = finished_segments(connection, cluster_id)
            self._lineage_ms = at_ms
        copying = {(s.topic, s.partition) for s in open_segments if s.state is SegmentState.COPY_SEGMENT_STARTED}
        return FindingContext(
            at_ms=at_ms,
            brokers=brokers,
            topics={row["topic"]: TopicRow(**_own(row)) for row in seen.topics},
            partitions=seen.round.partitions,
            replicas=seen.round.replicas,
            ledger_ms=_ledger_ms(connection, cluster_id, at_ms, open_segments),
            open_segments=open_segments,
            p99_ms=overview.copy_p99_ms(connection, cluster_id, copying),
            copy_events=queries.copy_events(connection, cluster_id, at_ms - COPY_EVENTS_MS),
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
            passed_over=seen.passed_over,
            quorum_replicas=seen.quorum_replicas,
            eligible=seen.eligible,
            offline_logs=seen.offline_logs,
            kafka_rules=self._attached or _kafka_overlap(seen.settings),
        )


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


def _is_set(entry: ConfigEntry) -> bool:
    """Kafka treats the rates as secrets: it reports that they are set, not their value."""
    return bool(entry.value) or entry.sensitive


def _kafka_overlap(settings: SettingsSample) -> bool:
    """Whether the embedded engine is configured to keep one segment per epoch and first offset, as Kafka 4.3.1 does."""
    return any(
        entry.value == "kafka" for entries in settings.brokers.values() if (entry := entries.get(OVERLAP)) is not None
    )
