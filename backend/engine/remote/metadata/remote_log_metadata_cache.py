"""The remote segments of one partition, as one broker knows them (KIP-405; `RemoteLogMetadataCache`,
`RemoteLogLeaderEpochState`).

Events go in through :meth:`apply`, which drops those that ``backend.tiering.segment_state`` does not allow.
For every leader epoch there is an ordered map from the epoch's first offset in a segment to that segment. Segments
may overlap after a change of leader; what then happens to the older one is the one place where Kafka's code and the
KIP differ:

``kip``    every finished segment stays readable as long as it is the only one that holds an offset, and stays in the
listings; ``kafka``  exactly as Kafka 4.3: a segment that replaces another one in the map may make the rest of it
unreadable.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from heapq import merge
from itertools import accumulate, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from backend.engine.remote.metadata.segment_summary import SegmentSummary
from backend.engine.remote.metadata.segment_table import ROW_BYTES, STATES, TXN_INDEX_EMPTY, new_tuple, unpack_row
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState, is_legal

if TYPE_CHECKING:
    from backend.engine.remote.metadata.record_runs import Run
    from backend.engine.remote.metadata.segment_rows import SegmentRows

STARTED: Final = SegmentState.COPY_SEGMENT_STARTED
FINISHED: Final = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED: Final = SegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED: Final = SegmentState.DELETE_SEGMENT_FINISHED

_LEGAL: Final = {(old, new): is_legal(old, new) for old in (None, *SegmentState) for new in SegmentState}

_start_offset: Final = attrgetter("start_offset")
# One start of so many is kept in a second array too: a search of 2,600 then touches 4 cache lines, not 12.
STRIDE: Final = 32


class Overlap(Enum):
    """Setting ``remote.log.metadata.overlap``."""

    KIP = "kip"
    KAFKA = "kafka"


class ApplyOutcome(Enum):
    """The result of applying an event."""

    APPLIED = "applied"
    ILLEGAL = "illegal"
    """The segment's state does not allow it: dropped."""
    UNKNOWN_SEGMENT = "unknown segment"
    """An update of a segment that is not known: dropped."""


