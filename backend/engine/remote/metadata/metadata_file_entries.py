"""Entries of a user partition's local file (``metadata_files``) from and to packed rows, many at once.

A segment of one leader epoch without custom metadata has an entry of one of two lengths, so a run of them is a table of
bytes: a restart then takes about a microsecond a segment. Any other entry is left to the codec, one by one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backend.engine.remote.metadata.segment_table import ROW_DTYPE, TXN_INDEX_EMPTY
from backend.protocol.remote_log.canonical_layout import (
    NO_TAGS,
    SNAPSHOT_FIELDS,
    TXN_INDEX_EMPTY_TAG,
    ends_with,
    is_canonical_segment,
    set_canonical,
    tail_field,
)
from backend.tiering.segment_state import SegmentState

SNAPSHOT_KIND: Final = 3
_LAST_STATE: Final = int(max(SegmentState))
# The next block to check grows with the run so far, so that short runs cost little.
_RUN_FIRST, _RUN_MAX = 8, 1 << 16
_COPIED: Final = ("id", "start", "end", "max_ms", "size", "epoch", "event_ms", "broker", "state")


# RemoteLogSegmentMetadataSnapshotRecord behind its length, kind and version.
_HEAD: Final = (("length", "u1"), ("kind", "u1"), ("version", "u1"))
# By whether there is no transaction index.
_TAILS: Final = {False: NO_TAGS, True: TXN_INDEX_EMPTY_TAG}
_ENTRIES: Final = {
    txn_empty: np.dtype([*_HEAD, *SNAPSHOT_FIELDS, tail_field(tail)]) for txn_empty, tail in _TAILS.items()
}
_BY_LENGTH: Final = {entry.itemsize - 1: txn_empty for txn_empty, entry in _ENTRIES.items()}


def canonical_entries(rows: bytes) -> bytes:
    """The entries of packed rows of one leader epoch each without custom metadata."""
    packed = np.frombuffer(rows, dtype=ROW_DTYPE)
    txn_empty = packed["flags"] & TXN_INDEX_EMPTY != 0
    bounds = [0, *(np.flatnonzero(np.diff(txn_empty)) + 1).tolist(), len(packed)]
    return b"".join(_entries(packed[low:high], is_empty=bool(txn_empty[low])) for low, high in pairwise(bounds))


def _entries(rows: NDArray[Any], *, is_empty: bool) -> bytes:
    kind = _ENTRIES[is_empty]
    made = np.zeros(len(rows), dtype=kind)
    made["length"], made["kind"] = kind.itemsize - 1, SNAPSHOT_KIND
    made["epoch_start"] = rows["start"]
    set_canonical(made)
    for name in _COPIED:
        made[name] = rows[name]
    made["tail"] = np.frombuffer(_TAILS[is_empty], np.uint8)
    return made.tobytes()


def canonical_rows(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Packed rows of the plain entries from `at` on, and where the first other entry begins."""
    rows: list[bytes] = []
    block = _RUN_FIRST
    while at < end:
        txn_empty = _BY_LENGTH.get(data[at])
        if txn_empty is None:
            break
        kind = _ENTRIES[txn_empty]
        entries = np.frombuffer(data, kind, min(block, (end - at) // kind.itemsize), at)
        is_canonical = _is_canonical(entries, txn_empty=txn_empty)
        count = len(entries) if is_canonical.all() else int(is_canonical.argmin())
        if not count:
            break
        rows.append(_rows(entries[:count], txn_empty=txn_empty))
        at += count * kind.itemsize
        block = min(2 * block, _RUN_MAX) if count == len(entries) else _RUN_FIRST
    return b"".join(rows), at


def _is_canonical(entries: NDArray[Any], *, txn_empty: bool) -> NDArray[np.bool_]:
    ok: NDArray[np.bool_] = entries["length"] == entries.itemsize - 1
    ok &= (entries["kind"] == SNAPSHOT_KIND) & (entries["version"] == 0)
    ok &= (entries["state"] >= 0) & (entries["state"] <= _LAST_STATE) & (entries["epoch_start"] == entries["start"])
    ok &= is_canonical_segment(entries) & ends_with(entries, _TAILS[txn_empty])
    return ok


def _rows(entries: NDArray[Any], *, txn_empty: bool) -> bytes:
    rows = np.empty(len(entries), dtype=ROW_DTYPE)
    for name in _COPIED:
        rows[name] = entries[name]
    rows["flags"] = TXN_INDEX_EMPTY if txn_empty else 0
    return rows.tobytes()
