"""`.index`: offset → byte position of the batch that ends with it (`OffsetIndex` of Kafka).

8-byte entries: int32 offset relative to the segment's base, int32 position. The offset is the LAST of the indexed
batch, the position its START. The active segment's index lives in memory and is written when the segment is rolled or
closed: after an unclean stop every segment at or past the recovery point is scanned anyway, and its indexes are
rebuilt.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

ENTRY_BYTES: Final = 8


class OffsetIndex:
    """Sparse, ascending (offset, position) pairs of one segment."""

    __slots__ = ("_base", "_offsets", "_positions")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> OffsetIndex:
        """From a file's bytes; ValueError when they cannot be an index.

        Zeroes after the last entry are preallocation.
        """
        if len(data) % ENTRY_BYTES:
            raise ValueError(f"the offset index has {len(data)} bytes, which is no multiple of {ENTRY_BYTES}")
        int32s = array("i")
        int32s.frombytes(data)
        if sys.byteorder == "little":
            int32s.byteswap()
        offsets, positions = int32s[0::2], int32s[1::2]
        while offsets and offsets[-1] == 0 and positions[-1] == 0:
            offsets.pop()
            positions.pop()
        previous_offset, previous_position = -1, -1
        for offset, position in zip(offsets, positions, strict=True):
            if offset <= previous_offset or position <= previous_position:
                raise ValueError(f"the offset index does not ascend at relative offset {offset}")
            previous_offset, previous_position = offset, position
        index = cls(base_offset)
        index._offsets, index._positions = offsets, positions
        return index

    def encode(self) -> bytes:
        """Exactly the used entries, as a rolled segment's file holds them."""
        int32s = array("i", bytes(ENTRY_BYTES * len(self._offsets)))
        int32s[0::2], int32s[1::2] = self._offsets, self._positions
        if sys.byteorder == "little":
            int32s.byteswap()
        return int32s.tobytes()

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry, (base offset, 0) when empty."""
        if not self._offsets:
            return self._base, 0
        return self._base + self._offsets[-1], self._positions[-1]

    def entries(self) -> list[tuple[int, int]]:
        """All (offset, position) pairs."""
        return [(self._base + o, p) for o, p in zip(self._offsets, self._positions, strict=True)]

    def append(self, offset: int, position: int) -> None:
        """Adds an entry past the last one."""
        self._offsets.append(offset - self._base)
        self._positions.append(position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The greatest entry with an offset <= the one given, else (base offset, 0)."""
        at = bisect_right(self._offsets, offset - self._base) - 1
        if at < 0:
            return self._base, 0
        return self._base + self._offsets[at], self._positions[at]

    def upper_bound(self, position: int) -> int | None:
        """The offset of the first entry at or past a byte position; None when there is none."""
        at = bisect_left(self._positions, position)
        return self._base + self._offsets[at] if at < len(self._positions) else None

    def truncate_to(self, offset: int) -> None:
        """Drops entries with an offset >= the one given."""
        at = bisect_left(self._offsets, offset - self._base)
        del self._offsets[at:]
        del self._positions[at:]
