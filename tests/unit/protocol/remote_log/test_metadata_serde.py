"""Values of `__remote_log_metadata`: golden bytes, the records of a real Kafka, and what is set aside."""

from random import Random

import pytest

from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import EncodeError
from backend.protocol.ids import TopicIdPartition, uuid_bytes
from backend.protocol.remote_log.generated_decoder import decode_by_table
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentState,
    SegmentUpdate,
    Unreadable,
    UnreadableReason,
    decode,
    encode,
    metadata_partition,
)
from tests.unit.protocol.kafka_fixtures import metadata_rows

TOPIC_ID = bytes(range(0x01, 0x11))
SEGMENT_ID = bytes(range(0x11, 0x21))
ORDERS = TopicIdPartition("orders", TOPIC_ID, 0)
HEAD = "076f7264657273 0102030405060708090a0b0c0d0e0f10 00000000 00"
BODY = "0000000000000003 0000000000000005 00000001 0000018bcfe5687b 0000018bcfe56be8"
EPOCHS = "03 00000001 0000000000000003 00 00000002 0000000000000005 00"

STARTED = SegmentMetadata(
    topic_id_partition=ORDERS,
    segment_id=SEGMENT_ID,
    start_offset=3,
    end_offset=5,
    broker_id=1,
    max_timestamp_ms=1_700_000_000_123,
    event_timestamp_ms=1_700_000_001_000,
    segment_leader_epochs=((1, 3), (2, 5)),
    segment_size_bytes=4096,
    custom_metadata=None,
    state=SegmentState.COPY_SEGMENT_STARTED,
    txn_index_empty=True,
)
FINISHED = SegmentUpdate(
    ORDERS, SEGMENT_ID, 1, 1_700_000_002_000, b"\x01\x02\x03\x04", SegmentState.COPY_SEGMENT_FINISHED
)
MARKED = PartitionDelete(ORDERS, 7, 1_700_000_003_000, PartitionDeleteState.DELETE_PARTITION_MARKED)
SNAPSHOT = SegmentSnapshot(*STARTED[1:10], SegmentState.COPY_SEGMENT_FINISHED, True)

UPDATE_HEAD = f"010100 {HEAD} 1112131415161718191a1b1c1d1e1f20 00 00000001 0000018bcfe56fd0"
SEGMENT = "1112131415161718191a1b1c1d1e1f20"
GOLDEN = [
    (STARTED, f"010000 {HEAD} {SEGMENT} 00 {BODY} {EPOCHS} 00001000 00 00 01000101", 121),
    (STARTED._replace(txn_index_empty=False), f"010000 {HEAD} {SEGMENT} 00 {BODY} {EPOCHS} 00001000 00 00 00", 118),
    (FINISHED, f"{UPDATE_HEAD} 0501020304 01 00", 67),
    (FINISHED._replace(custom_metadata=None), f"{UPDATE_HEAD} 00 01 00", 63),
    (FINISHED._replace(custom_metadata=b""), f"{UPDATE_HEAD} 01 01 00", 63),
    (MARKED, f"010200 {HEAD} 00000007 0000018bcfe573b8 00 00", 45),
    (SNAPSHOT, f"010300 {SEGMENT} {BODY} {EPOCHS} 00001000 00 01 01000101", 92),
]


@pytest.mark.parametrize(("event", "text", "size"), GOLDEN)
def test_worked_bytes(event: RemoteLogMetadata, text: str, size: int) -> None:
    value = bytes.fromhex(text)
    assert len(value) == size
    assert encode(event) == value
    for buffer in (value, bytearray(value), memoryview(value)):
        assert decode(buffer) == event
    assert type(decode(value)) is type(event)
    assert decode_by_table(value) == event


def test_every_record_of_a_real_kafka_is_read_and_written_back_byte_for_byte() -> None:
    rows = metadata_rows()
    assert len(rows) > 60
    for row in rows:
        value, decoded = bytes.fromhex(row["value"]), row["decoded"]
        event = decode(value)
        assert encode(event) == value
        assert decode_by_table(value) == event
        assert not isinstance(event, SegmentSnapshot)
        partition = (decoded.get("RemoteLogSegmentId") or decoded)["TopicIdPartition"]
        expected = TopicIdPartition(partition["Name"], uuid_bytes(partition["Id"]), partition["Partition"])
        assert event.topic_id_partition == expected
        assert event.broker_id == decoded["BrokerId"]
        assert event.event_timestamp_ms == decoded["EventTimestampMs"]
        assert event.state.name == decoded["stateName"]
        if isinstance(event, SegmentMetadata):
            assert (event.start_offset, event.end_offset) == (decoded["StartOffset"], decoded["EndOffset"])
            assert event.segment_leader_epochs == tuple(
                (entry["LeaderEpoch"], entry["Offset"]) for entry in decoded["SegmentLeaderEpochs"]
            )
            assert event.segment_size_bytes == decoded["SegmentSizeInBytes"]
            assert event.txn_index_empty == decoded.get("TxnIndexEmpty", False)
        assert metadata_partition(expected.topic_id, expected.partition, 5) == row["partition"]


