"""Records of consumer groups byte for byte as Kafka 4.3.1 writes them, what is written when, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.engine.coordinator.group.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    Current,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from backend.engine.coordinator.group.consumer.consumer_group_records import ConsumerGroupRecord, changes
from backend.engine.coordinator.group.group_records import decode_record
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_codec import RecordData

A = b"a" * 16
SAID = Subscription("rdkafka", "/127.0.0.1", topics=frozenset({"dumped"}), rebalance_timeout_ms=300_000)
MEMBER = ConsumerMember("m", SAID, Current(3, 2, MemberState.UNREVOKED_PARTITIONS, {(A, 0): 2, (A, 2): 3}, {(A, 1): 2}))
GROUP = ConsumerGroup(
    "g",
    epoch=4,
    metadata_hash=-5,
    assignment_epoch=3,
    assignment_time_ms=7,
    members={"m": MEMBER},
    targets={"m": frozenset({(A, 0), (A, 2)})},
    regexes={"d.*": ResolvedRegex(frozenset({"dumped"}), 9, 8)},
)


def rebuilt(records: list[RecordData], group: ConsumerGroup) -> ConsumerGroup:
    for record in records:
        read = decode_record(record.key, record.value)
        assert isinstance(read, ConsumerGroupRecord)
        group = read.apply(group)
    return group


def kinds(records: list[RecordData]) -> list[tuple[int, bool]]:
    """(kind of the key, whether it deletes) of each."""
    return [(int.from_bytes(record.key[:2]), record.value is None) for record in records if record.key is not None]


def test_a_member_is_written_as_kafka_writes_it() -> None:
    # Read from the log of a real broker: a member of librdkafka, with no classic part (an empty tagged field).
    written = changes(None, GROUP, 0)[0]
    assert written.key == b"\x00\x05\x00\x01g\x00\x01m"
    assert written.value == bytes.fromhex(
        "0000 00 00 0872646b61666b61 0b2f3132372e302e302e31 02 0764756d706564 01 000493e0 00 01 00 01 00"
    )


def test_a_group_is_written_in_kafkas_order_and_read_back() -> None:
    records = changes(None, GROUP, 0)
    assert kinds(records) == [(kind, False) for kind in (5, 16, 3, 7, 6, 8)]
    assert rebuilt(records, ConsumerGroup("g")) == GROUP


def test_only_what_has_changed_is_written() -> None:
    assert changes(GROUP, GROUP, 0) == []
    moved = replace(MEMBER, current=replace(MEMBER.current, state=MemberState.STABLE, revoking={}))
    assert kinds(changes(GROUP, replace(GROUP, members={"m": moved}), 0)) == [(8, False)]
    # Times of this broker's clock are nobody else's.
    waiting = replace(MEMBER, session_deadline_ms=5.0, rebalance_deadline_ms=6.0)
    assert changes(GROUP, replace(GROUP, members={"m": waiting}, topics_version=3), 0) == []


def test_a_member_that_goes_takes_its_records_along() -> None:
    left = replace(GROUP, epoch=5, metadata_hash=0, members={}, targets={}, regexes={})
    records = changes(GROUP, left, 0)
    assert kinds(records) == [(8, True), (7, True), (5, True), (16, True), (3, False)]
    assert rebuilt(records, GROUP) == left


def test_a_group_that_goes_leaves_nothing() -> None:
    records = changes(GROUP, None, 0)
    assert kinds(records) == [(8, True), (7, True), (5, True), (16, True), (6, True), (3, True)]
    assert rebuilt(records, GROUP) == ConsumerGroup("g")


def test_a_classic_member_keeps_what_it_said_when_it_joined() -> None:
    classic = replace(
        SAID, instance_id="one", rack_id="r", classic=ClassicMember(5, (("range", b"x"), ("sticky", b"")))
    )
    group = replace(GROUP, members={"m": replace(MEMBER, subscription=classic)})
    assert rebuilt(changes(None, group, 0), ConsumerGroup("g")) == group


def test_partitions_without_epochs_got_theirs_with_the_members() -> None:
    """As versions before 4.3 wrote them."""
    key = b"\x00\x08\x00\x01g\x00\x01m"
    value = bytes.fromhex("0000 00000003 00000002 00 02") + A + bytes.fromhex("03 00000000 00000004 00 01 00")
    group = rebuilt([RecordData(0, key, value)], ConsumerGroup("g"))
    assert group.members["m"].current == Current(3, 2, MemberState.STABLE, {(A, 0): 3, (A, 4): 3})


def test_a_state_of_a_newer_version_is_unknown() -> None:
    key, value = b"\x00\x08\x00\x01g\x00\x01m", bytes.fromhex("0000 00000003 00000002 55 01 01 00")
    group = rebuilt([RecordData(0, key, value)], ConsumerGroup("g"))
    assert group.members["m"].current.state is MemberState.UNKNOWN


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00\x00", b"\x00\x09" + bytes(30)])
def test_damaged_records_are_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(b"\x00\x08\x00\x01g\x00\x01m", value)
