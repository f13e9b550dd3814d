"""Reads of the observer: the ledger's sums, its last rows, how far it has read the events."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, and_, case, func, not_, select

from backend.store import tables as t
from backend.store.queries import partitions


@dataclass(frozen=True, slots=True)
class RemotePartition:
    """The remote part of one partition as the ledger has it."""

    topic_id: str
    partition: int
    finished_segments: int
    finished_bytes: int
    highest_copied_offset: int | None


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Copies and deletions that have begun and not ended; the times are those at which the oldest began.

    Copies that failed are neither: they never end, or end as deletions of nothing.
    """

    copies: int
    oldest_copy_ms: int | None
    deletes: int
    oldest_delete_ms: int | None


def remote_partitions(connection: Connection, cluster_id: str) -> list[RemotePartition]:
    """One row per partition that ever had an event."""
    table = t.remote_partition
    rows = connection.execute(
        select(
            table.c.topic_id,
            table.c.partition,
            table.c.copy_finished_segments.label("finished_segments"),
            table.c.copy_finished_bytes.label("finished_bytes"),
            table.c.highest_copied_offset,
        ).where(table.c.cluster_id == cluster_id)
    )
    return [RemotePartition(**row._mapping) for row in rows]


def open_work(connection: Connection, cluster_id: str) -> OpenWork:
    """Counts and oldest begin of open copies (state 0) and deletions (state 2); reads only open segments."""
    rows = partitions.open_work(cluster_id)
    is_copy = and_(rows.c.state == 0, rows.c.newest, not_(partitions.superseded(rows)))
    is_deletion = and_(rows.c.state == 2, rows.c.copy_finished_ms.is_not(None))
    begun = select(
        case((is_copy, rows.c.copy_started_ms)).label("copy_ms"),
        case((is_deletion, rows.c.delete_started_ms)).label("delete_ms"),
    ).subquery()
    copy_ms, delete_ms = begun.c.copy_ms, begun.c.delete_ms
    row = connection.execute(
        select(func.count(copy_ms), func.min(copy_ms), func.count(delete_ms), func.min(delete_ms))
    ).one()
    return OpenWork(*row)


def next_event_offsets(connection: Connection, cluster_id: str) -> dict[int, int]:
    """Per partition of `__ebbline_events` the offset after the newest stored event."""
    table = t.engine_event
    rows = connection.execute(
        select(table.c.source_partition, func.max(table.c.source_offset) + 1)
        .where(table.c.cluster_id == cluster_id)
        .group_by(table.c.source_partition)
    )
    return {int(partition): int(offset) for partition, offset in rows}


def produced_bytes(connection: Connection, cluster_id: str) -> int:
    """How far the samples have counted the bytes that were produced."""
    table = t.cluster_sample
    newest = (
        select(table.c.produced_bytes)
        .where(table.c.cluster_id == cluster_id, table.c.produced_bytes.is_not(None))
        .order_by(table.c.sampled_ms.desc())
        .limit(1)
    )
    return int(connection.scalar(newest) or 0)


@dataclass(frozen=True, slots=True)
class StoredPhaseEvent:
    """The newest phase event of one replica."""

    topic_id: str
    partition: int
    broker_id: int
    at_ms: int
    body: dict[str, object]


def newest_phases(connection: Connection, cluster_id: str, since_ms: int) -> list[StoredPhaseEvent]:
    """The newest event of type ``phase`` of each replica since then."""
    table = t.engine_event
    newest = (
        select(table.c.topic_id, table.c.partition, table.c.broker_id, func.max(table.c.at_ms).label("at_ms"))
        .where(table.c.cluster_id == cluster_id, table.c.type == "phase", table.c.at_ms >= since_ms)
        .group_by(table.c.topic_id, table.c.partition, table.c.broker_id)
        .subquery()
    )
    columns = [table.c[name] for name in StoredPhaseEvent.__slots__]
    same = and_(*(table.c[name] == newest.c[name] for name in ("topic_id", "partition", "broker_id", "at_ms")))
    rows = connection.execute(
        select(*columns)
        .join(newest, same)
        .where(table.c.cluster_id == cluster_id, table.c.type == "phase")
        .order_by(table.c.source_partition, table.c.source_offset)
    )
    return [StoredPhaseEvent(**row._mapping) for row in rows]


def replica_keys(connection: Connection, cluster_id: str) -> set[tuple[str, int, int]]:
    """(topic, partition, broker id) of all replicas that have a row."""
    table = t.replica_current
    rows = connection.execute(
        select(table.c.topic, table.c.partition, table.c.broker_id).where(table.c.cluster_id == cluster_id)
    )
    return {(row.topic, row.partition, row.broker_id) for row in rows}
