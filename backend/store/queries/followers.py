"""Reads of the Followers page: which replicas follow, in which phase, and the phases they went through.

`replica_current` has one row a replica (30,000 at most on a cluster these pages are built for) and is read by cluster;
histories are read by key, one replica at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, String, and_, case, cast, func, or_, select

from backend.store import tables as t
from backend.store.queries.partitions import ReplicaRow

FOLLOWERS_MAX: Final = 300
PHASE_EVENTS_MAX: Final = 200
# A moving replica has 1,800 samples in the hour that is kept whole, and 276 in the 23 h before.
SAMPLES_MAX: Final = 2_100
IN_SYNC: Final = "IN_SYNC"


@dataclass(frozen=True, slots=True)
class Follower:
    """A follower and what its partition's leader holds; None: not known."""

    replica: ReplicaRow
    leader: int | None
    leader_log_end: int | None
    tiered: bool

    @property
    def behind(self) -> int | None:
        """Records between its log end and the leader's."""
        log_end, leader_end = self.replica.log_end_offset, self.leader_log_end
        return None if log_end is None or leader_end is None else max(0, leader_end - log_end)


@dataclass(frozen=True, slots=True)
class FollowerPhaseEvent:
    """A phase of a follower, from an event of a broker of the embedded engine."""

    at_ms: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A sample whose phase is not that of the sample before (None: it is the first, ``before_ms`` too)."""

    sampled_ms: int
    phase: str | None
    phase_since_ms: int | None
    phase_source: str | None
    before_ms: int | None


def phase_counts(connection: Connection, cluster_id: str) -> dict[str | None, int]:
    """Followers by phase; None: not known."""
    table = t.replica_current
    rows = connection.execute(
        select(table.c.phase, func.count())
        .where(table.c.cluster_id == cluster_id, table.c.role == "follower")
        .group_by(table.c.phase)
    )
    return {phase: int(count) for phase, count in rows}


def followers(
    connection: Connection,
    cluster_id: str,
    *,
    phases: Sequence[str | None] | None = None,
    changed_since_ms: int | None = None,
    name: str = "",
    broker_id: int | None = None,
    limit: int = FOLLOWERS_MAX,
) -> list[Follower]:
    """Followers in one of ``phases`` (None: any), without progress first, then those that changed phase last.

    ``changed_since_ms`` lets also those through that entered their phase since then. ``name``: part of
    ``topic-partition``.
    """
    replica, partition = t.replica_current, t.partition_current
    same = and_(
        partition.c.cluster_id == replica.c.cluster_id,
        partition.c.topic == replica.c.topic,
        partition.c.partition == replica.c.partition,
    )
    columns = [replica.c[name] for name in ReplicaRow.__slots__]
    query = (
        select(*columns, partition.c.leader, partition.c.log_end_offset.label("leader_log_end"), partition.c.tiered)
        .select_from(replica.outerjoin(partition, same))
        .where(replica.c.cluster_id == cluster_id, replica.c.role == "follower")
    )
    if phases is not None:
        named = [phase for phase in phases if phase is not None]
        conditions: list[ColumnElement[bool]] = [replica.c.phase.in_(named)] if named else []
        if None in phases:
            conditions.append(replica.c.phase.is_(None))
        if changed_since_ms is not None:
            conditions.append(replica.c.phase_since_ms >= changed_since_ms)
        query = query.where(or_(*conditions))
    if name:
        full = replica.c.topic.concat("-").concat(cast(replica.c.partition, String))
        query = query.where(full.icontains(name, autoescape=True))
    if broker_id is not None:
        query = query.where(replica.c.broker_id == broker_id)
    rank = case({"FAILED": 0, "DELAYED": 1, "WAITING_FOR_METADATA": 2, IN_SYNC: 4}, value=replica.c.phase, else_=3)
    # Brokers' own topics last: a follower of orders says more than one of __consumer_offsets.
    internal = case((replica.c.topic.startswith("__", autoescape=True), 1), else_=0)
    order = (rank, internal, replica.c.phase_since_ms.desc(), replica.c.topic, replica.c.partition, replica.c.broker_id)
    count = len(columns)
    return [
        Follower(ReplicaRow(*row[:count]), row.leader, row.leader_log_end, bool(row.tiered))
        for row in connection.execute(query.order_by(*order).limit(min(limit, FOLLOWERS_MAX)))
    ]


def phase_events(
    connection: Connection, cluster_id: str, topic: str, partition: int, broker_id: int, since_ms: int
) -> list[FollowerPhaseEvent]:
    """Phases from its broker's events since ``since_ms``, and the last one before, oldest first; the newest 200."""
    table = t.engine_event
    of_follower = (
        table.c.cluster_id == cluster_id,
        table.c.topic == topic,
        table.c.partition == partition,
        table.c.broker_id == broker_id,
        table.c.type == "phase",
    )
    query = select(table.c.at_ms, table.c.body).order_by(table.c.at_ms.desc(), table.c.source_offset.desc())
    events = connection.execute(query.where(*of_follower, table.c.at_ms >= since_ms).limit(PHASE_EVENTS_MAX)).all()
    before = connection.execute(query.where(*of_follower, table.c.at_ms < since_ms).limit(1)).all()
    return [FollowerPhaseEvent(row.at_ms, row.body) for row in reversed([*events, *before])]


def log_ends(
    connection: Connection, cluster_id: str, topic: str, partition: int, broker_id: int, since_ms: int
) -> list[tuple[int, int | None]]:
    """(moment, log end) of a replica's samples since ``since_ms``, oldest first, the newest SAMPLES_MAX."""
    table = t.replica_sample
    query = select(table.c.sampled_ms, table.c.log_end_offset).where(
        table.c.cluster_id == cluster_id,
        table.c.topic == topic,
        table.c.partition == partition,
        table.c.broker_id == broker_id,
        table.c.sampled_ms >= since_ms,
    )
    rows = connection.execute(query.order_by(table.c.sampled_ms.desc()).limit(SAMPLES_MAX))
    return [(row.sampled_ms, row.log_end_offset) for row in rows][::-1]


def phase_changes(
    connection: Connection, cluster_id: str, topic: str, partition: int, broker_id: int, since_ms: int
) -> list[PhaseChange]:
    """Where the sampled phase changes since ``since_ms``, oldest first, the first sample included."""
    table = t.replica_sample
    last = (
        select(table.c.sampled_ms, table.c.phase, table.c.phase_since_ms, table.c.phase_source)
        .where(
            table.c.cluster_id == cluster_id,
            table.c.topic == topic,
            table.c.partition == partition,
            table.c.broker_id == broker_id,
            table.c.sampled_ms >= since_ms,
        )
        .order_by(table.c.sampled_ms.desc())
        .limit(SAMPLES_MAX)
        .subquery()
    )
    at = last.c.sampled_ms
    seen = select(
        *last.c,
        func.lag(last.c.phase).over(order_by=at).label("before"),
        func.lag(at).over(order_by=at).label("before_ms"),
    ).subquery()
    changed = or_(seen.c.before_ms.is_(None), seen.c.phase.is_distinct_from(seen.c.before))
    rows = connection.execute(
        select(*(seen.c[name] for name in PhaseChange.__slots__)).where(changed).order_by(seen.c.sampled_ms)
    )
    return [PhaseChange(*row) for row in rows]
