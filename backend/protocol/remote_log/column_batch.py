"""Many records of `__remote_log_metadata` at once, in columns: what a broker replays millions of at its start.

Only the canonical form is read here (uncompressed batches, no key, no header, one leader epoch, no custom metadata), by
arithmetic over whole arrays. :func:`framed` and :func:`columns` answer None, and a column says "not canonical", for all
else, which ``record_batch`` and ``metadata_serde`` then read one by one; where both read, both must give the same.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backend.protocol.numpy_columns import FlagColumn, IntColumn
from backend.protocol.record_batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC
from backend.protocol.remote_log.canonical_layout import (
    NO_TAGS,
    SEGMENT_FIELDS,
    TXN_INDEX_EMPTY_TAG,
    UPDATE_FIELDS,
    ends_with,
    is_canonical_segment,
    tail_field,
)

_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"), ("length", ">i4"), ("epoch", ">i4"), ("magic", "i1"), ("crc", ">u4"),
        ("attributes", ">i2"), ("last_delta", ">i4"), ("base_ms", ">i8"), ("max_ms", ">i8"),
        ("producer", ">i8"), ("producer_epoch", ">i2"), ("sequence", ">i4"), ("count", ">i4"),
    ]
)  # fmt: skip
assert _HEADER.itemsize == HEADER_BYTES
_LOG_APPEND_TIME: Final = 0x08
# Compression, control batches and delete horizons are not canonical.
_OTHER_ATTRIBUTES: Final = 0x07 | 0x20 | 0x40

# A value: frame version, kind, version, length of the name + 1, name, then:
_ID_AND_PARTITION: Final = 21  # topic id, partition, tag count
_NAME_AT: Final = 4
_NAME_SIZE_MAX: Final = 127  # of its length + 1 in one byte
_SEGMENT: Final = np.dtype([*SEGMENT_FIELDS, tail_field(TXN_INDEX_EMPTY_TAG)])
_UPDATE: Final = np.dtype([*UPDATE_FIELDS, tail_field(NO_TAGS)])
_SEGMENT_KIND: Final = 0
_UPDATE_KIND: Final = 1
_DELETE_KIND: Final = 2
_STARTED: Final = 0
_FINISHED: Final = 1
# Bytes that may be read beyond the last byte of an array.
_MARGIN: Final = 256


@dataclass(frozen=True, slots=True)
class RecordPositions:
    """Records of whole batches: where each value stands in `data`, by ascending offset."""

    data: bytes
    next_offset: int
    offsets: IntColumn
    timestamps_ms: IntColumn
    values_at: IntColumn
    sizes: IntColumn


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Values of the metadata topic in columns, one row a record.

    `keys` is the partition: its name's bytes, topic id, partition and an empty tag count, as `partition_of` reads it.
    `is_started` marks the start of a copy of one leader epoch from the segment's first offset on, `is_finished` its
    plain end; every other record is for `remote_log_metadata.decode`. `segments` and `updates` have a row for every
    record and mean something only where these say so.
    """

    keys: list[bytes]
    is_started: FlagColumn
    is_finished: FlagColumn
    ids: NDArray[np.uint64]  # a segment id in two numbers
    segments: NDArray[Any]
    updates: NDArray[Any]
    txn_index_empty: FlagColumn


