"""The plainest walk over the records of a batch, from the description of the format alone: the fast ones must agree."""

from __future__ import annotations

from typing import NamedTuple


class Walked(NamedTuple):
    delta_ms_min: int
    delta_ms_max: int
    has_null_key: bool
    consecutive: bool


class NoRecords(Exception):
    """The bytes are not the records that were counted."""


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def byte(self) -> int:
        if self.position >= len(self.data):
            raise NoRecords
        self.position += 1
        return self.data[self.position - 1]

    def number(self, bits: int) -> int:
        value = 0
        for index in range((bits + 6) // 7):
            byte = self.byte()
            value |= (byte & 127) << 7 * index
            if byte < 128:
                if value >= 1 << bits:
                    raise NoRecords
                return value // 2 if value % 2 == 0 else -(value // 2) - 1
        raise NoRecords

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.position:
            raise NoRecords
        self.position += size


def walk(data: bytes, count: int) -> Walked:
    """Raises NoRecords unless `data` is exactly `count` records."""
    cursor = _Cursor(data)
    deltas_ms, null_key, consecutive = [], False, True
    for index in range(count):
        size = cursor.number(32)
        end = cursor.position + size
        if size < 0 or end > len(data):
            raise NoRecords
        cursor.byte()
        deltas_ms.append(cursor.number(64))
        consecutive &= cursor.number(32) == index
        key_size, _ = _nullable(cursor), _nullable(cursor)
        null_key |= key_size < 0
        headers = cursor.number(32)
        if headers < 0 or headers > len(data):
            raise NoRecords
        for _ in range(headers):
            name_size = cursor.number(32)
            if name_size < 0:
                raise NoRecords
            cursor.skip(name_size)
            _nullable(cursor)
        if cursor.position != end:
            raise NoRecords
    if cursor.position != len(data):
        raise NoRecords
    return Walked(min(deltas_ms), max(deltas_ms), null_key, consecutive)


def _nullable(cursor: _Cursor) -> int:
    size = cursor.number(32)
    if size < -1:
        raise NoRecords
    cursor.skip(max(size, 0))
    return size
