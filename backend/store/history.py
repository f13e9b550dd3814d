"""How long the history of remote segments stays: events, and segments that are deleted.

The default is for ever (docs/database.md); the whole life of a segment is four events. With a limit, what is older
goes, the oldest first, in short transactions; a segment that is still remote stays whatever its age, and its events go.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Engine, bindparam, delete, select

from backend.store import tables as t
from backend.store.engine import reading, writing
from backend.tiering.segment_state import SegmentState

EVENTS_AT_ONCE: Final = 2_000  # 100 ms of the write lock
UPDATE: Final = 1  # the record's apiKey


def prune_history(engine: Engine, cluster_id: str, older_than_ms: int, transactions_max: int = 100) -> int:
    """Remove events that say an earlier time, and the segments whose deletion ended before it.

    Goes along each metadata partition from its oldest event and stops at the first that is young enough. At most
    ``transactions_max`` transactions; returns how many events went, so that a caller can go on later.
    """
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
        for table in (t.segment_interval, t.segment):
            connection.execute(
                delete(table).where(
                    table.c.cluster_id == cluster_id,
                    table.c.topic_id == bindparam("t"),
                    table.c.partition == bindparam("p"),
                    table.c.segment_id == bindparam("s"),
                ),
                deleted,
            )
    connection.execute(delete(event).where(*of_source, event.c.metadata_offset <= old[-1].metadata_offset))
    return len(old)
