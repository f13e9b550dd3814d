"""Append checks, against the answers of running Kafka 4.3.1 brokers where a fixture has them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.log.log_config import LogConfig
from backend.engine.log.log_errors import RecordsRejected
from backend.engine.log.validation.produced_batch import validate_produced
from backend.engine.log.validation.trusted_batches import validate_fetched
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_records, parse_header
from tests.unit.engine.log.logs import FIXTURES, NOW_MS, TIP, batch, open_test_log

CONFIG = LogConfig()
PARTITION = TIP.topic_partition


def refused(data: bytes | bytearray, config: LogConfig = CONFIG, now_ms: int = NOW_MS) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate_produced(memoryview(bytearray(data)), config, PARTITION, now_ms=now_ms)
    return caught.value


def produced(case: str) -> memoryview:
    """The records that a fixture's frame produces."""
    rows = json.loads((FIXTURES / "bad-frames.json").read_text())
    frame = bytearray.fromhex(next(row["sent_hex"] for row in rows if row["case"] == case))
    _, request = frames.decode_request(frame[4:])
    assert isinstance(request, m.ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    return records


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("Produce wrong CRC", ErrorCode.CORRUPT_MESSAGE),
        ("Produce magic 3", ErrorCode.CORRUPT_MESSAGE),
        ("Produce magic 1", ErrorCode.INVALID_RECORD),
        ("Produce magic 0", ErrorCode.INVALID_RECORD),
        ("Produce batch cut 5 bytes short", ErrorCode.INVALID_RECORD),
        ("Produce two batches in one request", ErrorCode.INVALID_RECORD),
        ("Produce empty records", ErrorCode.INVALID_RECORD),
        ("Produce record count larger than records", ErrorCode.INVALID_RECORD),
        ("Produce lastOffsetDelta wrong", ErrorCode.INVALID_RECORD),
        ("Produce base offset 55", ErrorCode.INVALID_RECORD),
        ("Produce compression type 5 (unknown)", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("Produce gzip attribute over plain records", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refuses_with_the_code_of_a_running_broker(case: str, code: ErrorCode) -> None:
    assert refused(produced(case).tobytes()).code == code


@pytest.mark.parametrize(
    "case",
    ["Produce good batch", "Produce batch with 5 trailing bytes", "Produce idempotent batch, sequence gap",
     "Produce negative timestamp -2"],
)  # fmt: skip
def test_accepts_what_a_running_broker_accepted(tmp_path: Path, case: str) -> None:
    log = open_test_log(tmp_path, CONFIG)
    info = log.append_as_leader(produced(case), 0, now_ms=NOW_MS)
    assert info.first_offset == 0
    assert log.active_segment.size_bytes == parse_header(produced(case)).size_bytes


def test_magic_3_is_named_in_the_message() -> None:
    error = refused(produced("Produce magic 3").tobytes())
    assert error.message == "Invalid magic found in record: 3"


def test_a_batch_over_the_limit_is_too_large() -> None:
    small = replace(CONFIG, max_message_bytes=60)
    assert refused(batch(), small).code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_a_segment_is_refused_with_the_other_code() -> None:
    small = replace(CONFIG, segment_bytes=60)
    assert refused(batch(), small).code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_clients_must_not_write_control_batches() -> None:
    assert refused(batch(control=True)).code == ErrorCode.INVALID_RECORD


def test_a_producer_needs_a_sequence() -> None:
    assert refused(batch(producer_id=5, producer_epoch=0)).code == ErrorCode.INVALID_RECORD


def test_a_record_too_far_in_the_future_is_named_with_its_limits() -> None:
    data = build_batch([RecordData(NOW_MS, None, b"now"), RecordData(NOW_MS + 7_200_000, None, b"later")])
    error = refused(data)
    assert isinstance(error, RecordsRejected)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert error.message == "One or more records have been rejected due to invalid timestamp"
    early = NOW_MS - (2**63 - 1)
    assert error.record_errors == (
        (
            1,
            f"Timestamp {NOW_MS + 7_200_000} of message with offset 1 is out of range. "
            f"The timestamp should be within [{early}, {NOW_MS + 3_600_000}]",
        ),
    )


def test_a_record_too_old_is_refused_where_the_topic_limits_the_past() -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=1000)
    data = build_batch([RecordData(NOW_MS, None, b"now"), RecordData(NOW_MS - 5000, None, b"old")])
    error = refused(data, config)
    assert isinstance(error, RecordsRejected)
    assert [index for index, _ in error.record_errors] == [1]


def test_records_without_a_timestamp_pass_every_limit() -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=1000)
    data = build_batch([RecordData(-1, None, b"")])
    validate_produced(memoryview(data), config, PARTITION, now_ms=NOW_MS)


def test_log_append_time_replaces_the_producers_time() -> None:
    config = replace(CONFIG, message_timestamp_type="LogAppendTime")
    records, header, _ = validate_produced(memoryview(batch(3)), config, PARTITION, now_ms=NOW_MS + 99)
    assert header.is_log_append_time
    assert [record.timestamp for record in iter_records(records)] == [NOW_MS + 99]


def test_a_producer_must_not_set_log_append_time_itself() -> None:
    assert refused(batch(log_append_time=True)).code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_topics_compression_is_applied_by_the_broker(name: str, codec: int) -> None:
    config = replace(CONFIG, compression_type=name)
    sent = batch(0, 20, compression=0 if codec else 1, producer_id=9, producer_epoch=1, base_sequence=4)
    records, header, _ = validate_produced(memoryview(sent), config, PARTITION, now_ms=NOW_MS)
    assert header.compression == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 4)
    assert [r.value for r in iter_records(records)] == [r.value for r in iter_records(sent)]


