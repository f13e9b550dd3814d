"""Remote segments at a moment: reads of `segment_interval`, each by its index (see `backend.tiering.intervals`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Subquery, func, select, union_all

from backend.store import tables as t
from backend.tiering.intervals import OPEN_NODE, ancestors, moment

SEGMENTS_MAX: Final = 20_000


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
    parts = [select(*columns).where(where) for where in _existed_at(cluster_id, topic_id, partition, at_ms)]
    intervals = union_all(*parts).subquery()
    rows = connection.execute(select(intervals).order_by(intervals.c.start_offset, intervals.c.segment_id).limit(limit))
    return [RemoteThen(*row) for row in rows]


def remote_totals_at(
    connection: Connection, cluster_id: str, topic_id: str, partition: int, at_ms: int
) -> RemoteTotalsThen:
    """Number, bytes and offsets of the segments that `remote_at` lists, all of them."""
    table = t.segment_interval
    parts = [select(*table.c[_COUNTED]).where(where) for where in _existed_at(cluster_id, topic_id, partition, at_ms)]
    return _totals(connection.execute(select(*_counted(union_all(*parts).subquery()))).one())


def partitions_at(connection: Connection, cluster_id: str, at_ms: int, topic: str | None = None) -> list[PartitionThen]:
    """Every partition that had a remote part at ``at_ms``, by topic and number, also of topics that are gone.

    Of the cluster, or of one topic, in one statement: 43 probes of the index a partition, and a row a segment.
    """
    remote, table = t.remote_partition, t.segment_interval
    names = ("topic", "partition", "topic_id")
    held = _existed_at(remote.c.cluster_id, remote.c.topic_id, remote.c.partition, at_ms)
    # Outer joins: SQLite would begin with the intervals of the whole cluster, those of the past included.
    parts = [select(*remote.c[names], *table.c[_COUNTED]).select_from(remote.outerjoin(table, where)) for where in held]
    of = [remote.c.cluster_id == cluster_id] + ([] if topic is None else [remote.c.topic == topic])
    intervals = union_all(*(part.where(*of) for part in parts)).subquery()
    by = intervals.c[names]
    query = (
        select(*by, *_counted(intervals)).group_by(*by).having(func.count(intervals.c.start_offset) > 0).order_by(*by)
    )
    return [PartitionThen(row[0], row[2], row[1], _totals(row[3:])) for row in connection.execute(query)]


_COUNTED: Final = ("segment_size_bytes", "start_offset", "end_offset")


def _counted(held: Subquery) -> Iterator[ColumnElement[Any]]:
    """The columns of `RemoteTotalsThen`, of intervals with the columns `_COUNTED`."""
    yield func.count(held.c.start_offset)
    yield func.coalesce(func.sum(held.c.segment_size_bytes), 0)
    yield func.min(held.c.start_offset)
    yield func.max(held.c.end_offset)


def _totals(row: Sequence[Any]) -> RemoteTotalsThen:
    return RemoteTotalsThen(int(row[0]), int(row[1]), row[2], row[3])  # PostgreSQL's sum is a Decimal


def _existed_at(cluster_id: Any, topic_id: Any, partition: Any, at_ms: int) -> Iterator[ColumnElement[bool]]:
    """Three conditions, of which every interval with this moment meets exactly one.

    Of one partition, or, given the columns of a table of partitions, of each of them.
    """
    table: Any = t.segment_interval.c
    at_ms = moment(at_ms)
    before, after = ancestors(at_ms)
    of = (table.cluster_id == cluster_id) & (table.topic_id == topic_id) & (table.partition == partition)
    yield of & (table.node == OPEN_NODE) & (table.from_ms <= at_ms)
    yield of & table.node.in_(before) & (table.to_ms > at_ms)
    if after:
        yield of & table.node.in_(after) & (table.from_ms <= at_ms)
