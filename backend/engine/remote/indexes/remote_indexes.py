"""Look-ups in the index files of a remote segment, straight on their bytes.

A segment of 1 GiB has 5 MiB of indexes: decoding them for one look-up would hold the loop for 100 ms, a binary search
takes 10 us. Formats: `.index` (int32 relative offset, int32 position), `.timeindex` (int64 timestamp, int32 relative
offset), `.txnindex`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from struct import Struct
from typing import Final

from backend.engine.log.segments import offset_index, time_index
from backend.engine.log.segments.transaction_index import AbortedTxn, decode_txn_index

_OFFSET: Final = Struct(">ii")
_TIME: Final = Struct(">qi")


class CorruptIndex(ValueError):
    """Index files whose bytes cannot be right."""


@dataclass(frozen=True, slots=True)
class RemoteIndexes:
    """The three index files of a segment; an absent transaction index is empty."""

    base_offset: int
    offset_index: bytes
    time_index: bytes
    txn_index: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.offset_index) + len(self.time_index) + len(self.txn_index)

    def check(self) -> None:
        """Raises CorruptIndex for what Kafka's sanity checks refuse: a cut entry, or a last entry below the first."""
        if len(self.offset_index) % offset_index.ENTRY_BYTES:
            raise CorruptIndex(f"the offset index of segment {self.base_offset} has {len(self.offset_index)} bytes")
        if len(self.time_index) % time_index.ENTRY_BYTES:
            raise CorruptIndex(f"the time index of segment {self.base_offset} has {len(self.time_index)} bytes")
        entries = len(self.offset_index) // offset_index.ENTRY_BYTES
        if entries:
            (first, first_at), (last, last_at) = self._offset_entry(0), self._offset_entry(entries - 1)
            if first < 0 or last < first or last_at < first_at:
                raise CorruptIndex(f"the offset index of segment {self.base_offset} does not ascend")
        times = len(self.time_index) // time_index.ENTRY_BYTES
        if times and (self._time_entry(times - 1)[0] < self._time_entry(0)[0] or self._time_entry(times - 1)[1] < 0):
            raise CorruptIndex(f"the time index of segment {self.base_offset} does not ascend")
        try:
            decode_txn_index(self.txn_index)
        except ValueError as error:
            raise CorruptIndex(f"the transaction index of segment {self.base_offset}: {error}") from error

    def _offset_entry(self, at: int) -> tuple[int, int]:
        relative, position = _OFFSET.unpack_from(self.offset_index, at * offset_index.ENTRY_BYTES)
        return relative, position

    def _time_entry(self, at: int) -> tuple[int, int]:
        timestamp, relative = _TIME.unpack_from(self.time_index, at * time_index.ENTRY_BYTES)
        return timestamp, relative

    def entry_of(self, offset: int) -> tuple[int | None, int]:
        """The entry to begin at on the way to `offset`: an offset at or before it, None before the first entry, and
        the position of a batch that begins at or before that.
        """
        entries = range(len(self.offset_index) // offset_index.ENTRY_BYTES)
        at = bisect_right(entries, offset - self.base_offset, key=lambda i: self._offset_entry(i)[0]) - 1
        if at < 0:
            return None, 0
        relative, position = self._offset_entry(at)
        return self.base_offset + relative, position

    def large_batch_of(self, offset: int, *, bytes_min: int) -> tuple[int, int | None] | None:
        """Returns the start of the batch with `offset` and its end (None: not known), if each batch has an index entry.

        Batches of more than `index.interval.bytes` have one, but for a segment's first. None where entries are less
        than `bytes_min` apart, and past the last one.
        """
        count = len(self.offset_index) // offset_index.ENTRY_BYTES
        # An entry names the last offset of its batch.
        relative = offset - self.base_offset
        at = bisect_left(range(count), relative, key=lambda i: self._offset_entry(i)[0])
        if at == count:
            return None
        last, position = self._offset_entry(at)
        before = self._offset_entry(at - 1)[1] if at else 0
        if position - before < bytes_min:
            return None
        if at == 0 and 2 * relative < last:
            # The first batch and the one after it, most likely with as many records each.
            return 0, position
        return position, self._offset_entry(at + 1)[1] if at + 1 < count else None

    def offset_past(self, position: int) -> int | None:
        """Offset of the first entry at or past a byte position; None when there is none."""
        entries = range(len(self.offset_index) // offset_index.ENTRY_BYTES)
        at = bisect_left(entries, position, key=lambda i: self._offset_entry(i)[1])
        return self.base_offset + self._offset_entry(at)[0] if at < len(entries) else None

    def entry_for_timestamp(self, timestamp_ms: int, start_offset: int) -> tuple[int | None, int]:
        """As :meth:`entry_of`, to find the first record with a timestamp >= the one given, at or past `start_offset`,
        by scanning from there.
        """
        entries = range(len(self.time_index) // time_index.ENTRY_BYTES)
        # An entry with exactly this timestamp names the LAST record of its batch: start one before.
        at = bisect_left(entries, timestamp_ms, key=lambda i: self._time_entry(i)[0]) - 1
        offset = self.base_offset + self._time_entry(at)[1] if at >= 0 else self.base_offset
        return self.entry_of(max(offset, start_offset))

    def aborted(self) -> list[AbortedTxn]:
        """Entries of the transaction index in marker order."""
        return decode_txn_index(self.txn_index)