def _random_event(rng: Random) -> RemoteLogMetadata:
    name = rng.choice(("orders", "a", "t" * 125, "t" * 126, "t" * 249, "ünï"))
    tip = TopicIdPartition(name, rng.randbytes(16), rng.choice((0, 1, 1 << 30)))
    custom = rng.choice((None, b"", b"x", rng.randbytes(125), rng.randbytes(126), rng.randbytes(127), bytes(300)))
    broker, time = rng.choice((-1, 0, 1, 1 << 30)), rng.choice((-1, 0, 1_700_000_000_000))
    start = rng.choice((0, 1, 1 << 40))
    epochs = tuple((epoch, start + epoch) for epoch in range(rng.choice((1, 2, 3, 126, 127, 130))))
    state = rng.choice(list(SegmentState))
    rest = (start, start + 9, broker, time, time, epochs, rng.choice((0, 1 << 30)), custom, state, rng.random() < 0.5)
    return rng.choice(
        (
            SegmentMetadata(tip, rng.randbytes(16), *rest),
            SegmentUpdate(tip, rng.randbytes(16), broker, time, custom, state),
            PartitionDelete(tip, broker, time, rng.choice(list(PartitionDeleteState))),
            SegmentSnapshot(rng.randbytes(16), *rest),
        )
    )


def test_the_hand_written_reader_and_writer_agree_with_the_message_tables() -> None:
    rng = Random(3)
    for _ in range(2000):
        event = _random_event(rng)
        value = encode(event)
        assert decode(value) == event
        assert decode_by_table(value) == event
        cls = m.record_class("remote-log-metadata", value[1])
        message, end = codec.decode(cls, 0, value, 3)
        assert end == len(value)
        assert codec.encode(message, 0) == value[3:]


def test_unknown_tagged_fields_are_skipped_wherever_they_stand() -> None:
    tag = "01 07 02 aabb"
    for text in (
        f"010000 {HEAD} {SEGMENT} 00 {BODY} {EPOCHS} 00001000 00 00 02 00 01 01 07 02 aabb",
        f"010000 {HEAD[:-2]}{tag} {SEGMENT} 00 {BODY} {EPOCHS} 00001000 00 00 01000101",
        f"010000 {HEAD} {SEGMENT} {tag} {BODY} {EPOCHS} 00001000 00 00 01000101",
        f"010000 {HEAD} {SEGMENT} 00 {BODY} {EPOCHS[:-2]}{tag} 00001000 00 00 01000101",
    ):
        assert decode(bytes.fromhex(text)) == STARTED
    assert decode(bytes.fromhex(f"010200 {HEAD} 00000007 0000018bcfe573b8 00 {tag}")) == MARKED
    assert decode(bytes.fromhex(f"{UPDATE_HEAD} 0501020304 01 {tag}")) == FINISHED
    explicit = f"010000 {HEAD} {SEGMENT} 00 {BODY} {EPOCHS} 00001000 00 00 01000100"
    assert decode(bytes.fromhex(explicit)) == STARTED._replace(txn_index_empty=False)


def test_varints_may_be_longer_than_they_need() -> None:
    assert decode(bytes.fromhex(f"8100 8200 8000 {HEAD} 00000007 0000018bcfe573b8 00 00")) == MARKED


