"""`.timeindex`: timestamp → offset (`TimeIndex` of Kafka).

12-byte entries: int64 timestamp, int32 relative offset. An entry says: the largest timestamp of the segment so far, and
the last offset of the batch that had it. Timestamps ascend strictly. Lives in memory like the offset index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final

ENTRY_BYTES: Final = 12
NO_TIMESTAMP: Final = -1
_ENTRY: Final = Struct(">qi")


class TimeIndex:
    """Sparse, ascending (timestamp, offset) pairs of one segment."""

    __slots__ = ("_base", "_offsets", "_timestamps")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex:
        """From a file's bytes; ValueError when they cannot be an index.

        Zeroes after the last entry are preallocation.
        """
        if len(data) % ENTRY_BYTES:
            raise ValueError(f"the time index has {len(data)} bytes, which is no multiple of {ENTRY_BYTES}")
        index = cls(base_offset)
        entries = list(_ENTRY.iter_unpack(data))
        while entries and entries[-1] == (0, 0):
            entries.pop()
        previous = NO_TIMESTAMP
        previous_offset = 0
        for timestamp, offset in entries:
            if timestamp <= previous or offset < previous_offset:
                raise ValueError(f"the time index does not ascend at timestamp {timestamp}")
            previous, previous_offset = timestamp, offset
            index._timestamps.append(timestamp)
            index._offsets.append(offset)
        return index

    def encode(self) -> bytes:
        """Exactly the used entries."""
        pack = _ENTRY.pack
        return b"".join(pack(t, o) for t, o in zip(self._timestamps, self._offsets, strict=True))

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) when empty."""
        if not self._timestamps:
            return NO_TIMESTAMP, self._base
        return self._timestamps[-1], self._base + self._offsets[-1]

    def entries(self) -> list[tuple[int, int]]:
        """All (timestamp, offset) pairs."""
        return [(t, self._base + o) for t, o in zip(self._timestamps, self._offsets, strict=True)]

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry when its timestamp is larger than the last one's; else does nothing."""
        if timestamp > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self._base)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The greatest entry with a timestamp <= the one given, else (-1, base offset)."""
        at = bisect_right(self._timestamps, timestamp) - 1
        if at < 0:
            return NO_TIMESTAMP, self._base
        return self._timestamps[at], self._base + self._offsets[at]

    def truncate_to(self, offset: int) -> None:
        """Drops entries with an offset >= the one given."""
        at = bisect_left(self._offsets, offset - self._base)
        del self._timestamps[at:]
        del self._offsets[at:]
