"""The packed row of a remote segment: what ``segment_rows`` keeps of each and ``record_runs`` makes by thousands."""

from __future__ import annotations

from struct import Struct
from typing import Final

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
