"""The packed row of a remote segment, and row numbers by segment id: a hash table in one array, at 6 to 12 bytes a
segment (a dict would take 100).

`segment_rows` keeps a row of each, and `record_runs` makes them by thousands.

Open addressing with linear probing by the first four bytes of the (random) segment id; a slot holds row + 1, 0 is
empty. The ids are in the packed rows, so every function takes those too. The number of slots is a power of two, and at
most two thirds of them are used.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

import numpy as np

from backend.tiering.segment_state import SegmentState

# segment id; start, end, max timestamp; size, first epoch; event timestamp, broker, state; flags
ROW: Final = Struct("<16sqqqiiqiBB")
ROW_BYTES: Final = ROW.size
assert ROW_BYTES == 62
# The first bytes of the (random) segment id, which is what tables of ids go by.
HASH_OF_ROW: Final = Struct("<I58x")

FREE: Final = 0xFF  # state of a row that holds no segment

# Flags
TXN_INDEX_EMPTY: Final = 1
MORE_EPOCHS: Final = 2  # the epochs are in the side table: several, or one that starts inside the segment
CUSTOM: Final = 4  # there is custom metadata in the side table

STATES: Final = tuple(SegmentState)
# Half the time of calling the named tuple, and look-ups do little else.
new_tuple: Final = tuple.__new__
unpack_row: Final = ROW.unpack_from

# The packed row for those who read or make many at once.
ROW_DTYPE: Final = np.dtype(
    [
        ("id", "V16"), ("start", "<i8"), ("end", "<i8"), ("max_ms", "<i8"), ("size", "<i4"), ("epoch", "<i4"),
        ("event_ms", "<i8"), ("broker", "<i4"), ("state", "u1"), ("flags", "u1"),
    ]
)  # fmt: skip
assert ROW_DTYPE.itemsize == ROW_BYTES
SLOTS_MIN: Final = 8
_UINT: Final = Struct("<I")


def empty_table() -> array[int]:
    """A table without a segment."""
    return array("I", bytes(4 * SLOTS_MIN))


def slots_for(count: int) -> int:
    """Slots that so many segments want."""
    return max(SLOTS_MIN, 1 << ((count * 3) // 2).bit_length())


def slot_of(table: array[int], rows: bytearray, segment_id: bytes) -> int:
    """Slot that holds the segment, or the empty one where it belongs."""
    mask = len(table) - 1
    (hash_,) = _UINT.unpack_from(segment_id)
    slot = int(hash_) & mask
    while held := table[slot]:
        at = (held - 1) * ROW_BYTES
        if rows[at : at + 16] == segment_id:
            break
        slot = (slot + 1) & mask
    return slot


def clear_slot(table: array[int], rows: bytearray, slot: int) -> None:
    """Empties a slot and moves up what linear probing had put behind it."""
    mask = len(table) - 1
    gap = probe = slot
    table[gap] = 0
    while held := table[probe := (probe + 1) & mask]:
        (hash_,) = _UINT.unpack_from(rows, (held - 1) * ROW_BYTES)
        if (probe - (int(hash_) & mask)) & mask >= (probe - gap) & mask:
            table[gap], table[probe] = held, 0
            gap = probe


def with_slots(table: array[int], rows: bytearray, slots: int) -> array[int]:
    """The same table with more slots. Linear probing in order of home slots, for all at once: each comes into its home
    or right behind the one before; what runs over the end goes to the first empty slots.
    """
    old = np.frombuffer(table, dtype=np.uint32)
    held = old[old != 0]
    hashes = np.frombuffer(rows, dtype=ROW_DTYPE)["id"][held.astype(np.int64) - 1]
    home = np.ascontiguousarray(hashes).view(np.dtype("<u4")).reshape(-1, 4)[:, 0].astype(np.int64) & (slots - 1)
    order = np.argsort(home, kind="stable")
    ranks = np.arange(len(order))
    placed = np.maximum.accumulate(home[order] - ranks) + ranks
    made = np.zeros(slots, dtype=np.uint32)
    inside = placed < slots
    made[placed[inside]] = held[order[inside]]
    over = held[order[~inside]]
    made[np.flatnonzero(made == 0)[: len(over)]] = over
    return array("I", made.tobytes())
