"""Reads of the Remote log page: the life cycle of remote segments, and what the ledger did not follow.

Every query goes by an index and has a limit: the ledger may hold millions of segments and twice as many events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, func, literal, not_, select, tuple_

from backend.store import tables as t
from backend.store.queries.partitions import SegmentRow, open_segments, segment_row, segments, select_segments
from backend.tiering.segment_state import SegmentState

LEDGER_MAX: Final = 500  # rows of the page's table; each also carries a small picture
TOPIC_PARTITIONS_MAX: Final = 200  # look-ups by index for one topic: 20 ms
DELETING_PARTITIONS_MAX: Final = 20
DELETES_PER_PARTITION: Final = 20
# 260 segments a partition make some 800 events; 10 us each to read and fold, and a page has 100 ms.
PAST_EVENTS_MAX: Final = 8_000
UNFOLLOWED_MAX: Final = 200
# A batch of a few records says how long a transaction takes, not how fast records are read.
PACE_RECORDS_MIN: Final = 20
PACE_BATCHES: Final = 200
ALL_STATES: Final = tuple(SegmentState)


@dataclass(frozen=True, slots=True)
class Scope:
    """The whole remote log, one topic of it, or one partition."""

    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class CycleTotals:
    """Segments and bytes by state, from the pipeline's summaries of each partition.

    ``failed_copy_*``: of the deleted ones those whose copy failed, so that there was nothing to reclaim.
    """

    partitions: int
    copy_started_segments: int
    copy_started_bytes: int
    copy_finished_segments: int
    copy_finished_bytes: int
    delete_started_segments: int
    delete_started_bytes: int
    delete_finished_segments: int
    delete_finished_bytes: int
    illegal_events: int
    failed_copy_segments: int = 0
    failed_copy_bytes: int = 0

    @property
    def reclaimed_segments(self) -> int:
        return self.delete_finished_segments - self.failed_copy_segments

    @property
    def reclaimed_bytes(self) -> int:
        return self.delete_finished_bytes - self.failed_copy_bytes


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of a partition as it stands in the metadata topic; ``end_offset`` inclusive."""

    metadata_partition: int
    metadata_offset: int
    kind: int
    topic: str
    topic_id: str
    partition: int
    segment_id: str | None
    state: int
    broker_id: int
    event_timestamp_ms: int
    start_offset: int | None
    end_offset: int | None
    max_timestamp_ms: int | None
    segment_size_bytes: int | None
    leader_epochs: list[list[int]] | None
    legal: bool
    illegal_reason: str | None


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """A record of the metadata topic that the ledger did not follow, or could not read."""

    metadata_partition: int
    metadata_offset: int
    at_ms: int
    what: str  # topic-partition for an event; empty for a record that could not be read
    segment_id: str | None
    broker_id: int | None
    reason: str
    quarantined: bool


@dataclass(frozen=True, slots=True)
class MetadataReading:
    """How far the pipeline has read the metadata topic; None: never."""

    records: int
    partitions: int
    updated_ms: int | None
    quarantined: int


def cycle_totals(connection: Connection, cluster_id: str, scope: Scope) -> CycleTotals:
    """One row a partition is read, none of the segments."""
    table = t.remote_partition
    names = [name for name in CycleTotals.__slots__ if name != "partitions"]
    row = connection.execute(
        select(func.count(), *(func.coalesce(func.sum(table.c[name]), 0) for name in names)).where(
            *_in_scope(table, cluster_id, scope)
        )
    ).one()
    return CycleTotals(*(int(value) for value in row))


