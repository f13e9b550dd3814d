"""Events to segment states: the ledger's rules, as plain functions over values.

Place in the flow: `spark.sinks.chunk` applies the events of segments that begin in a chunk to an empty ledger, the sink
those of others to the rows that it loads, both in log order. The order of states is decided by
`backend.tiering.segment_state` (Kafka's `RemoteLogMetadataCache`): an event that may not follow leaves the ledger as it
is and is kept, flagged with the reason. All values go by `backend/store/tables`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple

from backend.tiering.intervals import OPEN_NODE, fork_node, moment
from backend.tiering.segment_state import PartitionDeleteState, SegmentState, is_legal, is_legal_delete
from spark.schemas import KIND_PARTITION_DELETE, KIND_SEGMENT

_STARTED, _FINISHED, _DELETE_STARTED, _DELETE_FINISHED = (int(state) for state in SegmentState)
# The two functions above over every pair, as one lookup per event.
_LEGAL: Final = {
    (None if before is None else int(before), int(after))
    for before in (None, *SegmentState)
    for after in SegmentState
    if is_legal(before, after)
}

SegmentKey = tuple[str, int, str]  # topic id, partition, segment id
PartitionKey = tuple[str, int]  # topic id, partition


class Event(NamedTuple):
    """One event, field by field as in `spark.schemas.EVENT_COLUMNS`."""

    metadata_partition: int
    metadata_offset: int
    record_timestamp_ms: int
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
    leader_epochs: str | None
    custom_metadata: bytes | None
    txn_index_empty: bool | None


@dataclass(slots=True)
class SegmentRow:
    """One row of the ledger; fields are the columns of table ``segment`` after ``cluster_id``.

    Not the row of the store's queries of that name: here the end offset is inclusive, as an event has it, and the
    leader epochs are the column's text.
    """

    topic_id: str
    partition: int
    segment_id: str
    topic: str
    start_offset: int
    end_offset: int
    state: int
    segment_size_bytes: int
    max_timestamp_ms: int
    leader_epochs: str
    custom_metadata: bytes | None
    txn_index_empty: bool
    copy_broker_id: int
    broker_id: int
    copy_started_ms: int
    copy_finished_ms: int | None
    delete_started_ms: int | None
    delete_finished_ms: int | None
    metadata_partition: int
    last_event_offset: int
    last_event_ms: int


SEGMENT_COLUMNS: Final = tuple(field.name for field in fields(SegmentRow))


class IntervalRow(NamedTuple):
    """One row of table ``segment_interval``; fields are its columns after ``cluster_id``."""

    topic_id: str
    partition: int
    segment_id: str
    from_ms: int
    to_ms: int | None
    node: int
    start_offset: int
    end_offset: int
    segment_size_bytes: int


@dataclass(slots=True)
class PartitionTotals:
    """The totals of one partition's segments; fields are the columns of table ``remote_partition`` after
    ``cluster_id``.

    Invariant: counts and bytes are those of the partition's segments in the ledger, state by state.
    """

    topic_id: str
    partition: int
    topic: str
    copy_started_segments: int = 0
    copy_started_bytes: int = 0
    copy_finished_segments: int = 0
    copy_finished_bytes: int = 0
    delete_started_segments: int = 0
    delete_started_bytes: int = 0
    delete_finished_segments: int = 0
    delete_finished_bytes: int = 0
    highest_copied_offset: int | None = None
    illegal_events: int = 0
    delete_state: int | None = None
    delete_state_ms: int | None = None
    last_event_ms: int = 0
    failed_copy_segments: int = 0  # of the deleted ones: they never finished their copy
    failed_copy_bytes: int = 0

    def add(self, other: PartitionTotals) -> None:
        """Count in what ``other`` counted from nothing, about other segments of the partition."""
        self.topic = other.topic
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        highest = (self.highest_copied_offset, other.highest_copied_offset)
        self.highest_copied_offset = max((offset for offset in highest if offset is not None), default=None)
        self.last_event_ms = max(self.last_event_ms, other.last_event_ms)

    def count(self, row: SegmentRow, sign: int) -> None:
        """Add (+1) or take out (-1) a segment as it stands."""
        size = sign * row.segment_size_bytes
        if row.state == _STARTED:
            self.copy_started_segments += sign
            self.copy_started_bytes += size
        elif row.state == _FINISHED:
            self.copy_finished_segments += sign
            self.copy_finished_bytes += size
            if sign > 0 and (self.highest_copied_offset is None or row.end_offset > self.highest_copied_offset):
                self.highest_copied_offset = row.end_offset
        elif row.state == _DELETE_STARTED:
            self.delete_started_segments += sign
            self.delete_started_bytes += size
        else:
            self.delete_finished_segments += sign
            self.delete_finished_bytes += size
            if row.copy_finished_ms is None:
                self.failed_copy_segments += sign
                self.failed_copy_bytes += size


PARTITION_COLUMNS: Final = tuple(field.name for field in fields(PartitionTotals))
_COUNTED: Final = tuple(name for name in PARTITION_COLUMNS if name.endswith(("_segments", "_bytes", "_events")))


@dataclass(slots=True)
class Ledger:
    """The part of the ledger that some events touch: rows as they are stored, then what the events made of them.

    Every row that is in it is about an event, so all are stored again; of the intervals only those that changed.
    """

    segments: dict[SegmentKey, SegmentRow] = field(default_factory=dict)
    partitions: dict[PartitionKey, PartitionTotals] = field(default_factory=dict)
    changed_intervals: set[SegmentKey] = field(default_factory=set)

    def apply(self, event: Event) -> str | None:
        """Follow ``event``, or leave segment states alone and return in words why it may not follow."""
        key = (event.topic_id, event.partition)
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = PartitionTotals(event.topic_id, event.partition, event.topic)
        partition.topic = event.topic
        if event.event_timestamp_ms > partition.last_event_ms:
            partition.last_event_ms = event.event_timestamp_ms
        if event.kind == KIND_PARTITION_DELETE:
            reason = _apply_delete(partition, event)
        else:
            reason = self._apply_segment(partition, event)
        if reason is not None:
            partition.illegal_events += 1
        return reason

    def _apply_segment(self, partition: PartitionTotals, event: Event) -> str | None:
        assert event.segment_id is not None
        key, state = (event.topic_id, event.partition, event.segment_id), event.state
        row = self.segments.get(key)
        # Kafka takes the first state only from a segment record and the others only from an update.
        is_start = event.kind == KIND_SEGMENT
        if is_start != (state == _STARTED) or (None if row is None else row.state, state) not in _LEGAL:
            return _why_not(row, event)
        if row is not None:
            partition.count(row, -1)
        if is_start:
            row = self.segments[key] = _started(row, event)
        else:
            assert row is not None
            _update(row, event)
        partition.count(row, +1)
        if state == _FINISHED or (state == _DELETE_STARTED and row.copy_finished_ms is not None):
            self.changed_intervals.add(key)
        return None


def interval(row: SegmentRow) -> IntervalRow:
    """When the segment was remote: from its finished copy until its deletion began, by the events' own clocks.

    A deletion that says an earlier time than the copy (two brokers, two clocks) ends it at once.
    """
    assert row.copy_finished_ms is not None
    from_ms = moment(row.copy_finished_ms)
    to_ms = None if row.delete_started_ms is None else max(from_ms, moment(row.delete_started_ms))
    return IntervalRow(
        row.topic_id,
        row.partition,
        row.segment_id,
        from_ms,
        to_ms,
        OPEN_NODE if to_ms is None else fork_node(from_ms, to_ms),
        row.start_offset,
        row.end_offset,
        row.segment_size_bytes,
    )


def _why_not(row: SegmentRow | None, event: Event) -> str:
    """Why Kafka's cache would drop an event that may not follow."""
    if event.kind == KIND_SEGMENT and event.state != _STARTED:
        return f"a segment record must say COPY_SEGMENT_STARTED, not {SegmentState(event.state).name}"
    if event.kind != KIND_SEGMENT and event.state == _STARTED:
        return "an update cannot say COPY_SEGMENT_STARTED"
    if row is None:
        return f"{SegmentState(event.state).name} of a segment that no event has started"
    return f"{SegmentState(event.state).name} cannot follow {SegmentState(row.state).name}"


