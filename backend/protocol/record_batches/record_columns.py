"""The check of `record_validation` for batches of many records: fields of many records at once, as columns.

The length of each record gives the start of the next one. Records laid out as the one before them, which most batches
are made of, are rows of a table: their lengths are compared with those of the first row. Others are found one by one,
and their fields are then varints at known places. Work is linear in the records; memory is that of a chunk of them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from backend.protocol.errors import DecodeError
from backend.protocol.numpy_columns import ByteColumn, FlagColumn, IntColumn
from backend.protocol.record_batches.record_check import (
    MalformedRecords,
    RecordsSummary,
    check_each,
    check_headers,
    malformed,
)
from backend.protocol.record_batches.record_codec import RECORD_BYTES_MIN
from backend.protocol.record_batches.record_table import rows_alike
from backend.protocol.varint import UVARINT_BITS_MAX, VARINT_BYTES_MAX, decode_varint

# A column of so many 64-bit integers takes 64 KiB: a dozen of them stay in the processor's cache.
_CHUNK: Final = 8192
# Fewer rows of a table, headers of a column and records that differ are checked at less cost one by one.
_ROWS_MIN: Final = 32
_HEADERS_MIN: Final = 32
_COLUMNS_MIN: Final = 320
# Records that are tried first as rows of a table: an attempt in vain then costs less than reading them one by one.
_TABLE_ROWS: Final = 1024
# Headers of a record that are checked as columns; a record may have more, one by one.
_HEADER_COLUMNS: Final = 16
_VARLONG_BYTES_MAX: Final = 10
_SIZE_MIN: Final = RECORD_BYTES_MIN - 1
# By a length's only byte: how far the next record is, 0 for a length that no record has.
_STEP: Final = tuple(0 if byte & 1 or byte >> 1 < _SIZE_MIN else 1 + (byte >> 1) for byte in range(128))


class _Malformed(Exception):
    """A row of the columns is no record."""

    def __init__(self, row: int) -> None:
        self.row = row


def check_many(data: Any, count: int) -> RecordsSummary:
    """As `record_validation.check_records`, for at least one record."""
    array: ByteColumn = np.frombuffer(data, np.uint8)
    buffer: bytes | bytearray | None = data if isinstance(data, bytes | bytearray) else None
    parts: list[RecordsSummary] = []
    position, index = 0, 0
    rows_max = _TABLE_ROWS
    while index < count:
        start = position
        rows, position, summary = rows_alike(data, array, start, index, min(count - index, rows_max))
        if summary is None or rows < _ROWS_MIN:
            if buffer is None:  # a view is twice as slow, byte by byte
                buffer = bytes(data)
            rows = min(count - index, _CHUNK)
            position, summary = _check_some(buffer, array, start, index, rows)
            rows_max = _TABLE_ROWS
        else:
            rows_max = _CHUNK if rows == rows_max else _TABLE_ROWS
        parts.append(summary)
        index += rows
    if position != len(data):
        raise MalformedRecords(f"{len(data) - position} bytes follow the last of {count} records of a batch")
    return RecordsSummary(
        min([part.delta_ms_min for part in parts]),
        max([part.delta_ms_max for part in parts]),
        any(part.has_null_key for part in parts),
        all(part.consecutive for part in parts),
    )


def _check_some(
    data: bytes | bytearray, array: ByteColumn, position: int, first: int, count: int
) -> tuple[int, RecordsSummary]:
    """Checks `count` records from `position` on: where the last ends, and what they say."""
    if count < _COLUMNS_MIN:
        return _check_singly(data, position, first, count)
    starts, end, broken = _record_starts(data, position, count)
    if broken:  # one of these records is none; the slower way finds which one, and why
        return _check_singly(data, position, first, len(starts) + 1)
    try:
        return end, _check_columns(data, array, np.array(starts, np.int64), first)
    except _Malformed as error:
        return _check_singly(data, starts[error.row], first + error.row, 1)


def _check_singly(data: bytes | bytearray, position: int, first: int, count: int) -> tuple[int, RecordsSummary]:
    try:
        return check_each(data, position, first, count)
    except IndexError:
        malformed(first, f"or one behind it is cut off after {len(data) - position} bytes")
    except MalformedRecords:
        raise
    except DecodeError as error:
        malformed(first, f"or one behind it is malformed: {error}")


def _record_starts(data: bytes | bytearray, position: int, count: int) -> tuple[list[int], int, bool]:
    """The starts of the next `count` records, the end of the last one, and whether no record stands there: then there
    are fewer.
    """
    total, steps = len(data), _STEP
    starts: list[int] = []
    append = starts.append
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 128:
                step = steps[byte]
            elif not byte & 1 and (second := data[position + 1]) < 128:
                step = 2 + (byte >> 1 & 63 | second << 6)  # above 127, or malformed: 7 bytes at least for any other
            else:
                size, begin = decode_varint(data, position)
                step = begin - position + size if size >= _SIZE_MIN else 0
            if not step:
                return starts, position, True
            append(position)
            position += step
    except (DecodeError, IndexError):
        return starts, position, True
    if position > total:
        starts.pop()
        return starts, position, True
    return starts, position, False


def _check_columns(data: bytes | bytearray, array: ByteColumn, starts: IntColumn, first: int) -> RecordsSummary:
    """Raises _Malformed with a row that is no record."""
    sizes, at = _varints(array, starts, VARINT_BYTES_MAX)
    ends = at + sizes
    delta_ms, at = _varints(array, at + 1, _VARLONG_BYTES_MAX)
    offset_deltas, at = _varints(array, at, VARINT_BYTES_MAX)
    key_sizes, at = _varints(array, at, VARINT_BYTES_MAX)
    at = _behind(key_sizes, at, ends)
    value_sizes, at = _varints(array, at, VARINT_BYTES_MAX)
    at = _behind(value_sizes, at, ends)
    header_counts, at = _varints(array, at, VARINT_BYTES_MAX)
    if header_counts.any():
        _check_headers(data, array, header_counts, at, ends)
    _require(at == ends)
    indexes = np.arange(first, first + len(starts))
    return RecordsSummary(
        int(delta_ms.min()),
        int(delta_ms.max()),
        bool((key_sizes < 0).any()),
        bool((offset_deltas == indexes).all()),
    )


def _behind(sizes: IntColumn, at: IntColumn, ends: IntColumn) -> IntColumn:
    """The ends of nullable bytes of these sizes, which are before the record's end."""
    _require(sizes >= -1)
    behind = at + np.maximum(sizes, 0)
    _require(behind < ends)
    return behind


