"""Batches whose CRC is right and whose records are not, and what a broker answers to each: the same table for Apache
Kafka and for ours.

Run against a fresh one-broker cluster with `python -m tests.scenarios.malformed_batches PORT`: prints the answers as
JSON, which is how `tests/fixtures/apache-kafka-4.3.1/malformed-batches.json` was made. Times are relative to the
moment of the request; an hour is the limit on the future (`message.timestamp.after.max.ms`).
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from crc32c import crc32c

from backend.protocol import messages as m
from backend.protocol.record_batches.compression import Compression, compress
from backend.protocol.record_batches.record_batch import HEADER_BYTES, iter_batches
from backend.protocol.varint import encode_varint
from tests.waiting import wait_until
from tests.wire import ask

HOUR_MS: Final = 3_600_000
# A value that no varint field of 32 bits can hold, in five bytes: Kafka's reader drops the bits above.
_WIDE: Final = b"\x82\x80\x80\x80\x10"
_DELETE_HORIZON: Final = 0x40


@dataclass(frozen=True, slots=True)
class Rec:
    """A record as raw parts, each of which may be replaced by bytes that are wrong."""

    delta_ms: int | bytes = 0
    offset_delta: int | bytes = 0
    key: bytes | None = b"k"
    value: bytes | None = b"value"
    headers: bytes = b"\x00"
    attributes: int = 0
    key_size: int | bytes | None = None
    value_size: int | bytes | None = None
    size: int | bytes | None = None
    size_more: int = 0

    def encode(self) -> bytes:
        body = bytes((self.attributes,)) + _number(self.delta_ms) + _number(self.offset_delta)
        body += _sized(self.key, self.key_size) + _sized(self.value, self.value_size) + self.headers
        return _number(len(body) + self.size_more if self.size is None else self.size) + body


def _number(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else encode_varint(value)


def _sized(data: bytes | None, size: int | bytes | None) -> bytes:
    return _number((-1 if data is None else len(data)) if size is None else size) + (data or b"")


@dataclass(frozen=True, slots=True)
class Case:
    """The content of the batch; times are relative to now."""

    name: str
    body: bytes
    count: int
    max_ms: int = 0
    base_ms: int | None = 0  # None: a base timestamp of -1
    attributes: int = 0
    packed: Callable[[int, bytes], bytes] = compress  # type: ignore[assignment]  # takes (codec, body)


def _three(**changes: Any) -> tuple[bytes, int]:
    """Three records, the second one with the changes."""
    second = replace(Rec(1, 1), **changes)
    return b"".join(r.encode() for r in (Rec(0, 0), second, Rec(2, 2))), 3


def _deltas(*deltas: int) -> tuple[bytes, int]:
    return b"".join(Rec(0, delta).encode() for delta in deltas), len(deltas)


def _times(*deltas_ms: int) -> tuple[bytes, int]:
    return b"".join(Rec(delta, index).encode() for index, delta in enumerate(deltas_ms)), len(deltas_ms)


def _header(
    name: bytes, value: bytes | None = b"x", *, name_size: int | None = None, value_size: int | None = None
) -> bytes:
    return b"\x02" + _sized(name, name_size) + _sized(value, value_size)


def _plain_under_codec(codec: int, body: bytes) -> bytes:
    return body


def _cut(codec: int, body: bytes) -> bytes:
    return bytes(compress(codec, body))[:-5]


def _with_more(codec: int, body: bytes) -> bytes:
    return bytes(compress(codec, body)) + b"\x00" * 9


def _twice(codec: int, body: bytes) -> bytes:
    half = len(Rec(0, 0).encode())
    return bytes(compress(codec, body[:half])) + bytes(compress(codec, body[half:]))


def _linked(codec: int, body: bytes) -> bytes:
    """LZ4 whose blocks may refer to those before them; the third byte of the descriptor is its checksum."""
    packed = bytearray(compress(codec, body))
    if codec == Compression.LZ4:
        packed[4:7] = b"\x40\x40\xc0"
    return bytes(packed)


_GOOD: Final = _three()
_ONE: Final = (Rec().encode(), 1)
CASES: Final = (
    Case("good", *_GOOD),
    Case("good, 200 records", *_times(*range(200))),
    Case("null key and value", *_three(key=None, value=None)),
    Case("40 bytes ff", b"\xff" * 40, 1),
    Case("40 bytes zero", bytes(40), 1),
    Case("no bytes", b"", 1),
    Case("9 zero bytes follow the record", _ONE[0] + bytes(9), 1),
    Case("a record follows the last one counted", _GOOD[0], 2),
    Case("one record fewer than counted", _GOOD[0], 4),
    Case("cut inside the last record", _GOOD[0][:-3], 3),
    Case("length below zero", *_three(size=-1)),
    Case("length zero", *_three(size=0)),
    Case("length one less", *_three(size_more=-1)),
    Case("length one more", *_three(size_more=1)),
    Case("last length one more", Rec(size_more=1).encode(), 1),
    Case("length past the end", *_three(size=500)),
    Case("length of 2^31-1", *_three(size=2**31 - 1)),
    Case("length of six bytes", *_three(size=b"\xff\xff\xff\xff\xff\x01")),
    Case("length in more bytes than needed", *_three(size=b"\x98\x80\x00")),
    Case("length with bits above 32", *_three(size=b"\x98\x80\x80\x80\x10")),
    Case("attributes of a record", *_three(attributes=0x7F)),
    Case("key past the record", *_three(key_size=20)),
    Case("key past the batch", *_three(key_size=2000)),
    Case("key of -2 bytes", *_three(key=None, key_size=-2)),
    Case("key of -2^31 bytes", *_three(key=None, key_size=-(2**31))),
    Case("value past the record", *_three(value_size=12)),
    Case("value past the batch", *_three(value_size=2000)),
    Case("value of -2 bytes", *_three(value=None, value_size=-2)),
    Case("key length with bits above 32", *_three(key_size=_WIDE)),
    Case("no header count", *_three(headers=b"")),
    Case("-1 headers", *_three(headers=b"\x01")),
    Case("2^31-1 headers", *_three(headers=encode_varint(2**31 - 1))),
    Case("one header of no bytes", *_three(headers=b"\x02")),
    Case("header", *_three(headers=_header(b"name"))),
    Case("header with an empty name", *_three(headers=_header(b""))),
    Case("header with a null name", *_three(headers=_header(b"", name_size=-1))),
    Case("header name past the record", *_three(headers=_header(b"name", name_size=40))),
    Case("header name past the batch", *_three(headers=_header(b"name", name_size=4000))),
    Case("header name is no UTF-8", *_three(headers=_header(b"\xff\xfe"))),
    Case("header with a null value", *_three(headers=_header(b"name", None))),
    Case("header value of -2 bytes", *_three(headers=_header(b"name", b"", value_size=-2))),
    Case("header value past the record", *_three(headers=_header(b"name", value_size=9))),
    Case("header value past the batch", *_three(headers=_header(b"name", value_size=4000))),
    Case("offset deltas 0, 2, 1", *_deltas(0, 2, 1)),
    Case("offset deltas 0, 0, 0", *_deltas(0, 0, 0)),
    Case("offset deltas 0, 5, 9", *_deltas(0, 5, 9)),
    Case("offset deltas 1, 2, 3", *_deltas(1, 2, 3)),
    Case("offset deltas -1, 0, 1", *_deltas(-1, 0, 1)),
    Case("offset delta of 2^31-1", *_deltas(0, 2**31 - 1, 2)),
    Case("offset delta with bits above 32", *_three(offset_delta=_WIDE)),
    Case("timestamp delta of eleven bytes", *_three(delta_ms=b"\xff" * 10 + b"\x01")),
    Case("timestamp delta of ten bytes", *_three(delta_ms=b"\x82" + b"\x80" * 8 + b"\x00")),
    Case("timestamp delta past 2^63", *_three(delta_ms=2**63 - 1)),
    Case("second record older than a day", *_times(0, -86_400_000, 2)),
    Case("second record two hours ahead", *_times(0, 2 * HOUR_MS, 2)),
    Case("header says two hours ahead", *_GOOD, max_ms=2 * HOUR_MS),
    Case("header says 10^14 ms ahead", *_GOOD, max_ms=10**14),
    Case("header says a day ago", *_GOOD, max_ms=-86_400_000),
    Case("no timestamps", *_times(0, 0), base_ms=None),
    Case("timestamps -1, -2, -3", *_times(0, -1, -2), base_ms=None),
    Case("delete horizon", *_GOOD, attributes=_DELETE_HORIZON),
    Case("second record without key", *_three(key=None)),
    Case("no record with key", b"".join(Rec(0, i, None).encode() for i in range(5)), 5),
)  # fmt: skip
PACKINGS: Final = (
    Case("plain bytes under the codec", *_GOOD, packed=_plain_under_codec),
    Case("stream cut five bytes short", *_GOOD, packed=_cut),
    Case("nine zero bytes follow the stream", *_GOOD, packed=_with_more),
    Case("two streams", *_GOOD, packed=_twice),
    Case("linked blocks, with lz4", *_GOOD, packed=_linked),
    Case("nothing under the codec", b"", 1, packed=_plain_under_codec),
)
CODECS: Final[tuple[int, ...]] = tuple(Compression)
FEW_CODECS: Final[tuple[int, ...]] = (Compression.NONE, Compression.ZSTD)
UNKNOWN_CODECS: Final = (5, 6, 7)
# Cases that say something where the topic is another one.
TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "gzipped": {"compression.type": "gzip"},
    "unpacked": {"compression.type": "uncompressed"},
    "recent": {"message.timestamp.before.max.ms": str(HOUR_MS)},
}


def cases() -> Iterator[tuple[str, Case, int]]:
    """Every (topic, case, codec) of the table."""
    for topic in TOPICS:
        for codec in CODECS if topic == "plain" else FEW_CODECS:
            for case in CASES + (PACKINGS if codec else ()):
                yield topic, case, codec
    for codec in UNKNOWN_CODECS:
        yield "plain", replace(CASES[0], packed=_plain_under_codec), codec


def build(case: Case, codec: int, now_ms: int) -> bytearray:
    """The case's batch with its CRC."""
    body = bytes(case.packed(codec, case.body))
    batch = bytearray(HEADER_BYTES) + body
    base_ms = -1 if case.base_ms is None else now_ms + case.base_ms
    times = (base_ms, now_ms + case.max_ms)
    length, attributes = len(batch) - 12, codec | case.attributes
    struct.pack_into(
        ">qiibIhiqqqhii", batch, 0, 0, length, -1, 2, 0, attributes, case.count - 1, *times, -1, -1, -1, case.count
    )
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