@pytest.mark.parametrize(
    ("name", "setting", "low", "high"),
    [
        ("gzip", "compression.gzip.level", 1, 9),
        ("lz4", "compression.lz4.level", 3, 12),
        ("zstd", "compression.zstd.level", -7, 19),
    ],
)
def test_a_topics_compression_level_is_applied(name: str, setting: str, low: int, high: int) -> None:
    sizes = {}
    for level in (low, high):
        config = LogConfig.from_properties({"compression.type": name, setting: str(level)})
        sent = build_batch([RecordData(NOW_MS, None, b"%d,%d;" % (i, i * i % 977)) for i in range(9000)])
        records, _, _ = validate_produced(memoryview(sent), config, PARTITION, now_ms=NOW_MS)
        assert [r.value for r in iter_records(records)] == [r.value for r in iter_records(sent)]
        sizes[level] = len(records)
    assert sizes[high] < sizes[low]


def test_a_batch_that_is_too_large_once_recompressed_is_refused() -> None:
    sent = build_batch([RecordData(NOW_MS, None, bytes(5000))], compression=1)
    config = replace(CONFIG, compression_type="uncompressed", max_message_bytes=1000)
    with pytest.raises(KafkaError) as caught:
        validate_produced(memoryview(sent), config, PARTITION, now_ms=NOW_MS)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_read_only_records_are_copied_and_writable_ones_are_not() -> None:
    sent = batch()
    records, _, _ = validate_produced(memoryview(bytes(sent)), CONFIG, PARTITION, now_ms=NOW_MS)
    assert not records.readonly
    records, _, _ = validate_produced(memoryview(sent), CONFIG, PARTITION, now_ms=NOW_MS)
    assert records.obj is sent


def test_a_followers_batches_end_before_a_cut_one() -> None:
    whole = batch(0, base_offset=0) + batch(1, base_offset=1)
    cut = whole + batch(2, base_offset=2)[:-1]
    records, batches = validate_fetched(memoryview(cut), 5)
    assert len(records) == len(whole)
    assert [header.base_offset for _, header in batches] == [0, 1]


def test_a_followers_batches_end_before_a_newer_epoch() -> None:
    data = batch(0, base_offset=0, leader_epoch=3) + batch(1, base_offset=1, leader_epoch=4)
    assert len(validate_fetched(memoryview(data), 3)[1]) == 1
    assert len(validate_fetched(memoryview(data), 4)[1]) == 2


def test_a_followers_batches_are_checked() -> None:
    for data, code in (
        (batch(0, base_offset=7) + batch(1, base_offset=7), ErrorCode.INVALID_RECORD),
        (batch(0)[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as caught:
            validate_fetched(memoryview(data), 0)
        assert caught.value.code == code


KEYLESS = "Compacted topic cannot accept message without key in topic partition orders-0"


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
def test_a_compacted_topic_refuses_records_without_a_key_and_names_each(
    tmp_path: Path, policy: tuple[str, ...], compression: int
) -> None:
    log = open_test_log(tmp_path, replace(CONFIG, cleanup_policy=policy))
    records = [RecordData(NOW_MS, key, b"v") for key in (b"k", None, b"", None, None, None)]
    data = build_batch(records, compression=compression)
    with pytest.raises(RecordsRejected) as caught:
        log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert caught.value.record_errors == tuple((index, KEYLESS) for index in (1, 3, 4, 5))
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{KEYLESS}')" for index in (1, 3, 4))
    assert caught.value.message == (
        "One or more records have been rejected due to 4 record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    assert log.log_end_offset == 0


def test_keys_matter_only_where_a_topic_is_compacted(tmp_path: Path) -> None:
    keyless = build_batch([RecordData(NOW_MS, None, b"v")])
    log = open_test_log(tmp_path, CONFIG)
    assert log.append_as_leader(memoryview(keyless), 0, now_ms=NOW_MS).first_offset == 0
    log.config = replace(CONFIG, cleanup_policy=("compact",))
    tombstone = build_batch([RecordData(NOW_MS, b"k", None)])
    assert log.append_as_leader(memoryview(tombstone), 0, now_ms=NOW_MS).first_offset == 1
