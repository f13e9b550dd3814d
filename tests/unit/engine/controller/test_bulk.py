"""Partitions read in bulk are what one by one they would be."""

from __future__ import annotations

import pytest

from backend.engine.controller.bulk import BulkDecoder
from backend.engine.controller.replay import PartitionCreated, new_partition
from backend.protocol import cluster_metadata
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError

TOPIC, OTHER = bytes(15) + b"\x07", bytes(15) + b"\x08"
DIRECTORIES = [bytes([number]) * 16 for number in (1, 2)]


def partition(index: int, topic: bytes = TOPIC, **fields: object) -> m.PartitionRecord:
    given: dict[str, object] = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "directories": DIRECTORIES} | fields
    return m.PartitionRecord(partition_id=index, topic_id=topic, leader_epoch=3, partition_epoch=4, **given)  # type: ignore[arg-type]  # by name


RECORDS = (
    partition(0),
    partition(1),
    partition(0, OTHER),
    partition(2, leader=2),
    partition(3, isr=[2]),
    partition(-1),
    partition(4, eligible_leader_replicas=[1], last_known_elr=[2]),
)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_partition_gets_its_own_place_and_its_own_state(version: int) -> None:
    decoder = BulkDecoder()
    for record in RECORDS * 2:
        value = cluster_metadata.encode(record, version)
        expected = cluster_metadata.decode(value)[0]
        assert isinstance(expected, m.PartitionRecord)
        created = decoder.decode(value)
        assert created == PartitionCreated(record.topic_id, record.partition_id, new_partition(expected))


def test_partitions_that_are_alike_share_one_value() -> None:
    decoder = BulkDecoder()
    first, second, other = (decoder.decode(cluster_metadata.encode(record, 2)) for record in RECORDS[:3])
    assert isinstance(first, PartitionCreated)
    assert isinstance(second, PartitionCreated)
    assert isinstance(other, PartitionCreated)
    assert first.registration is second.registration is other.registration


def test_other_records_and_broken_ones_are_read_as_ever() -> None:
    decoder = BulkDecoder()
    topic = m.TopicRecord(name="orders", topic_id=TOPIC)
    assert decoder.decode(cluster_metadata.encode(topic, 0)) == topic
    unknown = decoder.decode(b"\x01\x03\x63rest")
    assert unknown == cluster_metadata.UnknownRecord(3, 99, b"rest")
    whole = cluster_metadata.encode(RECORDS[0], 2)
    decoder.decode(whole)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decoder.decode(whole[:size])
    with pytest.raises(DecodeError):
        decoder.decode(whole + b"\x00")
    with pytest.raises(DecodeError):
        decoder.decode(None)