def framed(data: bytes, position: int) -> RecordPositions | None:
    """The records from offset `position` on in whole batches of `data`; None when a batch is not canonical."""
    starts = _batches(data)
    if not starts:
        return None
    padded = _padded(data)
    begins = np.array(starts, dtype=np.int64)
    headers = _rows(padded, begins, _HEADER)
    attributes, counts = headers["attributes"].astype(np.int64), headers["count"].astype(np.int64)
    if (headers["magic"] != MAGIC).any() or (attributes & _OTHER_ATTRIBUTES).any() or (counts < 1).any():
        return None
    sizes = headers["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
    one_each = bool((counts == 1).all())
    record_starts = begins + HEADER_BYTES if one_each else _records(data, starts, sizes.tolist(), counts.tolist())
    if record_starts is None:
        return None
    at, batch = record_starts, np.repeat(np.arange(len(starts)), counts)
    # length, attributes, timestamp delta, offset delta, null key, length of the value, value, no headers
    size, at, ok = _varints(padded, at)
    end = at + size
    delta_ms, at, is_short = _varints(padded, at + 1)
    ok &= is_short
    delta, at, is_short = _varints(padded, at)
    ok &= is_short & (padded[at] == 1)
    value_size, at, is_short = _varints(padded, at + 1)
    ok &= is_short & (value_size >= 0) & (at + value_size + 1 == end)
    if one_each:
        ok &= end == begins + sizes
    if not ok.all() or (padded[end - 1] != 0).any():
        return None
    base_offsets = headers["base_offset"].astype(np.int64)
    next_offset = int((base_offsets + headers["last_delta"] + 1).max())
    offsets = base_offsets[batch] + delta
    append_time = (attributes & _LOG_APPEND_TIME != 0)[batch]
    timestamps = np.where(append_time, headers["max_ms"][batch], headers["base_ms"][batch] + delta_ms).astype(np.int64)
    kept = slice(int(np.searchsorted(offsets, position)), None)
    if (np.diff(offsets) <= 0).any():
        return None
    return RecordPositions(
        data, max(position, next_offset), offsets[kept], timestamps[kept], at[kept], value_size[kept]
    )


def columns(records: RecordPositions) -> ColumnBatch | None:
    """The records as columns; None when one of them does not even name its partition in the canonical form."""
    padded, at, sizes = _padded(records.data), records.values_at, records.sizes
    name_size = padded[at + 3].astype(np.int64)
    body = at + 3 + name_size + _ID_AND_PARTITION
    left = at + sizes - body
    kind = padded[at + 1]
    canonical = (padded[at] == 1) & (padded[at + 2] == 0) & (kind <= _DELETE_KIND)
    canonical &= (name_size > 0) & (name_size <= _NAME_SIZE_MAX) & (left >= 0)
    if not canonical.all() or (padded[body - 1] != 0).any():
        return None
    data = records.data
    keys = [data[start:end] for start, end in zip((at + _NAME_AT).tolist(), body.tolist(), strict=True)]
    segments, updates = _rows(padded, body, _SEGMENT), _rows(padded, body, _UPDATE)
    is_started, txn_empty = _started(segments, left, kind == _SEGMENT_KIND)
    ids = _rows(padded, body, np.dtype("V16")).view(np.uint64).reshape(-1, 2)
    return ColumnBatch(
        keys, is_started, _finished(updates, left, kind == _UPDATE_KIND), ids, segments, updates, txn_empty
    )  # fmt: skip


def _started(rows: NDArray[Any], left: IntColumn, ok: FlagColumn) -> tuple[FlagColumn, FlagColumn]:
    """Masks of the rows that begin a copy in the canonical form, and of those with an empty transaction index."""
    fixed = _SEGMENT.itemsize - len(TXN_INDEX_EMPTY_TAG)
    is_plain = (left == fixed + len(NO_TAGS)) & ends_with(rows, NO_TAGS)
    txn_empty = (left == _SEGMENT.itemsize) & ends_with(rows, TXN_INDEX_EMPTY_TAG)
    ok = ok & (is_plain | txn_empty) & (rows["state"] == _STARTED) & (rows["tags"] == 0)
    ok &= is_canonical_segment(rows) & (rows["epoch_start"] == rows["start"])
    return ok, txn_empty


def _finished(rows: NDArray[Any], left: IntColumn, ok: FlagColumn) -> FlagColumn:
    ok = ok & (left == _UPDATE.itemsize) & (rows["state"] == _FINISHED)
    ok &= ((rows["tags"] | rows["custom"]) == 0) & ends_with(rows, NO_TAGS)
    return ok


def _batches(data: bytes) -> list[int] | None:
    """The starts of whole batches."""
    starts, at, end, read = [], 0, len(data), _LENGTH.unpack_from
    while end - at >= HEADER_BYTES:
        size = read(data, at + _LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            return None
        if size > end - at:
            break
        starts.append(at)
        at += size
    return starts


def _records(data: bytes, starts: list[int], sizes: list[int], counts: list[int]) -> IntColumn | None:
    """The starts of records: the only columns that have to be found one after the other."""
    starts_of_records: list[int] = []
    try:
        for start, size, count in zip(starts, sizes, counts, strict=True):
            at = start + HEADER_BYTES
            for _ in range(count):
                starts_of_records.append(at)
                byte = data[at]
                if byte < 128:
                    at += 1 + (byte >> 1)
                elif (more := data[at + 1]) < 128:
                    at += 2 + ((byte & 127 | more << 7) >> 1)
                else:
                    return None
            if at != start + size:
                return None
    except IndexError:
        return None
    return np.array(starts_of_records, dtype=np.int64)


def _padded(data: bytes) -> NDArray[np.uint8]:
    padded = np.zeros(len(data) + _MARGIN, dtype=np.uint8)
    padded[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return padded


def _rows(padded: NDArray[np.uint8], at: IntColumn, kind: np.dtype[Any]) -> NDArray[Any]:
    """The bytes from each place on as a row of the given kind."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, kind.itemsize)
    return windows[at].view(kind).reshape(-1)


def _varints(padded: NDArray[np.uint8], at: IntColumn) -> tuple[IntColumn, IntColumn, FlagColumn]:
    """The zig-zag varints at these places, where each ends, and whether it has three bytes at most."""
    first, second, third = (padded[at + index].astype(np.int64) for index in range(3))
    has_two = first >= 128
    has_three = has_two & (second >= 128)
    raw = (first & 127) | np.where(has_two, (second & 127) << 7, 0) | np.where(has_three, third << 14, 0)
    return (raw >> 1) ^ -(raw & 1), at + 1 + has_two + has_three, ~(has_three & (third >= 128))


def partition_codes(keys: list[bytes]) -> tuple[list[bytes], IntColumn]:
    """The different keys, and the number of each record's among them."""
    numbers: dict[bytes, int] = {}
    codes = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), dtype=np.int64, count=len(keys))
    return list(numbers), codes
