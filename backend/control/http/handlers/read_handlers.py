"""Handlers that answer from the database: the API shows what the pages show, and never asks a broker."""

from __future__ import annotations

import time
from dataclasses import replace

from backend.control.alerts.prometheus_rules import MEDIA_TYPE, rules_file
from backend.control.control_database import Database
from backend.control.control_settings import ControlSettings
from backend.control.findings.remote_reads import remote_reads
from backend.control.http.api_models import (
    AuditAnswer,
    AuditQuery,
    BrokersAnswer,
    ClusterAnswer,
    ConfigAnswer,
    ConfigQuery,
    PartitionAnswer,
    PartitionPath,
    PartitionsAnswer,
    PartitionsQuery,
    ProcessAnswer,
    QuorumAnswer,
    QuorumSeen,
    ReadersAnswer,
)
from backend.control.http.call import Call, HandlerResult
from backend.control.http.problems import Problem
from backend.control.observer.cluster_observer import ClusterObserver
from backend.control.observer.watches.broker_numbers import NOT_ASKED, BrokerNumbers
from backend.control.observer.watches.quorum_watch import QuorumWatch
from backend.control.wall_clock import now_ms
from backend.store.blind_spots import DatabaseSilence, blind_spots
from backend.store.queries import audit, config, health, overview, partitions
from backend.store.queries.health import ProcessHealth
from backend.store.queries.overview import ClusterSample
from backend.tiering.durability import NO_LEADER, copies_of, durability
from backend.tiering.eligible_leaders import below_min_isr, eligible_leaders, next_leader
from backend.tiering.ids import TopicPartition