def _started(before: SegmentRow | None, event: Event) -> SegmentRow:
    """The row of a copy that begins; repeated, the newest record counts and the first time stays."""
    (
        metadata_partition, offset, _, _, topic, topic_id, partition, segment_id, _, broker_id, at_ms, start_offset,
        end_offset, max_timestamp_ms, size_bytes, leader_epochs, custom_metadata, txn_index_empty,
    ) = event  # fmt: skip
    return SegmentRow(  # in the order of its fields: by name it takes twice as long
        topic_id,
        partition,
        segment_id or "",
        topic,
        start_offset or 0,
        end_offset or 0,
        _STARTED,
        size_bytes or 0,
        max_timestamp_ms or 0,
        leader_epochs or "[]",
        custom_metadata,
        bool(txn_index_empty),
        broker_id,  # copy_broker_id
        broker_id,
        at_ms if before is None else before.copy_started_ms,
        None,  # copy_finished_ms
        None,  # delete_started_ms
        None,  # delete_finished_ms
        metadata_partition,
        offset,
        at_ms,
    )


def _update(row: SegmentRow, event: Event) -> None:
    """An update replaces broker, time, custom metadata (also by null) and state, and keeps the rest."""
    row.broker_id = event.broker_id
    row.custom_metadata = event.custom_metadata
    row.metadata_partition = event.metadata_partition
    row.last_event_offset = event.metadata_offset
    row.last_event_ms = event.event_timestamp_ms
    if row.state == event.state:
        return  # repeated: the first time stays
    row.state = event.state
    if event.state == _FINISHED:
        row.copy_finished_ms = event.event_timestamp_ms
    elif event.state == _DELETE_STARTED:
        row.delete_started_ms = event.event_timestamp_ms
    else:
        row.delete_finished_ms = event.event_timestamp_ms


def _apply_delete(partition: PartitionTotals, event: Event) -> str | None:
    before = None if partition.delete_state is None else PartitionDeleteState(partition.delete_state)
    after = PartitionDeleteState(event.state)
    if not is_legal_delete(before, after):
        return f"{after.name} cannot follow {'nothing' if before is None else before.name}"
    if before != after:
        partition.delete_state = int(after)
        partition.delete_state_ms = event.event_timestamp_ms
    return None


def segment_keys(events: Iterable[Event]) -> set[SegmentKey]:
    """The ledger rows these events are about."""
    return {(e.topic_id, e.partition, e.segment_id) for e in events if e.segment_id is not None}


def partition_keys(events: Iterable[Event]) -> set[PartitionKey]:
    """The summaries these events are about."""
    return {(e.topic_id, e.partition) for e in events}
