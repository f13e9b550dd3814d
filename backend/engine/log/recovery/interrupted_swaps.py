"""Finishing, or undoing, the swap of a cleaned segment that a crash interrupted (first passes of `LogLoader` of Kafka).

Compaction writes `.cleaned` files, syncs them, renames them to `.swap`, gives the segments that they replace the suffix
`.deleted`, and takes `.swap` off; the `.log` goes first each time. So the files that exist show how far it came:

- some `.cleaned`: the old segments are whole and stay; whatever has that base is removed, `.swap` included;
- a `.log.swap`: it is complete; old segments in its range go, and it takes their place;
- other files with `.swap` only: the `.log` is in place already, they follow it.
"""

from __future__ import annotations

import logging
from typing import Final

from backend.engine.log.file_names import CLEANED_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, SWAP_SUFFIX, base_offset_of
from backend.engine.log.segments.log_segment import LogSegment
from backend.engine.ports.disk import Disk

_LOG_SWAP: Final = LOG_SUFFIX + SWAP_SUFFIX

_log = logging.getLogger(__name__)


def finish_swaps(disk: Disk, log_dir: str, names: list[str]) -> list[str]:
    """The names in the folder afterwards. Blocking; raises OSError and `CorruptLog`."""
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    if not swaps and not cleaned:
        return names
    first_cleaned = min((base_offset_of(name) or 0 for name in cleaned), default=None)
    if first_cleaned is not None:
        # Also of a split of Kafka's that did not get to its end: swaps behind it are its parts.
        undone = [name for name in swaps if (base_offset_of(name) or 0) >= first_cleaned]
        swaps = [name for name in swaps if name not in undone]
        # The swaps first: as long as a `.cleaned` is there, they do not count.
        for name in (*undone, *cleaned):
            disk.remove(f"{log_dir}/{name}")
    for name in (name for name in swaps if name.endswith(_LOG_SWAP)):
        _make_room(disk, log_dir, name)
    # The logs last: until then the rest of a segment is known to be still on its way.
    for name in sorted(swaps, key=lambda name: name.endswith(_LOG_SWAP)):
        disk.rename(f"{log_dir}/{name}", f"{log_dir}/{name.removesuffix(SWAP_SUFFIX)}")
    return disk.list_dir(log_dir)


def _make_room(disk: Disk, log_dir: str, swap: str) -> None:
    """Removes the segments that a complete swap replaces."""
    base = base_offset_of(swap) or 0
    segment = LogSegment.open_sealed(disk, log_dir, base, base, SWAP_SUFFIX)
    end = base
    try:
        for batch in segment.scan(0):
            end = batch.last_offset + 1
    finally:
        segment.files.close()
    _log.info("Finishing an interrupted compaction: %s/%s replaces offsets %d to %d", log_dir, swap, base, end)
    for name in disk.list_dir(log_dir):
        offset = base_offset_of(name)
        replaced = offset is not None and (offset == base or base <= offset < end)
        # A producer snapshot at the base says what was below, which has not changed.
        if replaced and not name.endswith((SWAP_SUFFIX, SNAPSHOT_SUFFIX)):
            disk.remove(f"{log_dir}/{name}")
