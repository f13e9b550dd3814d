"""Reads of the Overview page: is anything wrong, is copying keeping up, can this screen be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, case, func, select

from backend.store import tables as t
from backend.store.queries.observer import open_work

SEVERITIES: Final = ("critical", "warning", "notice")
POINTS_MAX: Final = 2000  # a chart never shows more points a series
HISTORY_POINTS: Final = 300
COPY_P99_PARTITIONS_MAX: Final = 50  # 50 look-ups of 100 rows: 10 ms


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker and how it looked at the last sample."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    epoch: int | None
    fenced: bool
    reachable: bool
    error: str | None
    log_dirs: list[dict[str, Any]] | None
    seen_ms: int
    sampled_ms: int


@dataclass(frozen=True, slots=True)
class FindingRow:
    """Something that needs attention and is still open."""

    slug: str
    object: str
    opened_ms: int
    severity: str
    sentence: str
    evidence: Any
    seen_ms: int
    closed_ms: int | None
    muted_until_ms: int | None = None
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    id: int | None = None
    acknowledged_by: str | None = None
    cause_slug: str | None = None
    cause_object: str | None = None
    action: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The cluster's totals at one moment; None: not known then."""

    sampled_ms: int
    partitions: int
    tiered_partitions: int
    offline_partitions: int
    replicas: int
    replicas_not_in_sync: int
    brokers: int
    brokers_reachable: int
    log_end_offset_sum: int | None
    tiered_offset_sum: int | None
    pending_offsets: int | None
    pending_bytes: int | None
    local_log_bytes: int | None
    remote_log_bytes: int | None
    open_copies: int | None
    oldest_open_copy_ms: int | None
    open_deletes: int | None
    oldest_open_delete_ms: int | None
    produced_bytes: int | None  # a counter: only its growth says something


@dataclass(frozen=True, slots=True)
class CopiedBytes:
    """Bytes of the segments whose copy finished in a step of time."""

    from_ms: int
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """Segments and bytes of the whole remote tier by state, from the pipeline's summaries."""

    copy_started_segments: int
    copy_started_bytes: int
    copy_finished_segments: int
    copy_finished_bytes: int
    delete_started_segments: int
    delete_started_bytes: int
    delete_finished_segments: int
    delete_finished_bytes: int
    illegal_events: int
    quarantined_records: int
    oldest_open_copy_ms: int | None  # when the oldest copy that is still open and has not failed began
    oldest_open_delete_ms: int | None  # of a segment that was copied


def brokers(connection: Connection, cluster_id: str) -> list[BrokerRow]:
    """All brokers by id."""
    rows = connection.execute(
        select(t.broker).where(t.broker.c.cluster_id == cluster_id).order_by(t.broker.c.broker_id)
    )
    return [BrokerRow(**_without_cluster(row._mapping)) for row in rows]


def open_findings(connection: Connection, cluster_id: str) -> list[FindingRow]:
    """Open findings that need attention, the worst and oldest first."""
    table = t.finding
    rank = case({name: rank for rank, name in enumerate(SEVERITIES)}, value=table.c.severity, else_=len(SEVERITIES))
    rows = connection.execute(
        select(*(table.c[name] for name in FindingRow.__slots__))
        .where(table.c.cluster_id == cluster_id, table.c.closed_ms.is_(None))
        .order_by(rank, table.c.opened_ms)
    )
    return [FindingRow(**row._mapping) for row in rows]


def muted_findings(connection: Connection, cluster_id: str, now_ms: int) -> list[FindingRow]:
    """The newest finding of each rule and object that is muted at that time, also one that is closed.

    Those whose silence ends first come first.
    """
    table = t.finding
    rows = connection.execute(
        select(*(table.c[name] for name in FindingRow.__slots__))
        .where(table.c.cluster_id == cluster_id, table.c.muted_until_ms > now_ms)
        .order_by(table.c.muted_until_ms, table.c.id)
    )
    newest = {(row.slug, row.object): FindingRow(**row._mapping) for row in rows}
    return list(newest.values())


