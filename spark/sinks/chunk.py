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

from spark.ledger import Event, Ledger, PartitionRow, SegmentKey, SegmentRow, interval
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

    ``rows`` are those of table ``segment_event``. ``begun``: the segments that begin here, and in its partitions what
    they add. ``waiting``: which events are about other segments, or delete a partition; their rows say nothing yet.
    """

    mine: tuple[str]
    events: Sequence[Event]
    rows: list[Row]
    begun: Ledger
    segments: list[Row]
    intervals: list[Row]
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
    mine, begun = (cluster_id,), Ledger()
    rows: list[Row] = []
    waiting: list[int] = []
    before: set[SegmentKey] = set()
    for event in events:
        segment_id = event.segment_id
        if trusting and segment_id is not None:
            key = (event.topic_id, event.partition, segment_id)
            if key in begun.segments or (event.kind == KIND_SEGMENT and key not in before):
                reason = begun.apply(event)
                rows.append(event_row(mine, event, reason))
                continue
            before.add(key)
        waiting.append(len(rows))
        rows.append(())
    segments, intervals = ledger_rows(mine, begun)
    return Followed(mine, events, rows, begun, segments, intervals, waiting)


def event_row(mine: tuple[str], event: Event, reason: str | None) -> Row:
    """The row of an event in the history."""
    return mine + event + (reason is None, reason)


def ledger_rows(mine: tuple[str], ledger: Ledger) -> tuple[list[Row], list[Row]]:
    """The rows of its segments and of the intervals that changed.

    Sorted, since neighbours in an index are then stored one after the other.
    """
    segments = [(key, ledger.segments[key]) for key in sorted(ledger.segments)]
    changed = ledger.changed_intervals
    return (
        [mine + _segment_values(row) for _, row in segments],
        [mine + interval(row) for key, row in segments if key in changed],
    )


def partition_rows(mine: tuple[str], ledger: Ledger) -> list[Row]:
    """The rows of its partitions."""
    return [mine + _partition_values(row) for _, row in sorted(ledger.partitions.items())]
