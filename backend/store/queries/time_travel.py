"""What was remote at a moment: reads of `segment_interval`, each by its index (see `backend.tiering.intervals`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, func, select, union_all

from backend.store import tables as t
from backend.tiering.intervals import OPEN_NODE, ancestors, moment

SEGMENTS_MAX: Final = 20_000
PARTITIONS_MAX: Final = 1_000  # look-ups by index of 43 probes each: a second


@dataclass(frozen=True, slots=True)
class RemoteThen:
    """A segment that was remote; ``end_offset`` inclusive, ``to_ms`` None while it still is."""

    segment_id: str
    from_ms: int
    to_ms: int | None
    start_offset: int
    end_offset: int
    segment_size_bytes: int


@dataclass(frozen=True, slots=True)
class RemoteTotalsThen:
    """A partition's remote part at a moment; the offsets are None when it had none."""

    segments: int
    bytes: int
    first_offset: int | None
    last_offset: int | None


@dataclass(frozen=True, slots=True)
class PartitionThen:
    """A partition of the topic with this id, and its remote part at a moment."""

    topic: str
    topic_id: str
    partition: int
    remote: RemoteTotalsThen


def remote_at(
    connection: Connection, cluster_id: str, topic_id: str, partition: int, at_ms: int, limit: int = SEGMENTS_MAX
) -> list[RemoteThen]:
    """The segments that readers could be served from at ``at_ms``, in offset order, the first ``limit``.

    A segment counts from the event that finished its copy until the one that began its deletion, by the times these
    events say.
    """
    table = t.segment_interval
    columns = [table.c[name] for name in RemoteThen.__slots__]
    parts = [select(*columns).where(where) for where in _held(cluster_id, topic_id, partition, at_ms)]
    found = union_all(*parts).subquery()
    rows = connection.execute(select(found).order_by(found.c.start_offset, found.c.segment_id).limit(limit))
    return [RemoteThen(*row) for row in rows]


def remote_totals_at(
    connection: Connection, cluster_id: str, topic_id: str, partition: int, at_ms: int
) -> RemoteTotalsThen:
    """Number, bytes and offsets of the segments that `remote_at` lists, all of them."""
    table = t.segment_interval
    columns = (table.c.segment_size_bytes, table.c.start_offset, table.c.end_offset)
    parts = [select(*columns).where(where) for where in _held(cluster_id, topic_id, partition, at_ms)]
    found = union_all(*parts).subquery()
    row = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(found.c.segment_size_bytes), 0),
            func.min(found.c.start_offset),
            func.max(found.c.end_offset),
        )
    ).one()
    return RemoteTotalsThen(int(row[0]), int(row[1]), row[2], row[3])


def partitions_at(connection: Connection, cluster_id: str, at_ms: int, topic: str | None = None) -> list[PartitionThen]:
    """Every partition that had a remote part at ``at_ms``, by topic and number, also of topics that are gone.

    Of the cluster, or of one topic; the first `PARTITIONS_MAX` that ever had one are looked at.
    """
    known = t.remote_partition
    query = select(known.c.topic, known.c.topic_id, known.c.partition).where(known.c.cluster_id == cluster_id)
    if topic is not None:
        query = query.where(known.c.topic == topic)
    rows = connection.execute(query.order_by(known.c.topic, known.c.partition, known.c.topic_id).limit(PARTITIONS_MAX))
    found = [
        PartitionThen(*row, remote_totals_at(connection, cluster_id, row.topic_id, row.partition, at_ms))
        for row in rows.all()
    ]
    return [one for one in found if one.remote.segments]


def _held(cluster_id: str, topic_id: str, partition: int, at_ms: int) -> Iterator[ColumnElement[bool]]:
    """Three conditions, of which every interval with this moment meets exactly one."""
    table: Any = t.segment_interval.c
    at_ms = moment(at_ms)
    before, after = ancestors(at_ms)
    of = (table.cluster_id == cluster_id) & (table.topic_id == topic_id) & (table.partition == partition)
    yield of & (table.node == OPEN_NODE) & (table.from_ms <= at_ms)
    yield of & table.node.in_(before) & (table.to_ms > at_ms)
    if after:
        yield of & table.node.in_(after) & (table.from_ms <= at_ms)