class EpochMap:
    """Segments of one leader epoch: first offset → row, ascending, and rows that the map does not show."""

    __slots__ = ("highest", "latest", "nested", "rows", "sparse", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts = array("q")
        self.rows = array("I")
        self.unreferenced: set[int] = set()
        # Highest offset ever finished; only grows, also when the segment is deleted.
        self.highest: int | None = None
        # Whether a segment was added that ends before an earlier one: then a look-up by floor of the start offset may
        # miss.
        self.nested = False
        # The largest timestamp of each segment and those before it, made at the first search by time.
        self.latest: array[int] | None = None
        # Every STRIDE-th start, made at the first look-up of an offset.
        self.sparse: array[int] | None = None

    def copy(self) -> EpochMap:
        made = EpochMap()
        made.starts, made.rows, made.unreferenced = self.starts[:], self.rows[:], set(self.unreferenced)
        made.highest, made.nested = self.highest, self.nested
        return made

    def finish(self, start: int, end: int, row: int, overlap: Overlap) -> None:
        """Kafka's rule for a finished segment that holds [start, end] of this epoch."""
        self.latest = self.sparse = None
        superset = self.highest is None or self.highest <= end
        while superset and self.starts and self.starts[-1] >= start:
            self.starts.pop()
            self.unreferenced.add(self.rows.pop())
        if not self.starts or self.starts[-1] < start:
            self.starts.append(start)
            self.rows.append(row)
            self.nested = self.nested or not superset
        else:
            self._insert(start, row, overlap)
        self.unreferenced.discard(row)
        self.highest = end if self.highest is None else max(self.highest, end)

    def _insert(self, start: int, row: int, overlap: Overlap) -> None:
        """Puts a segment among later ones; one with the same start gives way."""
        at = bisect_left(self.starts, start)
        if self.starts[at] != start:
            self.starts.insert(at, start)
            self.rows.insert(at, row)
        elif self.rows[at] != row:
            if overlap is Overlap.KIP:
                self.unreferenced.add(self.rows[at])
            self.rows[at] = row
        self.nested = True

    def extend(self, starts: array[int], rows: Iterable[int], highest: int) -> None:
        """Does the same as :meth:`finish` for segments that each begin behind the one before and end no earlier."""
        self.latest = self.sparse = None
        self.starts.extend(starts)
        self.rows.extend(rows)
        self.highest = highest

    def hide(self, start: int, row: int) -> None:
        """Takes a segment out of the map when its deletion starts; it stays in the listing."""
        self.latest = self.sparse = None
        at = bisect_left(self.starts, start)
        if at < len(self.starts) and self.starts[at] == start and self.rows[at] == row:
            del self.starts[at]
            del self.rows[at]
        self.unreferenced.add(row)


def _rows_kind() -> type[SegmentRows]:
    # Only with the first cache: numpy takes 0.1 s to import, and a start without tiered topics needs none of it.
    from backend.engine.remote.metadata.segment_rows import SegmentRows

    return SegmentRows


class RemoteLogMetadataCache:
    """Remote segments of one partition."""

    __slots__ = ("_epochs", "_overlap", "_rows", "_summary", "topic_id_partition")

    def __init__(self, topic_id_partition: TopicIdPartition, overlap: Overlap = Overlap.KIP) -> None:
        self.topic_id_partition = topic_id_partition
        self._overlap = overlap
        self._rows = _rows_kind()(topic_id_partition)
        self._epochs: dict[int, EpochMap] = {}
        # None from a change on until the next call.
        self._summary: SegmentSummary | None = None

    @classmethod
    def restore(
        cls,
        topic_id_partition: TopicIdPartition,
        overlap: Overlap,
        segments: Iterable[bytes | SegmentMetadata],
        epochs: dict[int, EpochMap],
    ) -> RemoteLogMetadataCache:
        """A cache as it was: the epoch maps name the segments by their place in the order given. Some segments may come
        as packed rows (`SegmentRows.parts`).
        """
        made = cls(topic_id_partition, overlap)
        made._rows = _rows_kind().restore(topic_id_partition, segments)
        made._epochs = epochs
        return made

    def empty(self) -> RemoteLogMetadataCache:
        """One of the same partition that knows nothing."""
        return RemoteLogMetadataCache(self.topic_id_partition, self._overlap)

    def copy(self) -> RemoteLogMetadataCache:
        """The cache as of now, for a thread that writes it down while this one goes on."""
        made = self.empty()
        made._rows = self._rows.copy()
        made._epochs = {epoch: epoch_map.copy() for epoch, epoch_map in self._epochs.items()}
        return made

    def numbered(self) -> tuple[list[bytes | SegmentMetadata], dict[int, EpochMap]]:
        """Returns the arguments of :meth:`restore`. The maps are this cache's unless rows had to be renumbered."""
        segments = list(self._rows.parts())
        if self._rows.is_dense:
            return segments, self._epochs
        rows = list(self._rows)
        number = {row: at for at, row in enumerate(rows)}
        epochs = {}
        for epoch, epoch_map in self._epochs.items():
            made = epochs[epoch] = epoch_map.copy()
            made.rows = array("I", (number[row] for row in epoch_map.rows))
            made.unreferenced = {number[row] for row in epoch_map.unreferenced}
        return segments, epochs

    def apply(self, event: SegmentMetadata | SegmentUpdate) -> ApplyOutcome:
        """Takes one event of the metadata topic."""
        rows = self._rows
        self._summary = None
        if isinstance(event, SegmentMetadata):
            if event.state is not STARTED:
                return ApplyOutcome.ILLEGAL
            row, is_new = rows.find_or_add(event)
            if not is_new and not _LEGAL[rows.state(row), STARTED]:
                return ApplyOutcome.ILLEGAL
            for epoch, _, _ in rows.spans(row):
                self._map(epoch).unreferenced.add(row)
            return ApplyOutcome.APPLIED
        current = rows.find(event.segment_id)
        if current is None:
            return ApplyOutcome.UNKNOWN_SEGMENT
        row = current
        if event.state is STARTED or not _LEGAL[rows.state(row), event.state]:
            return ApplyOutcome.ILLEGAL
        rows.update(row, event)
        if event.state is FINISHED:
            self._finish(row)
        elif event.state is DELETE_STARTED:
            self._hide(row)
        else:
            self._forget(row)
        return ApplyOutcome.APPLIED

    def apply_run(self, run: Run) -> int:
        """Takes the events of a run's first segments as :meth:`apply` would one by one; how many segments that were.

        Fewer than all when one is known already; none when they do not lie behind all others of their leader epoch.
        """
        epoch_map = self._epochs.get(run.epoch)
        if epoch_map is not None:
            overlaps = epoch_map.highest is not None and epoch_map.highest > run.lowest_end
            if overlaps or (epoch_map.starts and epoch_map.starts[-1] >= run.starts[0]):
                return 0
        self._summary = None
        added = self._rows.add_canonical(run.rows)
        if added:
            highest = run.highest if len(added) == len(run.starts) else self._rows.offsets(added[-1])[1]
            self._map(run.epoch).extend(run.starts[: len(added)], added, highest)
        return len(added)

    def _map(self, epoch: int) -> EpochMap:
        epoch_map = self._epochs.get(epoch)
        if epoch_map is None:
            epoch_map = self._epochs[epoch] = EpochMap()
        return epoch_map

    def _finish(self, row: int) -> None:
        for epoch, start, end in self._rows.spans(row):
            self._map(epoch).finish(start, end, row, self._overlap)

    def _hide(self, row: int) -> None:
        for epoch, start in self._rows.epochs(row):
            self._map(epoch).hide(start, row)

    def _forget(self, row: int) -> None:
        for epoch, _ in self._rows.epochs(row):
            self._map(epoch).unreferenced.discard(row)
        self._rows.remove(row)

    def lookup(self, epoch: int, offset: int) -> SegmentMetadata | None:
        """The finished segment that holds `offset` as a record of leader epoch `epoch`."""
        epoch_map = self._epochs.get(epoch)
        if epoch_map is None:
            return None
        starts, sparse = epoch_map.starts, epoch_map.sparse
        if sparse is None:
            sparse = epoch_map.sparse = starts[::STRIDE]
        high = bisect_right(sparse, offset) * STRIDE
        if high:
            count = len(starts)
            row = epoch_map.rows[bisect_right(starts, offset, high - STRIDE, high if high < count else count) - 1]
            rows = self._rows
            # `SegmentRows.get_if_holds` for most segments: its call would be a tenth of the time.
            (segment_id, start, end, max_ms, size, _, event_ms, broker, state, flags) = unpack_row(
                rows.packed, row * ROW_BYTES
            )
            if flags > TXN_INDEX_EMPTY:
                segment = rows.get_if_holds(row, epoch, offset)
                if segment is not None:
                    return segment
            elif offset <= end:
                return new_tuple(
                    SegmentMetadata,
                    (
                        self.topic_id_partition, segment_id, start, end, broker, max_ms, event_ms, ((epoch, start),),
                        size, None, STATES[state], flags == TXN_INDEX_EMPTY,
                    ),
                )  # fmt: skip
        if self._overlap is Overlap.KAFKA or not (epoch_map.nested or epoch_map.unreferenced):
            return None
        return self._lookup_hidden(epoch_map, epoch, offset)

    def _lookup_hidden(self, epoch_map: EpochMap, epoch: int, offset: int) -> SegmentMetadata | None:
        """Any other finished segment that holds the offset: the one that reaches farthest, the latest of equals."""
        rows = self._rows
        best: tuple[int, int, int] | None = None
        for row in (*epoch_map.unreferenced, *(epoch_map.rows if epoch_map.nested else ())):
            if rows.state(row) is not FINISHED:
                continue
            start = rows.epoch_start(row, epoch)
            end = rows.epoch_end(row, epoch)
            if start <= offset <= end:
                candidate = (end, rows.event_timestamp_ms(row), row)
                best = candidate if best is None else max(best, candidate)
        return None if best is None else rows.get(best[2])

    def highest_offset(self, epoch: int) -> int | None:
        """Highest offset ever finished for a leader epoch, also when its segment has been deleted since."""
        epoch_map = self._epochs.get(epoch)
        return None if epoch_map is None else epoch_map.highest

    def segments(self) -> Iterator[SegmentMetadata]:
        """Every segment that is not deleted, in no order."""
        return (self._rows.get(row) for row in self._rows)

    def segments_of(self, epoch: int) -> list[SegmentMetadata]:
        """Segments with records of a leader epoch by ascending start offset, unreferenced ones (being copied, being
        deleted, superseded) included; of equal starts the referenced one comes first.
        """
        epoch_map = self._epochs.get(epoch)
        if epoch_map is None:
            return []
        listed = [self._rows.get(row) for row in epoch_map.rows]
        if epoch_map.unreferenced:
            listed.extend(self._rows.get(row) for row in sorted(epoch_map.unreferenced))
            listed.sort(key=_start_offset)
        return listed

    def oldest_of(self, epoch: int) -> Iterator[SegmentMetadata]:
        """The same as `segments_of`, made one by one for who needs the first few. Nothing may change meanwhile."""
        epoch_map = self._epochs.get(epoch)
        if epoch_map is None:
            return iter(())
        shown = (self._rows.get(row) for row in epoch_map.rows)
        if not epoch_map.unreferenced:
            return shown
        hidden = [self._rows.get(row) for row in sorted(epoch_map.unreferenced)]
        hidden.sort(key=_start_offset)
        return merge(shown, hidden, key=_start_offset)

    def summary(self) -> SegmentSummary:
        """The sums and extremes over all segments for retention; computed only after a change."""
        if self._summary is None:
            self._summary = self._rows.summary()
        return self._summary

    def epochs(self) -> list[int]:
        """Leader epochs that any segment ever had here, ascending."""
        return sorted(self._epochs)

    def next_with_txn_index(self, epoch: int, offset: int) -> SegmentMetadata | None:
        """From the segment that holds (epoch, offset) on, the first one of the epoch that has a transaction index."""
        if self._overlap is Overlap.KAFKA:
            held = self.lookup(epoch, offset)
            while held is not None and held.txn_index_empty:
                # A gap, or the end of the epoch, ends the search, as in `RemoteLogMetadataCache`.
                held = self.lookup(epoch, held.end_offset + 1)
            return held
        epoch_map = self._epochs.get(epoch)
        if epoch_map is None:
            return None
        rows = self._rows
        first = max(bisect_right(epoch_map.starts, offset) - 1, 0)
        nearest = next((row for row in epoch_map.rows[first:] if not rows.txn_index_empty(row)), None)
        # A hidden segment, or one around a shorter one, may be read too: its aborted transactions count.
        others = (*epoch_map.unreferenced, *(epoch_map.rows[:first] if epoch_map.nested else ()))
        hidden = [row for row in others if self._has_aborted_from(row, epoch, offset)]
        ahead = hidden if nearest is None else [*hidden, nearest]
        nearest = min(ahead, key=lambda row: rows.epoch_start(row, epoch), default=None)
        return None if nearest is None else rows.get(nearest)

    def _has_aborted_from(self, row: int, epoch: int, offset: int) -> bool:
        """Whether a finished segment with a transaction index reaches `offset` in this epoch."""
        rows = self._rows
        finished = rows.state(row) is FINISHED and not rows.txn_index_empty(row)
        return finished and rows.epoch_end(row, epoch) >= offset

    def next_for_timestamp(
        self, epoch: int, timestamp_ms: int, offset: int, accept: Callable[[SegmentMetadata], bool]
    ) -> SegmentMetadata | None:
        """The first finished segment of the epoch that ends at or past `offset`, has a record at or past the time and
        is accepted.

        After the first look-up O(log n) while timestamps ascend with offsets, as they nearly always do.
        """
        epoch_map = self._epochs.get(epoch)
        if epoch_map is None:
            return None
        rows = self._rows
        if epoch_map.latest is None:
            times = (rows.max_timestamp_ms(row) for row in epoch_map.rows)
            epoch_map.latest = array("q", accumulate(times, max))
        first = 0 if epoch_map.nested else max(bisect_right(epoch_map.starts, offset) - 1, 0)
        first = max(first, bisect_left(epoch_map.latest, timestamp_ms))
        listed = islice(epoch_map.rows, first, None)
        hidden = (row for row in epoch_map.unreferenced if rows.state(row) is FINISHED)

        def chosen(candidates: Iterable[int]) -> Iterator[SegmentMetadata]:
            for row in candidates:
                if rows.max_timestamp_ms(row) >= timestamp_ms and rows.offsets(row)[1] >= offset:
                    segment = rows.get(row)
                    if accept(segment):
                        yield segment

        earliest = [*islice(chosen(listed), 1), *chosen(hidden)]
        return min(earliest, key=lambda segment: segment.start_offset, default=None)

    @property
    def count(self) -> int:
        """Segments known, whatever their state."""
        return len(self._rows)

    def size_bytes(self, epoch: int) -> int:
        """Sum over the listing of a leader epoch."""
        epoch_map = self._epochs.get(epoch)
        if epoch_map is None:
            return 0
        return sum(self._rows.size_bytes(row) for row in (*epoch_map.rows, *epoch_map.unreferenced))

    def finished_bytes(self) -> int:
        """Log bytes of all finished segments, each counted once."""
        return sum(self._rows.size_bytes(row) for row in self._rows if self._rows.state(row) is FINISHED)