def history(
    connection: Connection, cluster_id: str, since_ms: int, points: int = HISTORY_POINTS
) -> list[ClusterSample]:
    """Totals since ``since_ms``, oldest first: the newest of each of ``points`` (at most 2000) parts of their time."""
    points = max(2, min(points, POINTS_MAX))
    table = t.cluster_sample
    condition = and_(table.c.cluster_id == cluster_id, table.c.sampled_ms >= since_ms)
    at = table.c.sampled_ms
    oldest, newest = connection.execute(select(func.min(at), func.max(at)).where(condition)).one()
    if oldest is None:
        return []
    part_ms = max(1, -(-(newest - oldest) // (points - 1)))
    kept = select(func.max(at)).where(condition).group_by((at - oldest) // part_ms)
    columns = [column for column in table.c if column.name != "cluster_id"]
    rows = connection.execute(select(*columns).where(condition, at.in_(kept)).order_by(at))
    return [ClusterSample(**row._mapping) for row in rows]


def copied_bytes(connection: Connection, cluster_id: str, since_ms: int, step_ms: int) -> list[CopiedBytes]:
    """Bytes copied since ``since_ms`` by the ledger, summed over steps of time, oldest first.

    A step without a finished copy has no row. Deleted segments count too. The index is covering.
    """
    table = t.segment
    step = (table.c.copy_finished_ms // step_ms).label("step")
    rows = connection.execute(
        select(step, func.sum(table.c.segment_size_bytes))
        .where(table.c.cluster_id == cluster_id, table.c.copy_finished_ms >= since_ms)
        .group_by(step)
        .order_by(step)
    )
    return [CopiedBytes(int(number) * step_ms, int(size)) for number, size in rows]


def ledger_totals(connection: Connection, cluster_id: str) -> LedgerTotals:
    """The remote tier in numbers, one row a partition read, the ledger itself only for open copies."""
    table = t.remote_partition
    names = [name for name in LedgerTotals.__slots__ if name in table.columns]
    sums = connection.execute(
        select(*(func.coalesce(func.sum(table.c[name]), 0) for name in names)).where(table.c.cluster_id == cluster_id)
    ).one()
    work = open_work(connection, cluster_id)
    quarantined = connection.scalar(
        select(func.count()).select_from(t.quarantine).where(t.quarantine.c.cluster_id == cluster_id)
    )
    return LedgerTotals(
        **{name: int(value) for name, value in zip(names, sums, strict=True)},
        quarantined_records=int(quarantined or 0),
        oldest_open_copy_ms=work.oldest_copy_ms,
        oldest_open_delete_ms=work.oldest_delete_ms,
    )


def _without_cluster(mapping: Any) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != "cluster_id"}


def copy_p99_ms(
    connection: Connection, cluster_id: str, partitions: Iterable[tuple[str, int]], latest: int = 100
) -> dict[tuple[str, int], int]:
    """p99 of how long the newest finished copies of these partitions took; a partition without one is missing.

    One look-up by index per partition: ask for those with an open copy, not for all.
    """
    table, percentiles = t.segment, {}
    for topic, partition in sorted(set(partitions))[:COPY_P99_PARTITIONS_MAX]:
        rows = connection.execute(
            select(table.c.copy_finished_ms - table.c.copy_started_ms)
            .where(
                table.c.cluster_id == cluster_id,
                table.c.topic == topic,
                table.c.partition == partition,
                table.c.copy_finished_ms.is_not(None),
            )
            .order_by(table.c.start_offset.desc())
            .limit(latest)
        ).scalars()
        p99_ms = _p99_ms(rows)
        if p99_ms is not None:
            percentiles[topic, partition] = p99_ms
    return percentiles


def cluster_copy_p99_ms(connection: Connection, cluster_id: str, latest: int = 100) -> int | None:
    """p99 of how long the newest finished copies of all partitions took; None: none has finished. Read by index."""
    table = t.segment
    rows = connection.execute(
        select(table.c.copy_finished_ms - table.c.copy_started_ms)
        .where(table.c.cluster_id == cluster_id, table.c.copy_finished_ms.is_not(None))
        .order_by(table.c.copy_finished_ms.desc())
        .limit(latest)
    ).scalars()
    return _p99_ms(rows)


def _p99_ms(durations_ms: Iterable[int]) -> int | None:
    durations = sorted(max(0, int(value)) for value in durations_ms)
    return durations[-(-99 * len(durations) // 100) - 1] if durations else None


def replicas_behind(connection: Connection, cluster_id: str) -> dict[tuple[int, str | None], int]:
    """Replicas that are not in the ISR by (broker, phase), of all partitions; phase None: not known."""
    table = t.replica_current
    rows = connection.execute(
        select(table.c.broker_id, table.c.phase, func.count())
        .where(table.c.cluster_id == cluster_id, ~table.c.in_isr)
        .group_by(table.c.broker_id, table.c.phase)
    )
    return {(int(broker_id), phase): int(number) for broker_id, phase, number in rows}


def replica_counts(connection: Connection, cluster_id: str) -> dict[int, int]:
    """Replicas by broker."""
    table = t.replica_current
    rows = connection.execute(
        select(table.c.broker_id, func.count()).where(table.c.cluster_id == cluster_id).group_by(table.c.broker_id)
    )
    return {int(broker_id): int(count) for broker_id, count in rows}
