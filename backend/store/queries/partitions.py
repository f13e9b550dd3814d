"""Reads of the Partitions and Partition pages: where the data of each partition lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Subquery,
    and_,
    case,
    exists,
    false,
    func,
    not_,
    null,
    or_,
    select,
)

from backend.store import tables as t
from backend.tiering.pending import pending_from
from backend.tiering.segment_state import SegmentState

ROWS_MAX: Final = 20_000  # twice the largest cluster the pages are built for
SEGMENTS_MAX: Final = 2_000  # 100 ms of a table of millions, whose rows lie apart
NO_SAMPLE: Final = "No sample of that time is kept."
OFFSETS_AND_SIZES: Final = (
    "log_start_offset",
    "local_log_start_offset",
    "latest_tiered_offset",
    "earliest_pending_upload_offset",
    "high_watermark",
    "log_end_offset",
    "local_log_bytes",
    "remote_log_bytes",
    "last_stable_offset",
)


@dataclass(slots=True)
class PartitionRow:
    """The latest facts of one partition; None: not known, ``error`` says why. ``ledger_*``: None: no event yet.

    ``pending_from`` is the first offset that is not remote, ``pending_source`` is ``inferred`` where the leader does
    not know ListOffsets -6, else ``exact``. Not frozen, because pages read 10,000 at a time: a frozen dataclass of that
    many fields takes much longer to make.
    """

    topic: str
    partition: int
    topic_id: str
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    tiered: bool
    log_start_offset: int | None
    local_log_start_offset: int | None
    latest_tiered_offset: int | None
    earliest_pending_upload_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    local_log_bytes: int | None
    remote_log_bytes: int | None
    adding_replicas: list[int] | None
    removing_replicas: list[int] | None
    pending_reason: str | None  # what a -1 of earliest_pending_upload_offset means
    error: str | None
    changed_ms: int
    sampled_ms: int
    ledger_segments: int | None
    ledger_bytes: int | None
    ledger_open_copies: int | None
    last_stable_offset: int | None = None
    pending_from: int | None = None
    pending_source: str | None = None


_COMPUTED: Final = ("pending_from", "pending_source")
_STORED: Final = tuple(name for name in PartitionRow.__slots__ if name not in _COMPUTED)


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """The latest facts of one replica; None: not known, ``error`` says why."""

    topic: str
    partition: int
    broker_id: int
    role: str
    in_isr: bool
    log_start_offset: int | None
    local_log_start_offset: int | None
    latest_tiered_offset: int | None
    log_end_offset: int | None
    local_log_bytes: int | None
    phase: str | None
    phase_since_ms: int | None
    phase_source: str | None
    leader_epochs: list[list[int]] | None
    log_dir: str | None
    evidence: Any
    error: str | None
    changed_ms: int
    sampled_ms: int


@dataclass(slots=True)
class SegmentRow:
    """A remote segment of the ledger. Offsets half-open: ``[start_offset, next_offset)``. Not frozen, for the speed.

    ``superseded``: an open copy that will never finish, as :func:`superseded` says. Not the row of that name which the
    pipeline writes: there the end offset is inclusive and the epochs are text.
    """

    topic: str
    partition: int
    topic_id: str
    segment_id: str
    start_offset: int
    next_offset: int
    state: SegmentState
    segment_size_bytes: int
    max_timestamp_ms: int
    leader_epochs: list[list[int]]
    copy_broker_id: int
    broker_id: int
    copy_started_ms: int
    copy_finished_ms: int | None
    delete_started_ms: int | None
    delete_finished_ms: int | None
    last_event_ms: int
    superseded: bool = False

    @property
    def copy_failed(self) -> bool:
        """Whether its copy ended without finishing: Kafka 4.3 deletes what a failed copy leaves, or retention does."""
        if self.state is SegmentState.COPY_SEGMENT_STARTED:
            return self.superseded
        return self.copy_finished_ms is None


@dataclass(frozen=True, slots=True)
class PartitionPoint:
    """Offsets of a partition at one moment."""

    sampled_ms: int
    leader: int
    leader_epoch: int
    log_start_offset: int | None
    local_log_start_offset: int | None
    latest_tiered_offset: int | None
    earliest_pending_upload_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    last_stable_offset: int | None = None


def partitions(connection: Connection, cluster_id: str, *, tiered_only: bool = True) -> list[PartitionRow]:
    """All partitions (at most 20,000) by name, with what the ledger says of their remote part."""
    query = _partitions(cluster_id)
    if tiered_only:
        query = query.where(t.partition_current.c.tiered)
    query = query.order_by(t.partition_current.c.topic, t.partition_current.c.partition).limit(ROWS_MAX)
    return [_partition_row(row) for row in connection.execute(query)]


def partition(connection: Connection, cluster_id: str, topic: str, partition_: int) -> PartitionRow | None:
    """One partition; None when it is not known."""
    table = t.partition_current
    query = _partitions(cluster_id).where(table.c.topic == topic, table.c.partition == partition_)
    row = connection.execute(query).one_or_none()
    return None if row is None else _partition_row(row)


def partitions_then(connection: Connection, cluster_id: str, at_ms: int, since_ms: int) -> list[PartitionRow]:
    """As :func:`partitions` with tiered topics only, but as each stood at ``at_ms``: by its last sample until then.

    A partition without a sample from ``since_ms`` on, or whose topic of then is gone, has no offsets and an ``error``
    that says so; deleted ones are not listed. Values that are known of today only are None.
    """
    current, sample = t.partition_current, t.partition_sample
    inner = sample.alias()
    newest = (
        select(inner.c.sampled_ms)
        .where(
            inner.c.cluster_id == current.c.cluster_id,
            inner.c.topic == current.c.topic,
            inner.c.partition == current.c.partition,
            inner.c.sampled_ms >= since_ms,
            inner.c.sampled_ms <= at_ms,
        )
        .order_by(inner.c.sampled_ms.desc())
        .limit(1)
        .correlate(current)
        .scalar_subquery()
    )
    same = and_(
        sample.c.cluster_id == current.c.cluster_id,
        sample.c.topic == current.c.topic,
        sample.c.partition == current.c.partition,
        sample.c.topic_id == current.c.topic_id,
        sample.c.sampled_ms == newest,
    )
    source = current.outerjoin(sample, same)
    then = ("leader", "leader_epoch", "replicas", "isr")
    columns: dict[str, ColumnElement[Any]] = dict.fromkeys(_STORED, null())
    columns |= {name: current.c[name] for name in ("topic", "partition", "topic_id", "tiered")}
    columns |= {name: func.coalesce(sample.c[name], current.c[name]) for name in then}
    columns |= {name: sample.c[name] for name in OFFSETS_AND_SIZES}
    # One moment for both: when that was sampled. Of a partition without a sample the moment that was asked for.
    columns |= {name: func.coalesce(sample.c.sampled_ms, at_ms) for name in ("changed_ms", "sampled_ms")}
    columns["error"] = case((sample.c.sampled_ms.is_(None), NO_SAMPLE), else_=null())
    query = (
        select(*(columns[name].label(name) for name in _STORED))
        .select_from(source)
        .where(current.c.cluster_id == cluster_id, current.c.tiered)
        .order_by(current.c.topic, current.c.partition)
        .limit(ROWS_MAX)
    )
    return [_partition_row(row) for row in connection.execute(query)]


def replicas(
    connection: Connection, cluster_id: str, topic: str | None = None, partition_: int | None = None
) -> list[ReplicaRow]:
    """Replicas of the cluster (at most 60,000), of a topic or of one partition; the leader first."""
    table = t.replica_current
    query = select(*(column for column in table.c if column.name != "cluster_id")).where(
        table.c.cluster_id == cluster_id
    )
    if topic is not None:
        query = query.where(table.c.topic == topic)
    if partition_ is not None:
        query = query.where(table.c.partition == partition_)
    # "leader" sorts after "follower".
    query = query.order_by(table.c.topic, table.c.partition, table.c.role.desc(), table.c.broker_id)
    return [ReplicaRow(**row._mapping) for row in connection.execute(query.limit(3 * ROWS_MAX))]


def segments(
    connection: Connection,
    cluster_id: str,
    topic: str,
    partition_: int,
    *,
    topic_id: str | None = None,
    states: Iterable[SegmentState] = (
        SegmentState.COPY_SEGMENT_STARTED,
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    ),
    limit: int = SEGMENTS_MAX,
) -> list[SegmentRow]:
    """The ledger of one partition in offset order, the newest ``limit`` segments.

    Without ``topic_id`` also segments of an earlier topic of that name.
    """
    table = t.segment
    query = select_segments(cluster_id).where(
        table.c.topic == topic, table.c.partition == partition_, table.c.state.in_([int(state) for state in states])
    )
    if topic_id is not None:
        query = query.where(table.c.topic_id == topic_id)
    query = query.order_by(table.c.start_offset.desc(), table.c.copy_started_ms.desc()).limit(limit)
    return [segment_row(row) for row in connection.execute(query)][::-1]


def open_segments(connection: Connection, cluster_id: str, limit: int = 500) -> list[SegmentRow]:
    """Copies and deletions that have begun and not ended, the one that waits longest first.

    Copies with a later one of their partition come last: a store that was away for a day leaves thousands of them.
    """
    rows = open_work(cluster_id)
    columns = [_computed(rows, name) for name in SegmentRow.__slots__]
    query = select(*columns).order_by(not_(rows.c.newest), rows.c.last_event_ms).limit(limit)
    return [segment_row(row) for row in connection.execute(query)]


def segments_before(
    connection: Connection, cluster_id: str, topic: str, partition_: int, topic_id: str, offset: int
) -> list[SegmentRow]:
    """The finished copies that begin at or before ``offset``, the last three of them, in offset order."""
    table = t.segment
    query = select_segments(cluster_id).where(
        table.c.topic == topic,
        table.c.partition == partition_,
        table.c.topic_id == topic_id,
        table.c.state == int(SegmentState.COPY_SEGMENT_FINISHED),
        table.c.start_offset <= offset,
    )
    rows = connection.execute(query.order_by(table.c.start_offset.desc(), table.c.copy_started_ms.desc()).limit(3))
    return [segment_row(row) for row in rows][::-1]


def log_end_passed(
    connection: Connection, cluster_id: str, topic: str, partition_: int, offset: int, since_ms: int
) -> list[PartitionPoint]:
    """The samples since ``since_ms`` between which the log end went over ``offset``, or none of them."""
    table = t.partition_sample
    query = _samples(cluster_id, topic, partition_, since_ms)
    before = query.where(table.c.log_end_offset <= offset).order_by(table.c.sampled_ms.desc()).limit(1)
    after = query.where(table.c.log_end_offset > offset).order_by(table.c.sampled_ms).limit(1)
    samples = [row for part in (before, after) for row in connection.execute(part)]
    return [PartitionPoint(**row._mapping) for row in samples] if len(samples) == 2 else []


def offset_history(
    connection: Connection,
    cluster_id: str,
    topic: str,
    partition_: int,
    since_ms: int,
    until_ms: int = 2**63 - 1,
    limit: int = 2000,
) -> list[PartitionPoint]:
    """Offsets of one partition from ``since_ms`` to ``until_ms``, oldest first, the newest ``limit`` points."""
    table = t.partition_sample
    query = _samples(cluster_id, topic, partition_, since_ms).where(table.c.sampled_ms <= until_ms)
    rows = connection.execute(query.order_by(table.c.sampled_ms.desc()).limit(limit))
    return [PartitionPoint(**row._mapping) for row in rows][::-1]


def _samples(cluster_id: str, topic: str, partition_: int, since_ms: int) -> Select[Any]:
    """The columns of :class:`PartitionPoint`, in no order."""
    table = t.partition_sample
    return select(*(table.c[name] for name in PartitionPoint.__slots__)).where(
        table.c.cluster_id == cluster_id,
        table.c.topic == topic,
        table.c.partition == partition_,
        table.c.sampled_ms >= since_ms,
    )


def _partitions(cluster_id: str) -> Select[Any]:
    current, remote = t.partition_current, t.remote_partition
    same = and_(
        remote.c.cluster_id == current.c.cluster_id,
        remote.c.topic_id == current.c.topic_id,
        remote.c.partition == current.c.partition,
    )
    columns: dict[str, ColumnElement[Any]] = {
        **dict(current.c.items()),
        "ledger_segments": remote.c.copy_finished_segments,
        "ledger_bytes": remote.c.copy_finished_bytes,
        "ledger_open_copies": remote.c.copy_started_segments,
    }
    return (
        # In the order of the row's fields: 10,000 rows by position take half the time of rows by name.
        select(*(columns[name].label(name) for name in _STORED))
        .select_from(current.outerjoin(remote, same))
        .where(current.c.cluster_id == cluster_id)
    )


def _partition_row(row: Sequence[Any]) -> PartitionRow:
    made = PartitionRow(*row)
    pending = pending_from(made)
    if pending.offset is not None:
        made.pending_from, made.pending_source = pending.offset, "inferred" if pending.inferred else "exact"
    return made


def open_work(cluster_id: str) -> Subquery:
    """Open copies and deletions; ``newest``: it is no copy, or the one of its partition that began last."""
    table = t.segment
    # By itself, else SQLite walks all segments of the cluster in the order that the window wants.
    rows = select(table).where(table.c.cluster_id == cluster_id, t.OPEN_SEGMENT).cte().prefix_with("MATERIALIZED")
    begun = func.row_number().over(
        partition_by=(rows.c.topic_id, rows.c.partition, rows.c.state), order_by=rows.c.copy_started_ms.desc()
    )
    newest = or_(rows.c.state != int(SegmentState.COPY_SEGMENT_STARTED), begun == 1)
    return select(rows, newest.label("newest")).subquery()


def superseded(of: FromClause = t.segment) -> ColumnElement[bool]:
    """Whether an open copy will never finish; False for a segment in another state.

    Copies of a partition are made one after the other: one that began later, of the same or a later range, shows that
    this one is over. So does its broker's report that it failed. One look-up by index in each table.
    """
    table, later, event = of.c, t.segment.alias("later"), t.engine_event.c
    begun_since = exists().where(
        *(later.c[name] == table[name] for name in ("cluster_id", "topic", "partition", "topic_id")),
        later.c.start_offset >= table.start_offset,
        later.c.copy_started_ms > table.copy_started_ms,
    )
    reported = exists().where(
        *(event[name] == table[name] for name in ("cluster_id", "topic", "partition")),
        event.at_ms >= table.copy_started_ms,
        event.type == "copy",
        event.body["segment_id"].as_string() == table.segment_id,
        event.body["outcome"].as_string() == "failed",
    )
    is_open = table.state == int(SegmentState.COPY_SEGMENT_STARTED)
    return case((is_open, or_(begun_since, reported)), else_=false())


def select_segments(cluster_id: str) -> Select[Any]:
    """The columns of :class:`SegmentRow`, of all segments of the cluster: never without an index and a limit."""
    columns = [_computed(t.segment, name) for name in SegmentRow.__slots__]
    return select(*columns).where(t.segment.c.cluster_id == cluster_id)


def _computed(of: FromClause, name: str) -> ColumnElement[Any]:
    match name:
        case "next_offset":
            return (of.c.end_offset + 1).label(name)
        case "superseded":
            return superseded(of).label(name)
        case _:
            return of.c[name]


def segment_row(row: Sequence[Any]) -> SegmentRow:
    """The row of :func:`select_segments`, whose columns are in the order of the fields."""
    made = SegmentRow(*row)
    made.state, made.superseded = SegmentState(made.state), bool(made.superseded)
    return made
