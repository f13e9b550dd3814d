"""The records of one transaction, made ready before it begins: all that it stores as far as nothing need be looked up.

A segment whose first event is among the records is taken for new. Its row, its interval and what it adds to the summary
of its partition are made here, while the transaction before is under way: by columns where its events tell a plain
life (`spark.sinks.lives`), and event by event where not, with the same result. Events about other segments wait for the
rows they are about. Pure functions over values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.ledger import (
    PARTITION_COLUMNS,
    SEGMENT_COLUMNS,
    Event,
    IntervalRow,
    Ledger,
    PartitionKey,
    PartitionTotals,
    SegmentKey,
    interval,
)
from spark.schemas import EVENT_COLUMNS, KIND_SEGMENT
from spark.sinks.lives import Row, interval_rows, partitions_added, plain_lives, segment_rows

_segment_values = attrgetter(*SEGMENT_COLUMNS)
_partition_values = attrgetter(*PARTITION_COLUMNS)
# The key of table ``segment_interval``.
_KEY: Final = ("topic_id", "partition", "start_offset", "segment_id")
_by_begin = itemgetter(*(1 + IntervalRow._fields.index(name) for name in _KEY))
_EVENT: Final = slice(1, 1 + len(EVENT_COLUMNS))  # of a row of table ``segment_event``


@dataclass(frozen=True, slots=True)
class Followed:
    """The effect of events on the ledger, as far as it is known without the ledger.

    ``segments`` and ``intervals`` are rows of segments that begin here, ``added`` is what these add to their
    partitions. By their places among the events, ``illegal`` says why which may not follow, and ``waiting`` are those
    that are about other segments or delete a partition.
    """

    segments: list[Row]
    intervals: list[Row]
    added: dict[PartitionKey, PartitionTotals]
    illegal: dict[int, str]
    waiting: dict[int, Event]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one transaction, without those that are stored already or twice among them.

    ``rows`` of table ``segment_event`` say that the event is legal, whatever ``followed`` says (see `with_reasons`);
    ``times_ms`` are when these events happened. ``first_offsets`` and ``next_offsets``: of every topic partition that
    is left.
    """

    records: pa.Table
    first_offsets: dict[int, int]
    next_offsets: dict[int, int]
    replayed: int
    unreadable: list[Row]
    rows: list[Row]
    times_ms: list[int]
    followed: Followed

    def fits(self, stored: Mapping[int, int]) -> bool:
        """Whether none of the records is stored, where the offsets below these are."""
        return all(offset >= stored.get(partition, 0) for partition, offset in self.first_offsets.items())


def chunk_of(cluster_id: str, records: pa.Table, stored: Mapping[int, int], *, trusting: bool) -> Chunk:
    """The chunk of ``records``, in log order, of which those below the offsets ``stored`` are left out."""
    fresh, first_offsets, next_offsets = _fresh(records, stored)
    readable = records["problem"].is_null().to_numpy()
    events = records.filter(fresh & readable).select(EVENT_COLUMNS)
    unreadable = _rows(records.filter(fresh & ~readable))
    columns = (column.to_pylist() for column in events.columns)
    rows = list(zip(repeat(cluster_id), *columns, repeat(True), repeat(None), strict=False))
    if trusting:
        followed = _follow_lives(cluster_id, events, rows)
    else:
        followed = follow(cluster_id, _events(rows, range(len(rows))), trusting=False)
    times_ms = events["event_timestamp_ms"].to_pylist()
    replayed = records.num_rows - int(fresh.sum())
    return Chunk(records, first_offsets, next_offsets, replayed, unreadable, rows, times_ms, followed)


