"""Record batches: those of a real Kafka, our own, and broken ones."""

from random import Random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from backend.protocol import messages as m
from backend.protocol.errors import DecodeError
from backend.protocol.frames import decode_request, decode_response
from backend.protocol.record_batches import control_records, record_batch
from backend.protocol.record_batches.compression import Compression, compress
from backend.protocol.record_batches.record_batch import (
    Record,
    RecordData,
    build_batch,
    iter_batches,
    iter_records,
    parse_header,
)
from backend.protocol.record_batches.record_codec import encode_record
from tests.unit.protocol.kafka_fixtures import log_files, wire_rows


def _data(records: list[Record]) -> list[RecordData]:
    return [RecordData(record.timestamp, record.key, record.value, record.headers) for record in records]


def _check(buffer: bytes | memoryview) -> int:
    """Reads every batch of a buffer, encodes it again and returns how many there were."""
    count, end = 0, 0
    for position, header in iter_batches(buffer):
        assert position == end
        assert record_batch.crc_valid(buffer, position, header)
        records = list(iter_records(buffer, position))
        assert [r.offset for r in records] == sorted(r.offset for r in records)
        assert len(records) == header.record_count
        assert records[-1].offset == header.last_offset
        plain = b"".join(
            encode_record(data, data.timestamp_ms - header.base_timestamp, record.offset - header.base_offset)
            for data, record in zip(_data(records), records, strict=True)
        )
        raw = bytes(buffer[position + record_batch.HEADER_BYTES : position + header.size_bytes])
        if header.compression == Compression.NONE:
            assert plain == raw
        # Another gzip gives other bytes; and a raw client may set a base timestamp that is not the first record's.
        if header.compression == Compression.NONE and header.base_timestamp == records[0].timestamp:
            again = build_batch(
                _data(records),
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
                control=header.is_control,
                log_append_time=header.is_log_append_time,
            )
            assert again == bytes(buffer[position : position + header.size_bytes])
        end = position + header.size_bytes
        count += 1
    assert end == len(buffer)
    return count


def test_every_log_of_a_real_kafka_is_read_and_built_again_byte_for_byte() -> None:
    assert sum(_check(path.read_bytes()) for path in log_files()) > 90


def test_every_recorded_batch_on_the_wire_is_read_and_built_again() -> None:
    count, compressions = 0, set()
    for row in wire_rows():
        records = []
        if row["api_key"] == m.ProduceRequest.API_KEY:
            _, request = decode_request(bytes.fromhex(row["request"]))
            assert isinstance(request, m.ProduceRequest)
            records = [p.records for topic in request.topic_data for p in topic.partition_data]
        elif row["api_key"] == m.FetchResponse.API_KEY:
            _, response = decode_response(m.FetchResponse, row["version"], bytes.fromhex(row["response"]))
            records = [p.records for topic in response.responses for p in topic.partitions]
        for buffer in records:
            if isinstance(buffer, memoryview) and buffer:
                count += _check(buffer)
                compressions |= {header.compression for _, header in iter_batches(buffer)}
    assert count > 90
    assert Compression.GZIP in compressions


RECORDS = [
    RecordData(1_700_000_000_000 + 7 * index, key, b"value %d" % index * (index % 5), headers)
    for index, (key, headers) in enumerate(
        [(None, ()), (b"", (("h", b"1"), ("h", None), ("", b""))), (b"k" * 200, (("ü" * 100, b"v" * 200),))] * 300
    )
]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_gives_back_its_records_in_every_compression(codec: Compression) -> None:
    built = build_batch(RECORDS, base_offset=5, leader_epoch=3, compression=codec, producer_id=9, producer_epoch=1)
    header = parse_header(memoryview(built))
    assert header.size_bytes == len(built)
    assert (header.base_offset, header.last_offset, header.next_offset) == (5, 904, 905)
    assert (header.compression, header.leader_epoch, header.magic) == (codec, 3, 2)
    assert record_batch.crc_valid(built, 0, header)
    for buffer in (bytes(built), built, memoryview(built)):
        records = list(iter_records(buffer))
        assert _data(records) == [record._replace(headers=tuple(record.headers)) for record in RECORDS]
        assert [record.offset for record in records] == list(range(5, 905))