def newest_segments(connection: Connection, cluster_id: str, scope: Scope, limit: int = LEDGER_MAX) -> list[SegmentRow]:
    """The ledger, in offset order by partition: of one partition its newest ``limit`` segments in any state.

    Of a topic the newest of each of its partitions (at most 200). Of all: what is open now, and the newest copies.
    """
    if scope.topic is None:
        return _newest_of_all(connection, cluster_id, limit)
    if scope.partition is not None:
        return segments(connection, cluster_id, scope.topic, scope.partition, states=ALL_STATES, limit=limit)
    remote = t.remote_partition
    numbers = connection.scalars(
        select(remote.c.partition)
        .where(remote.c.cluster_id == cluster_id, remote.c.topic == scope.topic)
        .distinct()
        .order_by(remote.c.partition)
        .limit(TOPIC_PARTITIONS_MAX)
    ).all()
    each = max(1, limit // max(1, len(numbers)))
    segment_rows = []
    for number in numbers:
        segment_rows += segments(connection, cluster_id, scope.topic, number, states=ALL_STATES, limit=each)
    return segment_rows


def _newest_of_all(connection: Connection, cluster_id: str, limit: int) -> list[SegmentRow]:
    table = t.segment
    still_open = open_segments(connection, cluster_id, limit // 2)
    copied = select_segments(cluster_id).where(table.c.copy_finished_ms.is_not(None))
    rows = connection.execute(copied.order_by(table.c.copy_finished_ms.desc()).limit(limit - len(still_open)))
    newest = {(row.topic_id, row.partition, row.segment_id): row for row in still_open}
    for row in rows:
        segment = segment_row(row)
        newest[segment.topic_id, segment.partition, segment.segment_id] = segment
    return sorted(newest.values(), key=lambda row: (row.topic, row.partition, row.start_offset))


def recent_deletions(connection: Connection, cluster_id: str) -> list[SegmentRow]:
    """Deleted segments of the partitions that deleted or copied last: how long deletions take now."""
    table, remote = t.segment, t.remote_partition
    keys = connection.execute(
        select(remote.c.topic, remote.c.partition)
        .where(remote.c.cluster_id == cluster_id, remote.c.delete_finished_segments > 0)
        .order_by(remote.c.last_event_ms.desc())
        .limit(DELETING_PARTITIONS_MAX)
    ).all()
    deletions = []
    for topic, partition in keys:
        query = select_segments(cluster_id).where(
            table.c.topic == topic,
            table.c.partition == partition,
            table.c.state == int(SegmentState.DELETE_SEGMENT_FINISHED),
        )
        rows = connection.execute(query.order_by(table.c.start_offset.desc()).limit(DELETES_PER_PARTITION))
        deletions += [segment_row(row) for row in rows]
    return deletions


def find_segment(connection: Connection, cluster_id: str, segment_id: str) -> SegmentRow | None:
    """A segment by its id alone: one look-up by key in each partition that ever had a remote segment."""
    table, remote = t.segment, t.remote_partition
    partitions = select(remote.c.topic_id, remote.c.partition).where(remote.c.cluster_id == cluster_id)
    # As a join SQLite would rather walk all segments of the cluster.
    row = connection.execute(
        select_segments(cluster_id)
        .where(tuple_(table.c.topic_id, table.c.partition).in_(partitions), table.c.segment_id == segment_id)
        .limit(1)
    ).first()
    return None if row is None else segment_row(row)


def past_events(
    connection: Connection, cluster_id: str, topic_id: str, partition: int, limit: int = PAST_EVENTS_MAX
) -> list[StoredEvent] | None:
    """All stored events of a partition in the order of the metadata topic; None when there are more than ``limit``."""
    table = t.segment_event
    of = (table.c.topic_id == topic_id, table.c.partition == partition)
    # Counted in an index first: too many would be read for nothing.
    further = select(literal(1)).where(table.c.cluster_id == cluster_id, *of).offset(limit).limit(1)
    if connection.scalar(further) is not None:
        return None
    return _events(connection, cluster_id, limit, *of)


def events_of_segment(
    connection: Connection, cluster_id: str, topic_id: str, partition: int, segment_id: str, limit: int = 100
) -> list[StoredEvent]:
    """The events of one segment, in the order of the metadata topic.

    Looked for among the events of its partition, in the index alone: 30 ms for a hundred thousand, and in proportion.
    """
    table = t.segment_event
    of = (table.c.topic_id == topic_id, table.c.partition == partition, table.c.segment_id == segment_id)
    # Their offsets first: PostgreSQL takes a segment's id from the index only where it needs nothing else of the row.
    metadata_offsets = select(table.c.metadata_offset).where(table.c.cluster_id == cluster_id, *of)
    offsets = connection.scalars(metadata_offsets.order_by(table.c.metadata_offset).limit(limit)).all()
    return _events(connection, cluster_id, limit, *of, table.c.metadata_offset.in_(offsets))


def _events(connection: Connection, cluster_id: str, limit: int, *where: ColumnElement[bool]) -> list[StoredEvent]:
    table = t.segment_event
    columns = (table.c[name] for name in StoredEvent.__slots__)
    query = select(*columns).where(table.c.cluster_id == cluster_id, *where)
    # All events of a partition are in one partition of the metadata topic, so its offset is their order.
    return [StoredEvent(*row) for row in connection.execute(query.order_by(table.c.metadata_offset).limit(limit))]


def unfollowed(connection: Connection, cluster_id: str, scope: Scope, limit: int = UNFOLLOWED_MAX) -> list[Unfollowed]:
    """Illegal events and, for the whole cluster, quarantined records; the newest first."""
    event = t.segment_event
    where = [event.c.cluster_id == cluster_id, not_(event.c.legal)]
    if scope.topic is not None:
        where.append(event.c.topic == scope.topic)
    if scope.partition is not None:
        where.append(event.c.partition == scope.partition)
    rows = connection.execute(select(event).where(*where).order_by(event.c.event_timestamp_ms.desc()).limit(limit))
    unfollowed_rows = [
        Unfollowed(
            row.metadata_partition,
            row.metadata_offset,
            row.event_timestamp_ms,
            f"{row.topic}-{row.partition}",
            row.segment_id,
            row.broker_id,
            row.illegal_reason or "against the life cycle",
            False,
        )
        for row in rows
    ]
    if scope.topic is None:
        unfollowed_rows += _quarantined(connection, cluster_id, limit)
    return sorted(unfollowed_rows, key=lambda row: -row.at_ms)[:limit]


def _quarantined(connection: Connection, cluster_id: str, limit: int) -> list[Unfollowed]:
    table = t.quarantine
    columns = (table.c.partition, table.c.offset, table.c.record_timestamp_ms, table.c.reason)
    rows = connection.execute(
        select(*columns)
        .where(table.c.cluster_id == cluster_id)
        .order_by(table.c.topic.desc(), table.c.partition.desc(), table.c.offset.desc())
        .limit(limit)
    )
    return [Unfollowed(*row[:3], "", None, None, row.reason, True) for row in rows]


def metadata_reading(connection: Connection, cluster_id: str) -> MetadataReading:
    """One row a partition of the metadata topic."""
    offsets, kept = t.source_offsets, t.quarantine
    records, partitions, updated_ms = connection.execute(
        select(func.coalesce(func.sum(offsets.c.next_offset), 0), func.count(), func.max(offsets.c.updated_ms)).where(
            offsets.c.cluster_id == cluster_id
        )
    ).one()
    quarantined = connection.scalar(select(func.count()).select_from(kept).where(kept.c.cluster_id == cluster_id))
    return MetadataReading(int(records), int(partitions), updated_ms, int(quarantined or 0))


def metadata_pace(connection: Connection, cluster_id: str) -> float | None:
    """Records a second of the pipeline's quickest batch among its newest PACE_BATCHES of some size; None: no such."""
    batch = t.pipeline_batch
    took = batch.c.finished_ms - batch.c.started_ms
    rows = connection.execute(
        select(batch.c.records, took)
        .where(batch.c.cluster_id == cluster_id, batch.c.records >= PACE_RECORDS_MIN, took > 0)
        .order_by(batch.c.finished_ms.desc())
        .limit(PACE_BATCHES)
    )
    return max((1000 * records / took_ms for records, took_ms in rows), default=None)


def copies_since(connection: Connection, cluster_id: str, since_ms: int) -> int:
    """Segments whose copy finished since then, by index."""
    table = t.segment
    copies = connection.scalar(
        select(func.count()).where(table.c.cluster_id == cluster_id, table.c.copy_finished_ms >= since_ms)
    )
    return int(copies or 0)


def local_bytes(connection: Connection, cluster_id: str, topic: str) -> dict[int, int | None]:
    """Bytes of a topic's replicas on each broker that has some; None: not known."""
    table = t.replica_current
    rows = connection.execute(
        select(table.c.broker_id, func.sum(table.c.local_log_bytes))
        .where(table.c.cluster_id == cluster_id, table.c.topic == topic)
        .group_by(table.c.broker_id)
    )
    return {int(broker): None if size is None else int(size) for broker, size in rows}


def _in_scope(table: Table, cluster_id: str, scope: Scope) -> list[Any]:
    where: list[Any] = [table.c.cluster_id == cluster_id]
    if scope.topic is not None:
        where.append(table.c.topic == scope.topic)
    if scope.partition is not None:
        where.append(table.c.partition == scope.partition)
    return where