class ReadHandlers:
    """Reads of one cluster: from the database, and what the observer saw last."""

    def __init__(
        self, settings: ControlSettings, database: Database, observer: ClusterObserver, quorum: QuorumWatch
    ) -> None:
        self._settings = settings
        self._database = database
        self._observer = observer
        self._quorum = quorum

    async def cluster(self, call: Call) -> ClusterAnswer:
        """Identity of the cluster, whether it answers, age of the data."""
        settings, state, at_ms = self._settings, self._observer.state, now_ms()
        cluster_id = settings.cluster_id
        # Signs of life are as old as the last write that the database took: nobody could give one since.
        written_ms = at_ms - self._observer.recorder.unwritten_ms
        rows = await self._database.read(
            lambda c: (
                health.clusters(c),
                health.processes(c, cluster_id, written_ms),
                health.data_version(c, cluster_id),
                overview.history(c, cluster_id, at_ms - 60_000, 60),
            )
        )
        clusters, stored, data_version, history = rows
        processes = {name: self._own_age(row) for name, row in stored.items()}
        return ClusterAnswer(
            cluster_id=cluster_id,
            name=settings.cluster_name,
            kind=settings.cluster_kind,
            changes_allowed=settings.allow_changes,
            answers=state.cluster_answers,
            away_since_ms=state.away_since_ms,
            away_reason=state.away_reason,
            now_ms=at_ms,
            checked_ms=self._observer.checked_ms,
            blind_spots=blind_spots(
                processes,
                offsets_age_ms=None if state.last_round_ms is None else max(0, at_ms - state.last_round_ms),
                interval_ms=self._observer.interval_ms,
                now_ms=at_ms,
                database=self._database_silence(written_ms),
            ),
            data_version=data_version,
            cluster=next((row for row in clusters if row.cluster_id == cluster_id), None),
            totals=self._totals_now(history[-1]) if history else None,
            processes=[
                ProcessAnswer(
                    process=p.process,
                    state=p.state,
                    message=p.message,
                    updated_ms=p.updated_ms,
                    age_ms=p.age_ms,
                    stale=p.stale,
                    alive=p.alive,
                    detail=p.detail,
                )
                for p in processes.values()
            ],
        )

    def _totals_now(self, sample: ClusterSample) -> ClusterSample:
        """The newest sample, with the brokers that answer now."""
        reachable = self._observer.totals().get("brokers_reachable")
        return sample if reachable is None else replace(sample, brokers_reachable=reachable)

    def _own_age(self, row: ProcessHealth) -> ProcessHealth:
        """Heartbeats that were written before the database went away say nothing of the process that answers here; its
        observer is as old as the last samples that were stored.
        """
        if row.process == "backend":
            ended = row.state in ("stopped", "failed")
            return replace(row, age_ms=0, state="running" if ended else row.state)
        if row.process != "observer":
            return row
        stored_s, detail = self._observer.recorder.stored_s, (row.detail or {}) | self._observer.sight()
        age_ms = row.age_ms if stored_s is None else min(row.age_ms, round((time.monotonic() - stored_s) * 1000))
        return replace(row, age_ms=age_ms, detail=detail)

    def _database_silence(self, written_ms: int) -> DatabaseSilence | None:
        """None: the database takes writes, or was not asked for one yet."""
        recorder = self._observer.recorder
        if recorder.takes_samples:
            return None
        return DatabaseSilence(written_ms, recorder.away or "A write does not end; another program may hold it.")

    async def quorum(self, call: Call) -> QuorumAnswer:
        """The metadata quorum as the backend saw it last."""
        facts = self._quorum.facts
        return QuorumAnswer(now_ms=now_ms(), quorum=None if facts is None else QuorumSeen.model_validate(facts))

    async def brokers(self, call: Call) -> BrokersAnswer:
        """All registered brokers, as each answers at this moment."""
        cluster_id = self._settings.cluster_id
        rows = self._observer.brokers_now(await self._database.read(lambda c: overview.brokers(c, cluster_id)))
        numbers = self._observer.readers.numbers
        return BrokersAnswer(
            items=rows,
            numbers=[numbers.get(row.broker_id, BrokerNumbers(row.broker_id, error=NOT_ASKED)) for row in rows],
        )

    async def remote_readers(self, call: Call) -> ReadersAnswer:
        """Groups that read from the remote tier next, and the amount that is left for them there."""
        readers, round_ = self._observer.readers, self._observer.round
        partitions_ = () if round_ is None else round_.partitions
        return ReadersAnswer(
            items=remote_reads(readers.offsets, partitions_, readers.asked_ms or 0),
            asked_ms=readers.asked_ms,
            error=readers.error,
            groups_with_members=readers.groups.with_members,
            groups_without_members=readers.groups.without_members,
            left_out=readers.left_out,
        )

    async def alert_rules(self, call: Call) -> HandlerResult:
        """The rules file for Prometheus."""
        del call
        return HandlerResult(rules_file(self._settings.public_url).encode(), media_type=MEDIA_TYPE)

    async def list_partitions(self, call: Call) -> PartitionsAnswer:
        """Partitions by name, with the offsets of their leaders."""
        query: PartitionsQuery = call.query
        cluster_id = self._settings.cluster_id
        rows = await self._database.read(lambda c: partitions.partitions(c, cluster_id, tiered_only=query.tiered))
        if query.topic is not None:
            rows = [row for row in rows if row.topic == query.topic]
        return PartitionsAnswer(total=len(rows), items=rows[query.offset : query.offset + query.limit])

    async def partition(self, call: Call) -> PartitionAnswer:
        """One partition with its replicas and the segments of the ledger."""
        path: PartitionPath = call.path
        settings = self._settings
        cluster_id = settings.cluster_id
        row, replicas, segments, topic = await self._database.read(
            lambda c: (
                partitions.partition(c, cluster_id, path.topic, path.partition),
                partitions.replicas(c, cluster_id, path.topic, path.partition),
                partitions.segments(c, cluster_id, path.topic, path.partition),
                config.topic(c, cluster_id, path.topic),
            )
        )
        if row is None:
            raise Problem(
                404, "not-found", f"There is no partition {path.topic}-{path.partition}, or it was not seen yet."
            )
        own = [segment for segment in segments if segment.topic_id == row.topic_id]
        feature_levels = {name: feature.level for name, feature in self._quorum.feature_levels.items()}
        copies = copies_of(
            None if topic is None else topic.config,
            feature_levels or None,
            replicas=len(row.replicas),
            embedded=settings.cluster_kind == "embedded",
            tiered=row.tiered,
            isr=row.isr,
            leader=row.leader,
        )
        eligible = eligible_leaders(
            self._observer.eligible_report(),
            TopicPartition(row.topic, row.partition),
            kept=row.leader == NO_LEADER
            or below_min_isr(None if topic is None else topic.config, row.replicas, row.isr),
            elr_level=copies.elr_level,
        )
        return PartitionAnswer(
            partition=row,
            replicas=replicas,
            segments=own,
            durability=durability(copies),
            eligible_leaders=eligible,
            next_leader=next_leader(row.isr, row.leader, eligible),
        )

    async def configs(self, call: Call) -> ConfigAnswer:
        """Settings in effect with where they come from."""
        query: ConfigQuery = call.query
        cluster_id = self._settings.cluster_id
        kind, resource = query.resource_type, query.resource
        names = None if query.name is None else [query.name]
        total, items = await self._database.read(
            lambda c: (
                config.config_count(c, cluster_id, kind, names=names, resource=resource),
                config.config_values(
                    c, cluster_id, kind, names=names, resource=resource, limit=query.limit, offset=query.offset
                ),
            )
        )
        return ConfigAnswer(total=total, items=items)

    async def audit_entries(self, call: Call) -> AuditAnswer:
        """Entries of the audit, refusals included."""
        query: AuditQuery = call.query
        cluster_id = self._settings.cluster_id
        actions = None if query.action is None else [query.action]
        # One more row shows whether there is a next page.
        rows = await self._database.read(
            lambda c: audit.entries(c, cluster_id, before_id=query.before_id, actions=actions, limit=query.limit + 1)
        )
        items = rows[: query.limit]
        return AuditAnswer(items=items, next_before_id=items[-1].id if len(rows) > query.limit else None)
