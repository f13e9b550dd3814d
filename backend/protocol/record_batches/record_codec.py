"""Records inside a batch (KIP-98): the part that a batch's codec compresses.

A record is: length, attributes, timestamp delta, offset delta, key, value, headers; all lengths and deltas are zig-zag
varints, and a length of -1 stands for null.
"""

from collections.abc import Callable, Iterator, Sequence
from textwrap import indent
from typing import Any, Final, NamedTuple, NoReturn, cast

from backend.protocol.errors import DecodeError
from backend.protocol.varint import SIGNED_VARINTS, decode_varlong, encode_varint, read_varint_in_place

Header = tuple[str, bytes | None]

# Varints of what most deltas and lengths are.
_READY: Final = {value: encode_varint(value) for value in range(-64, 1024)}
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
    return _READY.get(value) or encode_varint(value)


def _field(data: bytes | bytearray | memoryview | None) -> tuple[bytes, Any]:
    return (b"\x01", b"") if data is None else (_varint(len(data)), data)


def encode_record(record: RecordData, timestamp_delta_ms: int, offset_delta: int) -> bytes:
    """The bytes of one record, its length included."""
    _, key, value, headers = record
    parts: tuple[Any, ...] = (b"\x00", _varint(timestamp_delta_ms), _varint(offset_delta), *_field(key), *_field(value))
    if headers:
        parts += (_varint(len(headers)),)
        for name, content in headers:
            data = name.encode()
            parts += (_varint(len(data)), data, *_field(content))
    else:
        parts += (b"\x00",)
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


_READ_BYTES: Final = """
{size}
{name} = None
if size >= 0:
    {name} = data[position : position + size]
    position += size
elif size != -1:
    broken(index, f"has a {name} of {{size}} bytes")
if position >= end:
    broken(index, f"has a {name} that ends {{position - end}} bytes behind it")
"""
_LOOP: Final = """
def read(data, count, base_offset, base_timestamp, log_append_time):
    position, total = 0, len(data)
    for index in range(count):
        {size}
        end = position + size
        if size < smallest or end > total:
            broken(index, f"claims {{size}} bytes and {{total - position}} are left")
        position += 1
        {delta_ms}
        {offset_delta}
        {key}
        {value}
        found = ()
        if data[position]:
            {header_count}
            found, position = headers(data, position, end, header_count, index)
        else:
            position += 1
        if position != end:
            broken(index, f"ends {{end - position}} bytes before its length says")
        timestamp = base_timestamp + delta_ms if log_append_time is None else log_append_time
        yield new(Record, (base_offset + offset_delta, timestamp, key, value, found))
    if position != total:
        raise DecodeError(f"{{total - position}} bytes follow the last of {{count}} records of a batch")
"""


def _make_reader() -> Callable[[bytes, int, int, int, int | None], Iterator[Record]]:
    varints = {
        name: read_varint_in_place(name, "decode_varlong")
        for name in ("size", "delta_ms", "offset_delta", "header_count")
    }
    fields = {name: _READ_BYTES.format(name=name, size=varints["size"]) for name in ("key", "value")}
    margin = {name: " " * 12 if name == "header_count" else " " * 8 for name in (*varints, *fields)}
    parts = {name: indent(text, margin[name]).lstrip() for name, text in {**varints, **fields}.items()}
    namespace: dict[str, Any] = {
        "signed": SIGNED_VARINTS,
        "smallest": RECORD_BYTES_MIN - 1,
        "decode_varlong": decode_varlong,
        "headers": _headers,
        "broken": _broken,
        "new": tuple.__new__,
        "Record": Record,
        "DecodeError": DecodeError,
    }
    exec(compile(_LOOP.format(**parts), "<read records>", "exec"), namespace)
    return cast(Callable[[bytes, int, int, int, int | None], Iterator[Record]], namespace["read"])


_read: Final = _make_reader()


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]:
    """The records of a batch, from what its codec gave back.

    `log_append_time` replaces every timestamp when it is given. Raises DecodeError when `data` is not exactly `count`
    well-formed records.
    """
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise DecodeError(f"a batch claims {count} records in {len(data)} bytes")
    try:
        yield from _read(data, count, base_offset, base_timestamp, log_append_time)
    except IndexError as error:
        raise DecodeError(f"the records of a batch of {count} are cut off after {len(data)} bytes") from error
