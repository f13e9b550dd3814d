"""Records inside a batch (KIP-98): the part that a batch's codec compresses.

A record is: length, attributes, timestamp delta, offset delta, key, value, headers; all lengths and deltas are zig-zag
varints, and a length of -1 stands for null.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from backend.protocol.errors import DecodeError
from backend.protocol.varint import decode_varlong, encode_varint

Header = tuple[str, bytes | None]

# Zig-zag varints of one byte: what most deltas and lengths are.
_SINGLE: Final = {value: encode_varint(value) for value in range(-64, 64)}
_SIGNED: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
# Length, attributes, two deltas, two lengths and the header count take a byte each at least.
RECORD_BYTES_MIN: Final = 7


class RecordData(NamedTuple):
    """A record to be put into a batch; the batch gives it its offset."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class Record(NamedTuple):
    """A record as it stands in a log. The timestamp is in ms; -1 when the producer gave none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def _varint(value: int) -> bytes:
    return _SINGLE.get(value) or encode_varint(value)


def _field(data: bytes | bytearray | memoryview | None) -> tuple[bytes, Any]:
    return (b"\x01", b"") if data is None else (_varint(len(data)), data)


def encode_record(record: RecordData, timestamp_delta_ms: int, offset_delta: int) -> bytes:
    """The bytes of one record, its length included."""
    parts: list[Any] = [b"\x00", _varint(timestamp_delta_ms), _varint(offset_delta)]
    parts += _field(record.key)
    parts += _field(record.value)
    parts.append(_varint(len(record.headers)))
    for name, value in record.headers:
        data = name.encode()
        parts += (_varint(len(data)), data)
        parts += _field(value)
    body = b"".join(parts)
    return _varint(len(body)) + body


def _broken(index: int, problem: str) -> NoReturn:
    raise DecodeError(f"record {index} of the batch {problem}")


def _headers(data: bytes, position: int, end: int, count: int, index: int) -> tuple[tuple[Header, ...], int]:
    if count < 0 or count * 2 > end - position:
        _broken(index, f"claims {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        size, position = decode_varlong(data, position)
        if size < 0 or position + size > end:
            _broken(index, f"has a header name of {size} bytes and {end - position} are left")
        name = data[position : position + size].decode("utf-8", "replace")
        position += size
        size, position = decode_varlong(data, position)
        if size < -1 or position + size > end:
            _broken(index, f"has a header value of {size} bytes and {end - position} are left")
        headers.append((name, None if size < 0 else data[position : position + size]))
        position += max(size, 0)
    return tuple(headers), position


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]:
    """The records of a batch, from what its codec gave back.

    `log_append_time` replaces every timestamp when it is given. Raises DecodeError when `data` is not exactly `count`
    well-formed records.
    """
    position, total, signed, new = 0, len(data), _SIGNED, tuple.__new__
    if count < 0 or count * RECORD_BYTES_MIN > total:
        raise DecodeError(f"a batch claims {count} records in {total} bytes")
    index = 0
    try:
        for index in range(count):
            # Each varint is read in place when it has one byte: this loop is the cost of reading a topic.
            byte = data[position]
            if byte < 128:
                size, position = signed[byte], position + 1
            else:
                size, position = decode_varlong(data, position)
            end = position + size
            if size < RECORD_BYTES_MIN - 1 or end > total:
                _broken(index, f"claims {size} bytes and {total - position} are left")
            byte = data[position + 1]
            if byte < 128:
                delta_ms, position = signed[byte], position + 2
            else:
                delta_ms, position = decode_varlong(data, position + 1)
            byte = data[position]
            if byte < 128:
                offset_delta, position = signed[byte], position + 1
            else:
                offset_delta, position = decode_varlong(data, position)
            byte = data[position]
            if byte < 128:
                size, position = signed[byte], position + 1
            else:
                size, position = decode_varlong(data, position)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            elif size != -1:
                _broken(index, f"has a key of {size} bytes")
            if position >= end:
                _broken(index, f"has a key that ends {position - end} bytes behind it")
            byte = data[position]
            if byte < 128:
                size, position = signed[byte], position + 1
            else:
                size, position = decode_varlong(data, position)
            value = None
            if size >= 0:
                value = data[position : position + size]
                position += size
            elif size != -1:
                _broken(index, f"has a value of {size} bytes")
            if position >= end:
                _broken(index, f"has a value that ends {position - end} bytes behind it")
            headers: tuple[Header, ...] = ()
            if data[position]:
                header_count, position = decode_varlong(data, position)
                headers, position = _headers(data, position, end, header_count, index)
            else:
                position += 1
            if position != end:
                _broken(index, f"ends {end - position} bytes before its length says")
            timestamp = base_timestamp + delta_ms if log_append_time is None else log_append_time
            yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    except IndexError as error:
        raise DecodeError(f"record {index} of the batch is cut off") from error
    if position != total:
        raise DecodeError(f"{total - position} bytes follow the last of {count} records of a batch")
