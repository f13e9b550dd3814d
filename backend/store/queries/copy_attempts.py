"""Reads of attempts to copy: those that failed of late, and the copies that finished since.

Kafka 4.3 ends a failed copy with COPY_SEGMENT_STARTED, DELETE_SEGMENT_STARTED and DELETE_SEGMENT_FINISHED; after an
error that the store calls retriable it leaves COPY_SEGMENT_STARTED and begins the range once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, FromClause, Select, not_, or_, select

from backend.store import tables as t
from backend.store.queries.partitions import open_work, superseded
from backend.tiering.segment_state import SegmentState

# The newest are enough to say that nothing gets through. A partition is tried every 30 s (the task interval): 5,000 are
# all of ten minutes of 250 partitions. 200 bytes each, 15 ms.
ATTEMPTS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A copy that ended without finishing; `end_offset` inclusive, `at_ms` by the clock of its broker."""

    topic: str
    topic_id: str
    partition: int
    broker_id: int
    end_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class FinishedCopy:
    """A copy that finished."""

    topic: str
    topic_id: str
    partition: int
    broker_id: int
    at_ms: int


def failed_attempts(connection: Connection, cluster_id: str, since_ms: int) -> list[FailedAttempt]:
    """The newest attempts that failed since then, newest first. In a healthy cluster an index of nothing is read."""
    table, rows = t.segment, open_work(cluster_id)
    at_ms = table.c.delete_started_ms
    deleted = _columns(table, at_ms).where(table.c.cluster_id == cluster_id, at_ms >= since_ms, t.FAILED_COPY)
    given_up = _columns(rows, rows.c.last_event_ms).where(
        rows.c.last_event_ms >= since_ms,
        rows.c.state == int(SegmentState.COPY_SEGMENT_STARTED),
        or_(not_(rows.c.newest), superseded(rows)),
    )
    attempts = [
        FailedAttempt(*row)
        for query, order in ((deleted, at_ms), (given_up, rows.c.last_event_ms))
        for row in connection.execute(query.order_by(order.desc()).limit(ATTEMPTS_MAX))
    ]
    return sorted(attempts, key=lambda attempt: -attempt.at_ms)[:ATTEMPTS_MAX]


def finished_copies(connection: Connection, cluster_id: str, since_ms: int) -> list[FinishedCopy]:
    """The newest copies that finished since then, newest first."""
    table = t.segment
    rows = connection.execute(
        select(table.c.topic, table.c.topic_id, table.c.partition, table.c.copy_broker_id, table.c.copy_finished_ms)
        .where(table.c.cluster_id == cluster_id, table.c.copy_finished_ms >= since_ms)
        .order_by(table.c.copy_finished_ms.desc())
        .limit(ATTEMPTS_MAX)
    )
    return [FinishedCopy(*row) for row in rows]


def _columns(of: FromClause, at_ms: ColumnElement[int]) -> Select[Any]:
    """The fields of :class:`FailedAttempt`."""
    names = ("topic", "topic_id", "partition", "copy_broker_id", "end_offset")
    return select(*(of.c[name] for name in names), at_ms)
