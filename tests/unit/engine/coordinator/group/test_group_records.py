"""Records of `__consumer_offsets` byte for byte as Kafka 4.3.1 writes them, and back."""

from __future__ import annotations

from struct import pack

import pytest

from backend.engine.coordinator.group.classic.classic_group import Group, GroupState, Member
from backend.engine.coordinator.group.group_records import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    coordinator_partition,
    decode_record,
    encode_group,
    encode_group_tombstone,
    encode_offset,
)
from backend.protocol.errors import DecodeError
from backend.tiering.ids import TopicPartition

NOW_MS = 1_700_000_000_000
ORDERS_1 = TopicPartition("orders", 1)
TOPIC_ID = bytes(range(1, 17))
OFFSET_KEY = b"\x00\x01\x00\x01g\x00\x06orders\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("group", "partition"),
    # Math.abs(groupId.hashCode()) % 50 in Java; "polygenelubricants" has the smallest int, which counts as 0.
    [
        ("", 0),
        ("g", 3),
        ("console-consumer-1", 24),
        ("my-group", 12),
        ("polygenelubricants", 0),
        ("Größe", 35),
        ("😀", 49),
    ],
)
def test_groups_go_to_the_partition_that_java_computes(group: str, partition: int) -> None:
    assert coordinator_partition(group, 50) == partition


def test_an_offset_is_written_in_version_4_with_its_topic_id() -> None:
    record = encode_offset(
        OffsetRecord("g", ORDERS_1, CommittedOffset(42, 7, "note", NOW_MS, topic_id=TOPIC_ID)), NOW_MS
    )
    assert record.key == OFFSET_KEY
    # A flexible version: compact string, and the topic id as tagged field 0.
    assert (
        record.value == b"\x00\x04" + pack(">qi", 42, 7) + b"\x05note" + pack(">q", NOW_MS) + b"\x01\x00\x10" + TOPIC_ID
    )


def test_an_offset_with_its_own_expiry_is_written_in_version_1() -> None:
    committed = CommittedOffset(42, 7, "note", NOW_MS, expire_time_ms=NOW_MS + 5)
    record = encode_offset(OffsetRecord("g", ORDERS_1, committed), NOW_MS)
    assert record.value == b"\x00\x01" + pack(">q", 42) + b"\x00\x04note" + pack(">qq", NOW_MS, NOW_MS + 5)
    assert decode_record(record.key, record.value) == OffsetRecord(
        "g", ORDERS_1, CommittedOffset(42, -1, "note", NOW_MS, NOW_MS + 5)
    )


def test_a_group_is_written_in_version_3_and_read_back() -> None:
    member = Member("m1", "one", "client", "/127.0.0.1", 10_000, 30_000, (("range", b"meta"),), b"assigned")
    group = Group("g", GroupState.STABLE, 5, "consumer", "range", "m1", {"m1": member})
    record = encode_group(group, NOW_MS)
    assert record.key == b"\x00\x02\x00\x01g"
    assert record.value == (
        b"\x00\x03" b"\x00\x08consumer" + pack(">i", 5) + b"\x00\x05range" b"\x00\x02m1" + pack(">qi", NOW_MS, 1)
        + b"\x00\x02m1" b"\x00\x03one" b"\x00\x06client" b"\x00\x0a/127.0.0.1" + pack(">ii", 30_000, 10_000)
        + b"\x00\x00\x00\x04meta" b"\x00\x00\x00\x08assigned"
    )  # fmt: skip
    assert decode_record(record.key, record.value) == GroupRecord("g", group, NOW_MS)


def test_an_empty_group_keeps_its_generation_and_type() -> None:
    group = Group("g", GroupState.EMPTY, 6, "consumer")
    record = encode_group(group, NOW_MS)
    assert decode_record(record.key, record.value) == GroupRecord("g", group, NOW_MS)


def test_records_without_a_value_delete() -> None:
    offset, group = encode_offset(OffsetRecord("g", ORDERS_1, None), NOW_MS), encode_group_tombstone("g", NOW_MS)
    assert (offset.value, group.value) == (None, None)
    assert decode_record(offset.key, None) == OffsetRecord("g", ORDERS_1, None)
    assert decode_record(group.key, None) == GroupRecord("g", None)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    head = pack(">hq", version, 42)
    note = b"\x05note" if version == 4 else b"\x00\x04note"
    value = {
        0: head + note + pack(">q", NOW_MS),
        1: head + note + pack(">qq", NOW_MS, -1),
        2: head + note + pack(">q", NOW_MS),
        3: head + pack(">i", 7) + note + pack(">q", NOW_MS),
        4: head + pack(">i", 7) + note + pack(">q", NOW_MS) + b"\x00",
    }[version]
    epoch = 7 if version >= 3 else -1
    expected = OffsetRecord("g", ORDERS_1, CommittedOffset(42, epoch, "note", NOW_MS))
    assert decode_record(OFFSET_KEY, value) == expected
    # The key of clients before 0.9.
    assert decode_record(b"\x00\x00" + OFFSET_KEY[2:], value) == expected


def test_records_of_other_kinds_are_passed_over() -> None:
    # ShareGroupMetadata
    assert decode_record(b"\x00\x0b\x00\x01g", b"\x00\x00\x00\x00\x00\x01") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00", b""), (OFFSET_KEY[:-1], None), (OFFSET_KEY, b"\x00"), (OFFSET_KEY, b"\x00\x63" + bytes(40)),
     (OFFSET_KEY, b"\x00\x03\x00"), (b"\x00\x02\x00\x01g", b"\x00\x03\xff")],
)  # fmt: skip
def test_damaged_records_are_a_decode_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(key, value)