def _require(right: FlagColumn) -> None:
    if not right.all():
        raise _Malformed(int(right.argmin()))


def _require_of(rows: IntColumn, right: FlagColumn) -> None:
    if not right.all():
        raise _Malformed(int(rows[right.argmin()]))


def _varints(array: ByteColumn, at: IntColumn, bytes_max: int) -> tuple[IntColumn, IntColumn]:
    """The zig-zag varints at these places, and their ends. Behind the array its last byte is read again: such a
    place is behind the end of its record, which the caller refuses.
    """
    byte = array.take(at, mode="clip")
    values = byte.astype(np.uint64)
    after = at + 1
    longer = np.flatnonzero(byte >= 128)
    if len(longer):
        values &= np.uint64(127)
        for shift in range(7, 7 * bytes_max, 7):
            byte = array.take(after[longer], mode="clip")
            values[longer] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            after[longer] += 1
            if shift == 7 * (_VARLONG_BYTES_MAX - 1):
                _require_of(longer, byte <= 1)  # the 64th bit is all that is left
            longer = longer[byte >= 128]
            if not len(longer):
                break
        else:
            raise _Malformed(int(longer[0]))
        if bytes_max == VARINT_BYTES_MAX:
            _require(values < np.uint64(1 << UVARINT_BITS_MAX))
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64), after


def _check_headers(
    data: bytes | bytearray, array: ByteColumn, counts: IntColumn, at: IntColumn, ends: IntColumn
) -> None:
    """Moves `at` behind the headers of each record."""
    rows = np.flatnonzero(counts)
    left = counts[rows]
    _require_of(rows, (left > 0) & (left * 2 <= ends[rows] - at[rows]))
    for _ in range(_HEADER_COLUMNS):
        if len(rows) < _HEADERS_MIN:
            break
        try:
            sizes, behind = _varints(array, at[rows], VARINT_BYTES_MAX)
            _require((sizes >= 0) & (behind + sizes < ends[rows]))
            sizes, behind = _varints(array, behind + sizes, VARINT_BYTES_MAX)
            behind += np.maximum(sizes, 0)
            _require((sizes >= -1) & (behind <= ends[rows]))
        except _Malformed as error:
            raise _Malformed(int(rows[error.row])) from None
        at[rows] = behind
        left -= 1
        rows, left = rows[left > 0], left[left > 0]
    for row, count in zip(rows.tolist(), left.tolist(), strict=True):
        try:
            at[row] = check_headers(data, int(at[row]), int(ends[row]), count, row)
        except (DecodeError, IndexError):
            raise _Malformed(row) from None