def _fresh(
    records: pa.Table, stored: Mapping[int, int]
) -> tuple[npt.NDArray[np.bool_], dict[int, int], dict[int, int]]:
    """The records that are neither stored nor there before; where they begin and end in each topic partition."""
    fresh = np.zeros(records.num_rows, np.bool_)
    first_offsets: dict[int, int] = {}
    next_offsets: dict[int, int] = {}
    partitions, offsets = (records[name].to_numpy() for name in ("metadata_partition", "metadata_offset"))
    for partition in np.unique(partitions).tolist():
        places = np.flatnonzero(partitions == partition)
        here = offsets[places]
        reached = np.maximum.accumulate(np.insert(here, 0, stored.get(partition, 0) - 1))[:-1]
        places = places[here > reached]
        if len(places):
            fresh[places] = True
            first_offsets[partition] = int(offsets[places[0]])
            next_offsets[partition] = int(offsets[places[-1]]) + 1
    return fresh, first_offsets, next_offsets


def _follow_lives(cluster_id: str, events: pa.Table, rows: list[Row]) -> Followed:
    """The result of `follow`, trusting, for all events."""
    lives = plain_lives(events)
    rest = follow(cluster_id, _events(rows, lives.others), trusting=True)
    segments = sorted(segment_rows(cluster_id, lives) + rest.segments)
    intervals = sorted(interval_rows(cluster_id, lives) + rest.intervals, key=_by_begin)
    added = partitions_added(lives)
    _add(added, rest.added)
    return Followed(segments, intervals, added, rest.illegal, rest.waiting)


def follow(cluster_id: str, events: Mapping[int, Event], *, trusting: bool) -> Followed:
    """Follow events, by their places in the log, as far as the ledger need not be asked; not at all unless trusting."""
    begun = Ledger()
    illegal: dict[int, str] = {}
    waiting: dict[int, Event] = {}
    before: set[SegmentKey] = set()
    for at, event in events.items():
        segment_id = event.segment_id
        if trusting and segment_id is not None:
            key = (event.topic_id, event.partition, segment_id)
            if key in begun.segments or (event.kind == KIND_SEGMENT and key not in before):
                reason = begun.apply(event)
                if reason is not None:
                    illegal[at] = reason
                continue
            before.add(key)
        waiting[at] = event
    return Followed(*ledger_rows(cluster_id, begun), begun.partitions, illegal, waiting)


def complete(followed: Followed, ledger: Ledger) -> dict[int, str]:
    """Has ``ledger``, as it is stored, follow the events that waited; of all events, why which may not follow."""
    illegal = followed.illegal.copy()
    for at, event in followed.waiting.items():
        reason = ledger.apply(event)
        if reason is not None:
            illegal[at] = reason
    _add(ledger.partitions, followed.added)
    return illegal


def with_reasons(rows: list[Row], illegal: Mapping[int, str]) -> list[Row]:
    """Rows of table ``segment_event``, with why some of these events may not follow."""
    result = rows.copy()
    for at, reason in illegal.items():
        result[at] = (*rows[at][:-2], False, reason)
    return result


def _events(rows: list[Row], places: Iterable[int]) -> dict[int, Event]:
    return {at: Event._make(rows[at][_EVENT]) for at in places}


def _rows(records: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in records.columns), strict=True))


def _add(partitions: dict[PartitionKey, PartitionTotals], added: Mapping[PartitionKey, PartitionTotals]) -> None:
    for key, row in added.items():
        partitions.setdefault(key, PartitionTotals(*key, row.topic)).add(row)


def ledger_rows(cluster_id: str, ledger: Ledger) -> tuple[list[Row], list[Row]]:
    """The rows of its segments and of the intervals that changed.

    Each in the order of its key, so that neighbours in it are stored one after the other.
    """
    prefix, changed, segments = (cluster_id,), ledger.changed_intervals, ledger.segments
    return (
        [prefix + _segment_values(segments[key]) for key in sorted(segments)],
        sorted((prefix + interval(segments[key]) for key in changed), key=_by_begin),
    )


def partition_rows(cluster_id: str, ledger: Ledger) -> list[Row]:
    """The rows of its partitions."""
    return [(cluster_id, *_partition_values(row)) for _, row in sorted(ledger.partitions.items())]
