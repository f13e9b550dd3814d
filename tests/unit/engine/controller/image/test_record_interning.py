"""Partitions and their changes read in bulk are what one by one they would be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.image.record_interning import InterningDecoder
from backend.engine.controller.image.replay import (
    ImageBuilder,
    PartitionChanged,
    PartitionCreated,
    ReplayError,
    new_partition,
)
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
    decoder = InterningDecoder()
    for record in RECORDS * 2:
        value = cluster_metadata.encode(record, version)
        expected = cluster_metadata.decode(value)[0]
        assert isinstance(expected, m.PartitionRecord)
        created = decoder.decode(value)
        assert created == PartitionCreated(record.topic_id, record.partition_id, new_partition(expected))


def test_partitions_that_are_alike_share_one_value() -> None:
    decoder = InterningDecoder()
    first, second, other = (decoder.decode(cluster_metadata.encode(record, 2)) for record in RECORDS[:3])
    assert isinstance(first, PartitionCreated)
    assert isinstance(second, PartitionCreated)
    assert isinstance(other, PartitionCreated)
    assert first.registration is second.registration is other.registration


CHANGES: tuple[dict[str, object], ...] = (
    {"isr": [1]},
    {"isr": [1], "leader": 1},
    {"leader": -1},
    {"replicas": [2, 3], "removing_replicas": [1], "adding_replicas": [3]},
    {"leader_recovery_state": 1, "directories": DIRECTORIES[::-1]},
    {"eligible_leader_replicas": [2], "last_known_elr": [1]},
    {},
)


def replayed(values: list[bytes], decode: Callable[[bytes], object]) -> MetadataImage:
    builder = ImageBuilder(MetadataImage())
    builder.apply(decode(value) for value in values)
    return builder.finish(len(values), 1)


def test_changed_partitions_are_what_one_by_one_they_would_be() -> None:
    # Partitions with the same past and with other ones, changed alike and otherwise, several times and again.
    places = [(index, topic) for index in range(4) for topic in (TOPIC, OTHER)]
    records: list[m.Message] = [m.TopicRecord(name=name, topic_id=id) for name, id in (("a", TOPIC), ("b", OTHER))]
    records += [partition(index, topic, leader=1 + index % 2) for index, topic in places]
    for change in (*CHANGES, *CHANGES[::-1]):
        for index, topic in places:
            if index < 3 or "isr" not in change:
                records.append(m.PartitionChangeRecord(partition_id=index, topic_id=topic, **change))  # type: ignore[arg-type]  # by name
    values = [cluster_metadata.encode(record, record.MAX_VERSION) for record in records]
    bulk = replayed(values, InterningDecoder().decode)
    assert bulk == replayed(values, lambda value: cluster_metadata.decode(value)[0])
    first, other = (bulk.topics[topic].partitions[0] for topic in (TOPIC, OTHER))
    assert first is other
    assert first != bulk.topics[TOPIC].partitions[3]


def test_a_change_of_an_unknown_partition_is_refused() -> None:
    value = cluster_metadata.encode(m.PartitionChangeRecord(partition_id=5, topic_id=TOPIC, isr=[1]), 2)
    changed = InterningDecoder().decode(value)
    assert isinstance(changed, PartitionChanged)
    topic = m.TopicRecord(name="orders", topic_id=TOPIC)
    with pytest.raises(ReplayError, match=r"partition 5 of topic id 0+7 changes but is unknown"):
        ImageBuilder(MetadataImage()).apply((topic, changed))


CHANGE = m.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1])


@pytest.mark.parametrize("record", [RECORDS[0], CHANGE], ids=["created", "changed"])
def test_other_records_and_broken_ones_are_read_as_ever(record: m.Message) -> None:
    decoder = InterningDecoder()
    topic = m.TopicRecord(name="orders", topic_id=TOPIC)
    assert decoder.decode(cluster_metadata.encode(topic, 0)) == topic
    unknown = decoder.decode(b"\x01\x03\x63rest")
    assert unknown == cluster_metadata.UnknownRecord(3, 99, b"rest")
    whole = cluster_metadata.encode(record, 2)
    decoder.decode(whole)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decoder.decode(whole[:size])
    with pytest.raises(DecodeError):
        decoder.decode(whole + b"\x00")
    with pytest.raises(DecodeError):
        decoder.decode(None)
