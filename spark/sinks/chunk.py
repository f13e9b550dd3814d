"""The records of one transaction, made ready before it begins: all that it stores as far as nothing need be looked up.

A segment whose first event is among the records is taken for new. Its row, its interval and what it adds to the summary
of its partition are made here, while the transaction before is under way. Events about other segments wait for the rows
they are about. Pure functions over values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from spark.ledger import Event, Ledger, PartitionKey, PartitionRow, SegmentKey, SegmentRow, interval
from spark.schemas import EVENT_COLUMNS, KIND_SEGMENT

Row = tuple[Any, ...]
SEGMENT_COLUMNS: Final = tuple(field.name for field in fields(SegmentRow))
PARTITION_COLUMNS: Final = tuple(field.name for field in fields(PartitionRow))
_segment_values = attrgetter(*SEGMENT_COLUMNS)
_partition_values = attrgetter(*PARTITION_COLUMNS)
_WIDTH: Final = len(EVENT_COLUMNS)


@dataclass(frozen=True, slots=True)
class Followed:
    """Some events and what they make of the ledger, as far as that can be told without it.

    ``rows`` are those of table ``segment_event``, ``segments`` and ``intervals`` those of segments that begin here,
    ``added`` what these add to their partitions. ``waiting``: which events are about other segments, or delete a
    partition; their rows are empty yet.
    """

    events: Sequence[Event]
    rows: list[Row]
    segments: list[Row]
    intervals: list[Row]
    added: Mapping[PartitionKey, PartitionRow]
    waiting: list[int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one transaction, without those that are stored already or twice among them.

    ``first_offsets`` and ``next_offsets``: of every topic partition that is left.
    """

    records: pa.Table
    first_offsets: dict[int, int]
    next_offsets: dict[int, int]
    replayed: int
    unreadable: list[Row]
    followed: Followed

    def fits(self, stored: Mapping[int, int]) -> bool:
        """Whether none of the records is stored, where the offsets below these are."""
        return all(offset >= stored.get(partition, 0) for partition, offset in self.first_offsets.items())


def chunk_of(cluster_id: str, records: pa.Table, stored: Mapping[int, int], *, trusting: bool) -> Chunk:
    """The chunk of ``records``, in log order, of which those below the offsets ``stored`` are left out."""
    first_offsets: dict[int, int] = {}
    next_offsets: dict[int, int] = {}
    events: list[Event] = []
    unreadable: list[Row] = []
    for row in zip(*(column.to_pylist() for column in records.columns), strict=True):
        partition, offset = row[0], row[1]
        ahead = next_offsets.get(partition)
        if ahead is None:
            if offset < stored.get(partition, 0):
                continue
            first_offsets[partition] = offset
        elif offset < ahead:
            continue
        next_offsets[partition] = offset + 1
        if row[_WIDTH] is None:
            events.append(Event._make(row[:_WIDTH]))
        else:
            unreadable.append(row)
    replayed = records.num_rows - len(events) - len(unreadable)
    followed = follow(cluster_id, events, trusting=trusting)
    return Chunk(records, first_offsets, next_offsets, replayed, unreadable, followed)


def follow(cluster_id: str, events: Sequence[Event], *, trusting: bool) -> Followed:
    """Follow events as far as the ledger need not be asked; not at all unless ``trusting``."""
    begun = Ledger()
    rows: list[Row] = []
    waiting: list[int] = []
    before: set[SegmentKey] = set()
    for event in events:
        segment_id = event.segment_id
        if trusting and segment_id is not None:
            key = (event.topic_id, event.partition, segment_id)
            if key in begun.segments or (event.kind == KIND_SEGMENT and key not in before):
                rows.append(_event_row(cluster_id, event, begun.apply(event)))
                continue
            before.add(key)
        waiting.append(len(rows))
        rows.append(())
    return Followed(events, rows, *ledger_rows(cluster_id, begun), begun.partitions, waiting)


def complete(cluster_id: str, followed: Followed, ledger: Ledger) -> list[Row]:
    """Has ``ledger``, as it is stored, follow the events that waited; the rows of table ``segment_event``."""
    rows = followed.rows.copy()
    for at in followed.waiting:
        event = followed.events[at]
        rows[at] = _event_row(cluster_id, event, ledger.apply(event))
    for key, added in followed.added.items():
        ledger.partitions.setdefault(key, PartitionRow(*key, added.topic)).add(added)
    return rows


def _event_row(cluster_id: str, event: Event, reason: str | None) -> Row:
    return (cluster_id, *event, reason is None, reason)


def ledger_rows(cluster_id: str, ledger: Ledger) -> tuple[list[Row], list[Row]]:
    """The rows of its segments and of the intervals that changed.

    Each in the order of its key, so that neighbours in it are stored one after the other: segments by their ids,
    intervals by where they begin, which is the order of the log.
    """
    mine, changed, segments = (cluster_id,), ledger.changed_intervals, ledger.segments
    return (
        [mine + _segment_values(segments[key]) for key in sorted(segments)],
        [mine + interval(row) for key, row in segments.items() if key in changed],
    )


def partition_rows(cluster_id: str, ledger: Ledger) -> list[Row]:
    """The rows of its partitions."""
    return [(cluster_id, *_partition_values(row)) for _, row in sorted(ledger.partitions.items())]
