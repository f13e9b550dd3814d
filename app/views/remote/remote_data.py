"""The data of the remote log's page: a query, and one consistent set of facts that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from app import state
from app.components.cluster import health_text
from app.components.partition import ledger_at_instant, lineage_verdicts
from app.components.partition.ledger_at_instant import Past
from app.components.partition.lineage_verdicts import JudgedSegment
from app.components.remote import copy_age, open_copies, segment_cycle
from app.components.remote.open_copies import OpenCopy
from app.components.shared.page import Page
from app.state import ClusterView
from backend.store.queries import config as config_queries
from backend.store.queries import overview as overview_queries
from backend.store.queries import partition_detail as detail_queries
from backend.store.queries import partitions as partition_queries
from backend.store.queries import remote_log as queries
from backend.store.queries.partitions import PartitionRow, SegmentRow
from backend.store.queries.remote_log import CycleTotals, Scope
from backend.tiering.segment_state import SegmentState

# Lineage takes two look-ups a partition; beyond this many partitions on one screen it is not judged.
LINEAGE_PARTITIONS_MAX: Final = 60
# The embedded brokers' choice between Kafka's index of epochs ("kafka") and one that forgets no copy.
OVERLAP_SETTING: Final = "remote.log.metadata.overlap"


@dataclass(frozen=True, slots=True)
class LedgerQuery:
    """A query to the ledger: a part of the log, words that rows must have, a segment, an instant of the past."""

    scope: Scope
    search: str = ""
    state: str | None = None
    at_ms: int | None = None

    @property
    def name(self) -> str:
        if self.scope.topic is None:
            return "the cluster"
        return self.scope.topic if self.scope.partition is None else f"{self.scope.topic}-{self.scope.partition}"


@dataclass(frozen=True, slots=True)
class RemoteData:
    """The facts that the parts of the page share, read once per data version."""

    view: ClusterView
    totals: CycleTotals
    verdicts: list[JudgedSegment]
    copies: list[OpenCopy]
    timed: list[SegmentRow]  # whose steps give the medians
    log_start: int | None
    past: Past | None
    judging_ms: int  # the time that ages are counted to

    @property
    def hung(self) -> frozenset[str]:
        return frozenset(copy.segment.segment_id for copy in self.copies if copy.kind != open_copies.NORMAL)


def read(page: Page, ledger_query: LedgerQuery) -> RemoteData:
    """One consistent set of facts. Raises DatabaseUnreachable."""
    view = page.view()
    if ledger_query.at_ms is not None:
        return _read_past(page, view, ledger_query, ledger_query.at_ms)
    cluster_id, version, scope = page.cluster_id, view.version, ledger_query.scope
    segments = state.read_cached(queries.newest_segments, cluster_id, scope, version=version)
    started = state.read_cached(partition_queries.open_segments, cluster_id, version=version)
    started = [row for row in started if _within(row, scope)]
    rows = state.read_cached(partition_queries.partitions, cluster_id, version=version)
    judging_ms = health_text.ledger_ms(view)
    deleted: list[SegmentRow] = []
    if scope.topic is None:
        deleted = state.read_cached(queries.recent_deletions, cluster_id, version=version)
    verdicts, log_start = _judge(page, view, segments, rows)
    return RemoteData(
        view=view,
        totals=state.read_cached(queries.cycle_totals, cluster_id, scope, version=version),
        verdicts=verdicts,
        copies=_copies(page, view, started, rows, judging_ms),
        timed=[*segments, *deleted],
        log_start=log_start if scope.partition is not None else None,
        past=None,
        judging_ms=judging_ms,
    )


def _within(row: SegmentRow, scope: Scope) -> bool:
    return scope.topic in (None, row.topic) and scope.partition in (None, row.partition)


def _read_past(page: Page, view: ClusterView, ledger_query: LedgerQuery, at_ms: int) -> RemoteData:
    topic, number = ledger_query.scope.topic or "", ledger_query.scope.partition or 0
    ledgers = state.read_cached(detail_queries.ledgers, page.cluster_id, topic, number, version=view.version)
    events: list[queries.StoredEvent] | None = []
    if ledgers:
        events = state.read_cached(
            queries.past_events, page.cluster_id, ledgers[0].topic_id, number, version=view.version
        )
    past = ledger_at_instant.past(events or [], at_ms)
    return RemoteData(
        view=view,
        totals=segment_cycle.totals_of(past.segments),
        # The leader's epochs of then are not stored, so nothing of the past is judged by them.
        verdicts=[replace(verdict, why="") for verdict in lineage_verdicts.judge(past.segments, None)],
        copies=_copies(page, view, past.segments, None, at_ms),
        timed=past.segments,
        log_start=None,
        past=past if events is not None else None,
        judging_ms=at_ms,
    )


def _copies(
    page: Page, view: ClusterView, segments: Sequence[SegmentRow], rows: Sequence[PartitionRow] | None, now_ms: int
) -> list[OpenCopy]:
    """``rows`` None: who led then is not known, so no copy is called dangling."""
    started = [row for row in segments if row.state is SegmentState.COPY_SEGMENT_STARTED]
    keys = tuple(sorted({(row.topic, row.partition) for row in started}))
    p99 = state.read_cached(overview_queries.copy_p99_ms, page.cluster_id, keys, version=view.version)
    if rows is not None:
        return open_copies.judge(started, rows, p99, now_ms)
    copies = []
    for row in started:
        took = p99.get((row.topic, row.partition))
        kind = open_copies.HUNG if copy_age.is_hung(row, took, now_ms) else open_copies.NORMAL
        copies.append(OpenCopy(row, max(0, now_ms - row.copy_started_ms), took, kind))
    return sorted(copies, key=lambda copy: -copy.age_ms)


def _judge(
    page: Page, view: ClusterView, segments: Sequence[SegmentRow], rows: Sequence[PartitionRow]
) -> tuple[list[JudgedSegment], int | None]:
    """Each segment against its leader's epochs, and the log start of the last partition."""
    topic_ids = {(row.topic, row.partition): row.topic_id for row in rows}
    kafka_rules = _kafka_rules(page, view)
    all_verdicts: list[JudgedSegment] = []
    log_start = None
    for number, (key, group) in enumerate(groupby(segments, key=lambda row: (row.topic, row.partition, row.topic_id))):
        topic, partition, topic_id = key
        chain = None
        if number < LINEAGE_PARTITIONS_MAX and topic_ids.get((topic, partition)) == topic_id:
            replicas = state.read_cached(
                partition_queries.replicas, page.cluster_id, topic, partition, version=view.version
            )
            chain = lineage_verdicts.leader_chain(replicas)
        log_start = None if chain is None else chain.log_start
        verdicts = lineage_verdicts.judge(group, chain)
        all_verdicts += lineage_verdicts.with_orphans(verdicts) if kafka_rules else verdicts
    return all_verdicts, log_start


def _kafka_rules(page: Page, view: ClusterView) -> bool:
    """Brokers that forget a segment when a later copy has its epoch and first offset, as Kafka 4.3.1 does."""
    if view.cluster.kind != "embedded":
        return True
    rows = state.read_cached(
        config_queries.config_values, page.cluster_id, "broker", names=(OVERLAP_SETTING,), version=view.version
    )
    return any(row.value == "kafka" for row in rows)
