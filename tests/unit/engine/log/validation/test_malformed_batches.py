"""Clients can read every batch that is acknowledged. Every batch of `tests.scenarios.malformed_batches` gets the
answer of a running Kafka 4.3.1, but for those that Kafka takes and a client cannot read.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any, Final

import pytest
from crc32c import crc32c

from backend.engine.log.log_config import LogConfig
from backend.engine.log.log_errors import RecordsRejected
from backend.engine.log.segments.timestamp_search import TimestampedOffset
from backend.engine.log.validation.produced_batch import ValidatedBatch, validate_produced
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches import record_validation
from backend.protocol.record_batches.record_batch import iter_records
from backend.protocol.record_batches.record_validation import (
    MANY_RECORDS,
    check_records,
    columns_requested,
    load_columns,
)
from backend.tiering.ids import TopicPartition
from tests.scenarios.malformed_batches import TOPICS, Case, Rec, Row, build, cases
from tests.unit.engine.log.logs import FIXTURES, NOW_MS, batch, open_test_log, replicate

KAFKAS: Final[list[Row]] = json.loads((FIXTURES / "malformed-batches.json").read_text())

# Of what Kafka takes, what is refused here, with the reader that it stops.
_LENGTHS: Final = "no reader looks past the length of a compressed record; Kafka's validation alone does"
_SIZES: Final = "librdkafka takes a length of -2 for 2^64-2 bytes and stands still"
_WIDE: Final = "only Java drops the bits above 32; others read another number"
_DELTAS: Final = "consumers pass over records whose offsets do not ascend, or read the same ones twice"
_STREAMS: Final = "librdkafka, or Python's codecs, find the stream broken"
STRICTER: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "length below zero",
            "length zero",
            "length one less",
            "length one more",
            "last length one more",
            "length past the end",
            "length of 2^31-1",
        ),
        _LENGTHS,
    ),
    **dict.fromkeys(("key of -2 bytes", "key of -2^31 bytes", "value of -2 bytes", "header value of -2 bytes"), _SIZES),
    **dict.fromkeys(
        ("length with bits above 32", "key length with bits above 32", "offset delta with bits above 32"), _WIDE
    ),
    **dict.fromkeys(
        (
            "offset deltas 0, 2, 1",
            "offset deltas 0, 0, 0",
            "offset deltas 0, 5, 9",
            "offset deltas 1, 2, 3",
            "offset deltas -1, 0, 1",
            "offset delta of 2^31-1",
        ),
        _DELTAS,
    ),
    "nine zero bytes follow the stream": _STREAMS,
    "two streams": _STREAMS,
}
# Refused by both, with another code: which of Kafka's readers fails first is random.
_CODES: Final = {("nothing under the codec", 4), ("length of 2^31-1", 4)}  # fmt: skip
_REFUSED: Final = (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)


def answer(topic: str, case: Case, codec: int) -> tuple[Row, ValidatedBatch | None]:
    config = LogConfig.from_properties(TOPICS[topic])
    batch = memoryview(build(case, codec, NOW_MS))
    try:
        validated = validate_produced(batch, config, TopicPartition(topic, 0), now_ms=NOW_MS)
    except RecordsRejected as error:
        errors = [[at, _without_limits(text)] for at, text in error.record_errors]
        return {"error": error.code, "message": error.message, "record_errors": errors}, None
    except KafkaError as error:
        return {"error": error.code}, None
    header = validated.header
    max_ms = header.max_timestamp
    relative = max_ms if max_ms < 0 else max_ms - NOW_MS
    return {"error": 0, "max_ms": relative, "stored_codec": header.compression}, validated


def kafkas_answer(row: Row) -> Row:
    """Times in Kafka's sentences are those of its moment: moved to ours."""
    moved = {key: value for key, value in row.items() if key not in ("topic", "case", "codec", "now_ms")}
    if "record_errors" in moved:
        moved["record_errors"] = [[at, _moved(text, NOW_MS - row["now_ms"])] for at, text in moved["record_errors"]]
    if moved["error"] == 0 and row["topic"] == "append-time":
        moved["max_ms"] = 0
    return moved


