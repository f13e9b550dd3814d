"""Fetched records of ``__remote_log_metadata`` sorted into what can be applied at once and what cannot.

Nearly all of that topic are pairs: the start of a segment's copy and its end, segment after segment of one partition.
The caches of a broker are apart, so only the order within a partition counts: records are sorted by partition, and a
run of such pairs becomes packed rows that a cache takes whole. Everything else stays a record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from backend.engine.remote.metadata.metadata_record import MetadataRecord
from backend.engine.remote.metadata.segment_table import ROW_DTYPE, TXN_INDEX_EMPTY
from backend.protocol.numpy_columns import FlagColumn, IntColumn
from backend.protocol.remote_log.column_batch import ColumnBatch, RecordPositions, columns, framed, partition_codes
from backend.protocol.remote_log.metadata_serde import partition_of
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState

_RECORDS_PER_PAIR: Final = 2


class LazyRecords(Sequence[MetadataRecord]):
    """Records of a fetch; each is made when it is read."""

    def __init__(self, positions: RecordPositions) -> None:
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions.offsets)

    @overload
    def __getitem__(self, index: int) -> MetadataRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[MetadataRecord]: ...
    def __getitem__(self, index: int | slice) -> MetadataRecord | list[MetadataRecord]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        positions = self._positions
        at, size = int(positions.values_at[index]), int(positions.sizes[index])
        return MetadataRecord(
            int(positions.offsets[index]), int(positions.timestamps_ms[index]), positions.data[at : at + size]
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Segments of one partition that were copied one after the other: each a start and an end, of one leader epoch,
    by ascending first and last offsets. `offsets` has the place of both records of each in the metadata topic.
    """

    epoch: int
    rows: bytes  # as `segment_rows` packs them, in the state COPY_SEGMENT_FINISHED
    starts: array[int]
    highest: int  # last offset of the last segment
    lowest_end: int  # last offset of the first segment
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive records of one partition; `run` has them as packed rows, None where they make no run."""

    partition: TopicIdPartition
    indices: Sequence[int]
    run: Run | None


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """Records of a fetch in an order that leaves every cache as their own order would."""

    spans: tuple[Span, ...]


def read_canonical(data: bytes, position: int) -> tuple[int, LazyRecords, ApplyPlan | None] | None:
    """Returns next offset, records and plan of a fetch at `position`.

    None when its shape is not canonical, no plan when only its values are not.
    """
    positions = framed(data, position)
    if positions is None:
        return None
    batch = columns(positions) if len(positions.offsets) else None
    return positions.next_offset, LazyRecords(positions), None if batch is None else _plan(positions, batch)


def _plan(positions: RecordPositions, batch: ColumnBatch) -> ApplyPlan | None:
    keys, codes = partition_codes(batch.keys)
    try:
        partitions = [partition for key in keys if (partition := partition_of(key)) is not None]
    except UnicodeDecodeError:
        return None
    if len(partitions) < len(keys):
        return None
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    paired = _pairs(batch, order, codes)
    return ApplyPlan(tuple(_spans(positions, batch, order, codes, paired, partitions)))


def _pairs(batch: ColumnBatch, order: IntColumn, codes: IntColumn) -> FlagColumn:
    """Whether the record at each place begins a pair."""
    ids = batch.ids[order]
    paired = np.zeros(len(order), dtype=np.bool_)
    paired[:-1] = batch.is_started[order[:-1]] & batch.is_finished[order[1:]] & (codes[:-1] == codes[1:])
    paired[:-1] &= (ids[:-1] == ids[1:]).all(axis=1)
    return paired


def _spans(
    positions: RecordPositions,
    batch: ColumnBatch,
    order: IntColumn,
    codes: IntColumn,
    paired: FlagColumn,
    partitions: Sequence[TopicIdPartition],
) -> Iterator[Span]:
    firsts = np.flatnonzero(paired)
    at_first = order[firsts]
    rows = _rows(batch, at_first, order[firsts + 1])
    epochs, starts, ends = rows["epoch"], rows["start"], rows["end"]
    # A run goes on with the next pair if nothing lies between and it continues the same leader epoch.
    continues = np.diff(firsts) == _RECORDS_PER_PAIR
    continues &= (codes[firsts][1:] == codes[firsts][:-1]) & (epochs[1:] == epochs[:-1])
    continues &= (starts[1:] > starts[:-1]) & (ends[1:] >= ends[:-1])
    bounds = [0, *(np.flatnonzero(~continues) + 1).tolist(), len(firsts)] if len(firsts) else [0]
    at = 0
    for low, high in pairwise(bounds):
        begin = int(firsts[low])
        yield from _single(order, codes, at, begin, partitions)
        at = begin + (high - low) * _RECORDS_PER_PAIR
        indices = order[begin:at]
        run = Run(
            int(epochs[low]),
            rows[low:high].tobytes(),
            array("q", starts[low:high].astype(np.int64).tobytes()),
            int(ends[high - 1]),
            int(ends[low]),
            positions.offsets[indices].tolist(),
        )
        yield Span(partitions[int(codes[begin])], indices.tolist(), run)
    yield from _single(order, codes, at, len(order), partitions)


def _single(
    order: IntColumn, codes: IntColumn, low: int, high: int, partitions: Sequence[TopicIdPartition]
) -> Iterator[Span]:
    """Records between runs, by partition."""
    if low == high:
        return
    bounds = [low, *(np.flatnonzero(np.diff(codes[low:high])) + low + 1).tolist(), high]
    for begin, end in pairwise(bounds):
        yield Span(partitions[int(codes[begin])], order[begin:end].tolist(), None)


def _rows(batch: ColumnBatch, started: IntColumn, finished: IntColumn) -> NDArray[Any]:
    """Packed rows of segments from the two records of each."""
    segments, updates = batch.segments[started], batch.updates[finished]
    rows = np.empty(len(started), dtype=ROW_DTYPE)
    for name in ("id", "start", "end", "max_ms", "size", "epoch"):
        rows[name] = segments[name]
    rows["event_ms"], rows["broker"] = updates["event_ms"], updates["broker"]
    rows["state"] = SegmentState.COPY_SEGMENT_FINISHED
    rows["flags"] = batch.txn_index_empty[started] * TXN_INDEX_EMPTY
    return rows
