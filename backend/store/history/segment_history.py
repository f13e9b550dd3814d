"""The limit of the history of remote segments: events, and segments that are deleted.

The default is for ever (docs/database.md); the whole life of a segment is four events. With a limit, what is older
goes, the oldest first, in short transactions; a segment that is still remote stays whatever its age, and its events go.

On PostgreSQL whole months go (`backend.store.history.event_months`), each with one transaction for its deleted segments
and one that drops the partition; so up to a month more stays.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Delete, Engine, Table, bindparam, delete, func, select

from backend.store import tables as t
from backend.store.connection.database import reading, writing
from backend.store.history import event_months
from backend.tiering.segment_state import SegmentState

EVENTS_AT_ONCE: Final = 2_000  # 100 ms of the write lock
UPDATE: Final = 1  # the record's apiKey


def prune_history(engine: Engine, cluster_id: str, older_than_ms: int, transactions_max: int = 100) -> int:
    """Remove events that say an earlier time, and the segments whose deletion ended before it.

    Goes along each metadata partition from its oldest event and stops at the first that is young enough. At most
    ``transactions_max`` transactions; returns how many events went, so that a caller can go on later.
    """
    if engine.dialect.name == "postgresql":
        return _prune_months(engine, cluster_id, older_than_ms, transactions_max)
    removed = 0
    for source in _sources(engine, cluster_id):
        while transactions_max > 0:
            transactions_max -= 1
            with writing(engine) as connection:
                went = _prune_some(connection, cluster_id, source, older_than_ms)
            removed += went
            if went < EVENTS_AT_ONCE:
                break
    return removed


def _prune_months(engine: Engine, cluster_id: str, older_than_ms: int, transactions_max: int) -> int:
    """As `prune_history`, by whole months; the parts before and after them keep what says impossible times."""
    with reading(engine) as connection:
        months = sorted(event_months.existing(connection))
    removed = 0
    for month in months:
        if event_months.begin_ms(month + 1) > older_than_ms or removed >= transactions_max * EVENTS_AT_ONCE:
            break
        here = (
            t.segment_event.c.cluster_id == cluster_id,
            t.segment_event.c.event_timestamp_ms >= event_months.begin_ms(month),
            t.segment_event.c.event_timestamp_ms < event_months.begin_ms(month + 1),
        )
        with writing(engine) as connection:
            count = int(connection.scalar(select(func.count()).select_from(t.segment_event).where(*here)) or 0)
            if count:
                for table in (t.segment_interval, t.segment):
                    connection.execute(_of_deleted(table, here))
        with writing(engine) as connection:
            event_months.drop(connection, month, cluster_id)
        removed += count
    return removed


def _of_deleted(table: Table, here: tuple[ColumnElement[bool], ...]) -> Delete:
    """The rows of ``table`` about segments whose deletion ended by one of these events."""
    event, segment, gone = t.segment_event.c, t.segment.c, int(SegmentState.DELETE_SEGMENT_FINISHED)
    same = [segment[name] == event[name] for name in ("cluster_id", "topic_id", "partition", "segment_id")]
    if table is not t.segment:  # an event of a deletion does not say where the segment begins, the ledger does
        same += [table.c[column.name] == segment[column.name] for column in table.primary_key]
    return delete(table).where(*here, event.legal, event.kind == UPDATE, event.state == gone, *same)


def _sources(engine: Engine, cluster_id: str) -> list[int]:
    table = t.source_offsets
    query = select(table.c.partition).where(table.c.cluster_id == cluster_id).distinct().order_by(table.c.partition)
    with reading(engine) as connection:
        return [int(partition) for partition in connection.scalars(query)]


def _prune_some(connection: Connection, cluster_id: str, source: int, older_than_ms: int) -> int:
    event = t.segment_event
    of_source = (event.c.cluster_id == cluster_id, event.c.metadata_partition == source)
    columns = ("metadata_offset", "event_timestamp_ms", "kind", "state", "legal", "topic_id", "partition", "segment_id")
    oldest = connection.execute(
        select(*(event.c[name] for name in columns))
        .where(*of_source)
        .order_by(event.c.metadata_offset)
        .limit(EVENTS_AT_ONCE)
    ).all()
    old: list[Any] = []
    for row in oldest:
        if row.event_timestamp_ms >= older_than_ms:
            break
        old.append(row)
    if not old:
        return 0
    gone = int(SegmentState.DELETE_SEGMENT_FINISHED)
    deleted = [
        {"t": row.topic_id, "p": row.partition, "s": row.segment_id}
        for row in old
        if row.legal and row.kind == UPDATE and row.state == gone
    ]
    if deleted:
        begins = select(t.segment.c.start_offset).where(*_segment_rows(t.segment, cluster_id)).scalar_subquery()
        interval = (*_segment_rows(t.segment_interval, cluster_id), t.segment_interval.c.start_offset == begins)
        connection.execute(delete(t.segment_interval).where(*interval), deleted)
        connection.execute(delete(t.segment).where(*_segment_rows(t.segment, cluster_id)), deleted)
    connection.execute(delete(event).where(*of_source, event.c.metadata_offset <= old[-1].metadata_offset))
    return len(old)


def _segment_rows(table: Table, cluster_id: str) -> tuple[ColumnElement[bool], ...]:
    """The rows of ``table`` about a segment that is named by the parameters t, p and s."""
    return (
        table.c.cluster_id == cluster_id,
        table.c.topic_id == bindparam("t"),
        table.c.partition == bindparam("p"),
        table.c.segment_id == bindparam("s"),
    )