def _moved(text: str, shift_ms: int) -> str:
    """Without the limits, which Kafka took from its clock a moment later."""
    match = re.match(r"Timestamp (-?\d+) (.*The timestamp should be within)", text)
    if match is None:
        return text
    moment = int(match[1])
    return f"Timestamp {moment + shift_ms if abs(moment) > 10**9 else moment} {match[2]}"


def _without_limits(text: str | None) -> str | None:
    return text and re.sub(r"(should be within) \[.*\]", r"\1", text)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_batch_gets_kafkas_answer(topic: str) -> None:
    differences: list[Any] = []
    used: set[str] = set()
    for (name, case, codec), row in zip(cases(), KAFKAS, strict=True):
        assert (name, case.name, codec) == (row["topic"], row["case"], row["codec"])
        if name != topic:
            continue
        ours, _ = answer(name, case, codec)
        kafkas = kafkas_answer(row)
        if ours != kafkas:
            stricter = case.name in STRICTER and ours["error"] in _REFUSED and "record_errors" not in ours
            used.add(case.name)
            if not stricter and not ((case.name, codec) in _CODES and ours["error"] and kafkas["error"]):
                differences.append((case.name, codec, ours, kafkas))
    assert not differences
    assert topic != "plain" or used >= set(STRICTER)


def test_what_is_taken_can_be_read() -> None:
    taken = 0
    for topic, case, codec in cases():
        _, validated = answer(topic, case, codec)
        if validated is None:
            continue
        taken += 1
        records = list(iter_records(validated.records))
        assert [record.offset for record in records] == list(range(case.count)), case.name
        if not validated.header.is_log_append_time:
            assert max(-1, *(record.timestamp for record in records)) == validated.header.max_timestamp, case.name
    assert taken > 200


def test_large_batches_are_checked_as_columns_once_a_worker_has_made_them_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred milliseconds of import are not the first large batch's to wait for, nor a broker's that gets none."""
    monkeypatch.setattr(record_validation, "_column_check", record_validation._ColumnCheck())
    data = b"".join(Rec(index, index).encode() for index in range(MANY_RECORDS))
    first = check_records(data, MANY_RECORDS)
    assert columns_requested()
    load_columns()
    assert not columns_requested()
    assert check_records(data, MANY_RECORDS) == first
    assert not columns_requested()


def test_a_header_that_lies_about_its_time_misleads_neither_rolls_nor_retention_nor_searches(tmp_path: Path) -> None:
    """Its largest timestamp is the records': with the header's, each such batch rolled three brokers' segments, stayed
    for ever and hid the offsets behind it from a search by time.
    """
    future_ms = 10**14
    config = LogConfig(
        index_interval_bytes=1, segment_ms=60_000, retention_ms=1000, message_timestamp_after_max_ms=5000
    )
    log = open_test_log(tmp_path, config)
    for index in range(6):
        lying = batch(index)
        struct.pack_into(">q", lying, 35, NOW_MS + (future_ms if index % 2 == 0 else -future_ms))
        struct.pack_into(">I", lying, 17, crc32c(memoryview(lying)[21:]))
        validated = validate_produced(memoryview(lying), config, TopicPartition("orders", 0), now_ms=NOW_MS)
        log.append_validated(validated, 0, now_ms=NOW_MS)
    replicate(log)
    assert len(log.segments) == 1
    assert log.reader.max_timestamp_offset() == TimestampedOffset(NOW_MS + 5, 5, 0)
    assert log.reader.offset_by_timestamp(NOW_MS + 4) == TimestampedOffset(NOW_MS + 4, 4, 0)
    log.roll()
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.delete_old_segments(NOW_MS + 2000) == 1
    assert log.log_start_offset == 6