@pytest.mark.parametrize("codec", list(Compression))
def test_aiokafka_reads_our_batches_and_we_read_its(codec: Compression) -> None:
    ours = bytes(build_batch(RECORDS, compression=codec))
    theirs = AiokafkaBatch(ours)
    assert theirs.validate_crc()
    records = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert records == [tuple(record) for record in iter_records(ours)]
    builder = AiokafkaBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for index, record in enumerate(RECORDS):
        builder.append(index, record.timestamp_ms, record.key, record.value, list(record.headers))
    built = bytes(builder.build())
    assert list(iter_records(built)) == list(iter_records(ours))
    if codec == Compression.NONE:
        assert built == ours


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_kafka_python_reads_our_batches_and_we_read_its(codec: Compression) -> None:
    ours = bytes(build_batch(RECORDS, compression=codec))
    theirs = KafkaPythonBatch(ours)
    assert theirs.validate_crc()
    records = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert records == [tuple(record) for record in iter_records(ours)]
    builder = KafkaPythonBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for index, record in enumerate(RECORDS):
        builder.append(index, record.timestamp_ms, record.key, record.value, list(record.headers))
    assert list(iter_records(bytes(builder.build()))) == list(iter_records(ours))


def test_offset_and_epoch_are_patched_in_place_without_touching_the_crc() -> None:
    buffer = bytearray(3) + build_batch(RECORDS[:2]) + build_batch(RECORDS[:1])
    view = memoryview(buffer)[3:]
    (first, batch_header), (second, two) = iter_batches(view)
    record_batch.patch_offset_and_epoch(view, first, 100, 7)
    record_batch.patch_offset_and_epoch(view, second, 102, 7)
    (_, new_one), (_, new_two) = iter_batches(view)
    assert new_one == batch_header._replace(base_offset=100, leader_epoch=7)
    assert new_two == two._replace(base_offset=102, leader_epoch=7)
    assert all(record_batch.crc_valid(view, position, header) for position, header in iter_batches(view))


def test_a_log_append_time_replaces_every_timestamp() -> None:
    buffer = build_batch(RECORDS[:3])
    record_batch.patch_max_timestamp(buffer, 0, 42, log_append_time=True)
    header = parse_header(buffer)
    assert header.is_log_append_time
    assert record_batch.crc_valid(buffer, 0, header)
    assert {record.timestamp for record in iter_records(buffer)} == {42}


def test_a_cut_tail_is_left_out_and_garbage_is_refused() -> None:
    batch = build_batch(RECORDS[:2])
    for cut in (1, 11, 12, 60, 61, len(batch) - 1):
        assert [position for position, _ in iter_batches(batch + batch[:cut])] == [0]
    assert list(iter_batches(b"")) == []
    with pytest.raises(DecodeError):
        list(iter_batches(batch + bytes(61)))  # a length of zero
    old = bytearray(batch)
    old[16] = 1
    with pytest.raises(DecodeError):
        list(iter_batches(old))
    assert parse_header(old).magic == 1
    with pytest.raises(DecodeError):
        list(iter_records(old))
    with pytest.raises(DecodeError):
        list(iter_records(batch[:-1]))
    with pytest.raises(DecodeError):
        parse_header(batch, 1 << 20)


def test_a_wrong_crc_is_seen() -> None:
    good = build_batch(RECORDS[:2])
    header = parse_header(good)
    for position in (17, 21, 22, 40, 60, 61, len(good) - 1):
        bad = bytearray(good)
        bad[position] ^= 1
        assert not record_batch.crc_valid(bad, 0, parse_header(bad))
    assert not record_batch.crc_valid(good[:-1], 0, header)