Row = dict[str, Any]


def _produce(port: int, topic: str, batch: bytes) -> Row:
    topic_data = m.ProduceRequest.TopicData
    part = topic_data.PartitionData(index=0, records=batch)
    request = m.ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic_data(name=topic, partition_data=[part])])
    row = ask(port, request, 9, m.ProduceResponse).responses[0].partition_responses[0]
    answer: Row = {"error": row.error_code, "offset": row.base_offset}
    if row.error_message is not None:
        answer["message"] = row.error_message
    if row.record_errors:
        answer["record_errors"] = [[e.batch_index, e.batch_index_error_message] for e in row.record_errors]
    return answer


def _stored_max_ms(port: int, topic: str, offset: int) -> tuple[int, int]:
    """The largest timestamp in the header of the stored batch, and its codec."""
    fetch = m.FetchRequest.Topics
    part = fetch.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = m.FetchRequest(max_wait_ms=500, max_bytes=1 << 20, topics=[fetch(topic=topic, partitions=[part])])
    records = ask(port, request, 11, m.FetchResponse).responses[0].partitions[0].records
    _, header = next(iter_batches(records))
    return header.max_timestamp, header.compression


def _create(port: int, topic: str, config: dict[str, str]) -> None:
    creation = m.CreateTopicsRequest.Topics
    configs = [creation.Configs(name=name, value=value) for name, value in config.items()]
    requested = creation(name=topic, num_partitions=1, replication_factor=1, configs=configs)
    ask(port, m.CreateTopicsRequest(topics=[requested], timeout_ms=30_000), 5, m.CreateTopicsResponse)
    batch = bytes(build(CASES[0], 0, int(time.time() * 1000)))
    wait_until(f"{topic} takes records", partial(_takes, port, topic, batch))


def _takes(port: int, topic: str, batch: bytes) -> bool:
    return bool(_produce(port, topic, batch)["error"] == 0)


def play(port: int) -> list[Row]:
    """The answers of the broker at `port` to the whole table, in order."""
    for topic, config in TOPICS.items():
        _create(port, topic, config)
    rows = []
    for topic, case, codec in cases():
        now_ms = int(time.time() * 1000)
        row: Row = {"topic": topic, "case": case.name, "codec": codec, "now_ms": now_ms}
        answer = _produce(port, topic, bytes(build(case, codec, now_ms)))
        offset = answer.pop("offset")
        if answer["error"] == 0:
            max_ms, stored_codec = _stored_max_ms(port, topic, offset)
            answer["max_ms"] = max_ms if max_ms < 0 or topic == "append-time" else max_ms - now_ms
            answer["stored_codec"] = stored_codec
        rows.append(row | answer)
    return rows


if __name__ == "__main__":
    print(json.dumps(play(int(sys.argv[1])), indent=1))
