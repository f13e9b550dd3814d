"""Records that are laid out alike, as rows of a table of bytes: equal lengths of record, key, value and headers, and
deltas of equally many bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.numpy_columns import ByteColumn, IntColumn
from backend.protocol.record_batches.record_check import RecordsSummary, check_each
from backend.protocol.varint import decode_varint

# More lengths than these take longer to compare, row by row, than to read.
_HEADERS_MAX: Final = 8
_KEPT_BITS: Final = 127
_CONTINUED: Final = 128
# Of longer deltas more than the length of their varints would have to be compared.
_DELTA_MS_BYTES_MAX: Final = 9
_OFFSET_DELTA_BYTES_MAX: Final = 4


class _Layout(NamedTuple):
    """The bytes of a record, counted from its start, that are lengths and counts, and those that are its deltas."""

    lengths: list[int]
    delta_ms: range
    offset_delta: range


def rows_alike(
    data: Buffer, array: ByteColumn, position: int, first: int, count: int
) -> tuple[int, int, RecordsSummary | None]:
    """The number of the next `count` records that are well-formed and laid out as the first of them, their end, and
    their summary. None of them when the first is no record: the check of that record alone finds the reason.
    """
    try:
        end, summary = check_each(data, position, first, 1)
    except (DecodeError, IndexError):
        return 0, position, None
    layout = _layout(data[position:end])
    if layout is None:
        return 1, end, summary
    stride = end - position
    rows = min(count, (len(data) - position) // stride)
    table = array[position : position + rows * stride].reshape(rows, stride)
    lengths = table[:, layout.lengths]
    more = table[:, [*layout.delta_ms, *layout.offset_delta]] >= _CONTINUED
    alike = (lengths == lengths[0]).all(axis=1) & (more == more[0]).all(axis=1)
    if not alike.all():
        rows = int(alike.argmin())
        table = table[:rows]
    delta_ms = _varints(table, layout.delta_ms)
    consecutive = _varints(table, layout.offset_delta) == np.arange(first, first + rows)
    rows_summary = RecordsSummary(
        int(delta_ms.min()), int(delta_ms.max()), summary.has_null_key, bool(consecutive.all())
    )
    return rows, position + rows * stride, rows_summary


def _varints(table: ByteColumn, columns: range) -> IntColumn:
    values = (table[:, columns[0]] & _KEPT_BITS).astype(np.int64)
    for shift, column in enumerate(columns[1:], start=1):
        values |= (table[:, column] & _KEPT_BITS).astype(np.int64) << 7 * shift
    return values >> 1 ^ -(values & 1)


def _layout(record: Buffer) -> _Layout | None:
    """That of a well-formed record, its length included; None when a table would not pay."""
    _, at = decode_varint(record, 0)
    lengths = [*range(at)]
    delta_ms = _varint_at(record, at + 1)
    offset_delta = _varint_at(record, delta_ms.stop)
    at = offset_delta.stop
    for _ in ("key", "value"):
        size, begin = decode_varint(record, at)
        lengths += range(at, begin)
        at = begin + max(size, 0)
    headers, begin = decode_varint(record, at)
    lengths += range(at, begin)
    at = begin
    if headers > _HEADERS_MAX or len(delta_ms) > _DELTA_MS_BYTES_MAX or len(offset_delta) > _OFFSET_DELTA_BYTES_MAX:
        return None
    for _ in range(2 * headers):  # names and values
        size, begin = decode_varint(record, at)
        lengths += range(at, begin)
        at = begin + max(size, 0)
    return _Layout(lengths, delta_ms, offset_delta)


def _varint_at(record: Buffer, start: int) -> range:
    end = start
    while record[end] >= _CONTINUED:
        end += 1
    return range(start, end + 1)