def _with_count(buffer: bytearray, count: int) -> bytearray:
    changed = bytearray(buffer)
    changed[57:61] = count.to_bytes(4, "big", signed=True)
    return changed


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("count", [-1, 0, 1, 3, 1_000_000, (1 << 31) - 1])
def test_a_record_count_that_is_not_that_of_the_records_is_refused(codec: Compression, count: int) -> None:
    with pytest.raises(DecodeError):
        list(iter_records(_with_count(build_batch(RECORDS[:2], compression=codec), count)))


def test_a_codec_that_does_not_exist_and_a_wrong_codec_are_refused() -> None:
    for attributes in (1, 2, 3, 4, 5, 6, 7):
        buffer = build_batch(RECORDS[:50])
        buffer[22] = attributes
        with pytest.raises(DecodeError):
            list(iter_records(buffer))


def test_broken_records_are_refused_as_decode_errors() -> None:
    rng = Random(7)
    good = build_batch([RecordData(index, b"k", b"v", (("h", b"x"),)) for index in range(20)])
    refused = 0
    for _ in range(4000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(61, len(bad))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        try:
            list(iter_records(bad))
        except DecodeError:
            refused += 1
    assert refused > 2000


def test_sequences_wrap_after_the_largest_int() -> None:
    header = parse_header(build_batch(RECORDS[:3], producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert header.last_sequence == 0
    assert parse_header(build_batch(RECORDS[:3])).last_sequence == -1


def test_a_batch_without_records_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def test_compaction_leaves_offsets_with_holes_readable() -> None:
    body = encode_record(RecordData(10, b"a", b"1"), 0, 0) + encode_record(RecordData(30, b"b", None), 20, 4)
    buffer = build_batch([RecordData(10, b"a", b"1"), RecordData(30, b"b", None)], base_offset=100)
    buffer[61:] = compress(0, body)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(buffer)] == [
        (100, 10, b"a", b"1"),
        (104, 30, b"b", None),
    ]


def test_control_batches_of_a_real_kafka_are_built_again() -> None:
    built = 0
    for path in log_files():
        buffer = path.read_bytes()
        for position, header in iter_batches(buffer):
            if not header.is_control:
                continue
            (record,) = iter_records(buffer, position)
            place = {"base_offset": header.base_offset, "leader_epoch": header.leader_epoch}
            time = header.base_timestamp
            match control_records.control_type(record.key):
                case control_records.ControlType.ABORT | control_records.ControlType.COMMIT as kind:
                    again = control_records.end_txn_marker(
                        commit=kind == control_records.ControlType.COMMIT,
                        producer_id=header.producer_id,
                        producer_epoch=header.producer_epoch,
                        coordinator_epoch=control_records.marker_epoch(record.value),
                        timestamp_ms=time,
                        **place,
                    )
                case control_records.ControlType.SNAPSHOT_HEADER:
                    last = int.from_bytes((record.value or b"")[2:10], "big")
                    again = control_records.snapshot_header(
                        last_contained_log_timestamp_ms=last, timestamp_ms=time, **place
                    )
                case control_records.ControlType.SNAPSHOT_FOOTER:
                    again = control_records.snapshot_footer(timestamp_ms=time, **place)
                case other:
                    raise AssertionError(other)
            assert again == buffer[position : position + header.size_bytes]
            built += 1
    assert built >= 8


def test_a_leader_change_names_the_voters() -> None:
    buffer = control_records.leader_change(
        leader_id=2, voters=[1, 2, 3], granting_voters=[1, 2], timestamp_ms=5, base_offset=9, leader_epoch=4
    )
    (record,) = iter_records(buffer)
    assert record.key == bytes.fromhex("0000 0002")
    assert record.value == bytes.fromhex(
        "0000 00000002 04 00000001 00 00000002 00 00000003 00 03 00000001 00 00000002 00 00"
    )
    assert parse_header(buffer).is_control


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_broken_control_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(DecodeError):
        control_records.control_type(key)
    with pytest.raises(DecodeError):
        control_records.marker_epoch(key)