DELETE_TAIL = "00000007 0000018bcfe573b8"
EMPTY_EPOCHS = f"010000 {HEAD} {SEGMENT} 00 {BODY} 01 00001000 00 00 00"
BACKWARDS = BODY.replace("0000000000000005", "0000000000000002")
NEGATIVE = BODY.replace("0000000000000003", "ffffffffffffffff")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", UnreadableReason.EMPTY),
        ("00", UnreadableReason.FRAME_VERSION),
        (f"000200 {HEAD} {DELETE_TAIL} 00 00", UnreadableReason.FRAME_VERSION),
        (f"020200 {HEAD} {DELETE_TAIL} 00 00", UnreadableReason.FRAME_VERSION),
        ("7b22612222", UnreadableReason.FRAME_VERSION),  # somebody's JSON
        ("010400", UnreadableReason.RECORD_KEY),
        ("01ff0100", UnreadableReason.RECORD_KEY),
        (f"010201 {HEAD} {DELETE_TAIL} 00 00", UnreadableReason.RECORD_VERSION),
        (f"010200 {HEAD} {DELETE_TAIL} 00 00 00", UnreadableReason.TRAILING_BYTES),
        (f"{UPDATE_HEAD} 00 01 00 ff", UnreadableReason.TRAILING_BYTES),
        (f"010000 {HEAD} {SEGMENT} 00 {BODY} {EPOCHS} 00001000 00 00 01000101 00", UnreadableReason.TRAILING_BYTES),
        ("01", UnreadableReason.MALFORMED),
        ("0102", UnreadableReason.MALFORMED),
        ("010200", UnreadableReason.MALFORMED),
        (f"010200 {HEAD} {DELETE_TAIL} 00", UnreadableReason.MALFORMED),
        ("010200 00", UnreadableReason.MALFORMED),  # a null name
        ("010200 03 c328 0102030405060708090a0b0c0d0e0f10 00000000 00 00000007 0000018bcfe573b8 00 00", "malformed"),
        (f"{UPDATE_HEAD} ffffffff0f 01 00", UnreadableReason.MALFORMED),
        (f"010000 {HEAD} {SEGMENT} 00 {BODY} ffffffff0f 00", UnreadableReason.MALFORMED),
        (f"010000 {HEAD} {SEGMENT} 00 {BODY} 00 00001000 00 00 00", UnreadableReason.MALFORMED),  # null epochs
        (f"010200 {HEAD} {DELETE_TAIL} 03 00", UnreadableReason.INVALID_VALUE),
        (f"010200 {HEAD} {DELETE_TAIL} ff 00", UnreadableReason.INVALID_VALUE),
        (f"{UPDATE_HEAD} 00 04 00", UnreadableReason.INVALID_VALUE),
        (f"{UPDATE_HEAD} 00 ff 00", UnreadableReason.INVALID_VALUE),
        (f"010000 {HEAD} {SEGMENT} 00 {BODY} {EPOCHS} 00001000 00 80 00", UnreadableReason.INVALID_VALUE),
        (EMPTY_EPOCHS, UnreadableReason.INVALID_VALUE),
        (f"010000 {HEAD} {SEGMENT} 00 {BACKWARDS} {EPOCHS} 00001000 00 00 00", UnreadableReason.INVALID_VALUE),
        (f"010300 {SEGMENT} {NEGATIVE} {EPOCHS} 00001000 00 00 00", UnreadableReason.INVALID_VALUE),
    ],
)
def test_a_value_that_kafka_would_not_read_says_why(text: str, reason: UnreadableReason) -> None:
    with pytest.raises(Unreadable) as caught:
        decode(bytes.fromhex(text))
    assert caught.value.reason == reason
    assert str(caught.value)


def test_a_record_without_a_value_is_unreadable() -> None:
    with pytest.raises(Unreadable) as caught:
        decode(None)
    assert caught.value.reason is UnreadableReason.EMPTY


def test_values_cut_off_anywhere_or_with_random_bytes_are_events_or_unreadable() -> None:
    rng = Random(11)
    for event, text, _ in GOLDEN:
        value = bytes.fromhex(text)
        for end in range(len(value)):
            with pytest.raises(Unreadable):
                decode(value[:end])
        for _ in range(300):
            broken = bytearray(value)
            broken[rng.randrange(len(broken))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            try:
                assert isinstance(decode(broken), type(event) | RemoteLogMetadata)
            except Unreadable:
                continue


def test_impossible_segments_cannot_be_written() -> None:
    for event in (
        STARTED._replace(start_offset=-1),
        STARTED._replace(end_offset=2),
        STARTED._replace(segment_leader_epochs=()),
        STARTED._replace(segment_id=b"short"),
        STARTED._replace(segment_size_bytes=1 << 31),
        STARTED._replace(topic_id_partition=TopicIdPartition("orders", b"", 0)),
        FINISHED._replace(broker_id=1 << 31),
        SNAPSHOT._replace(segment_leader_epochs=()),
    ):
        with pytest.raises(EncodeError):
            encode(event)


def test_an_update_replaces_broker_time_custom_metadata_and_state_and_keeps_the_rest() -> None:
    later = STARTED._replace(custom_metadata=b"old").updated(FINISHED._replace(custom_metadata=None, broker_id=3))
    assert later == STARTED._replace(
        broker_id=3,
        event_timestamp_ms=FINISHED.event_timestamp_ms,
        custom_metadata=None,
        state=SegmentState.COPY_SEGMENT_FINISHED,
    )


def test_the_partitioner_hashes_id_and_partition_and_not_the_text() -> None:
    assert [metadata_partition(TOPIC_ID, partition, 50) for partition in range(4)] == [13, 41, 44, 37]
    assert [metadata_partition(TOPIC_ID, partition, 3) for partition in range(4)] == [1, 0, 1, 2]
    assert metadata_partition(uuid_bytes("jF8s79t9SrG_PNqlwv7bAA"), 0, 50) == 30
    with pytest.raises(EncodeError):
        metadata_partition(b"short", 0, 50)
