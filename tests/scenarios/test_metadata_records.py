"""Brokers' records in `__remote_log_metadata`, byte for byte those of a real Kafka in the same life of a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from backend.protocol.record_batches.record_batch import Record, iter_batches, iter_records
from backend.protocol.remote_log.metadata_serde import PartitionDelete, decode, metadata_partition
from backend.tiering.ids import uuid_bytes
from backend.tiering.segment_state import PartitionDeleteState, SegmentState
from tests.scenarios.tiering_lab import Lab, lab, values

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "metadata-records.jsonl"
METADATA: Final = "__remote_log_metadata"
TOPIC: Final = "orders"
PARTITIONS: Final = 5


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("metadata-records"), brokers=2) as started:
        yield started


def written(running: Lab, topic_id: bytes) -> dict[int, list[Record]]:
    """The records about a topic, by metadata partition, in the order of the log."""
    by_partition: dict[int, list[Record]] = {}
    for partition in range(PARTITIONS):
        end = running.log(METADATA, partition).high_watermark
        offset = 0
        while offset < end:
            data = running.fetch(METADATA, offset, partition=partition).records
            for position, header in iter_batches(data):
                offset = header.next_offset
                records = [record for record in iter_records(data, position) if topic_id in bytes(record.value or b"")]
                by_partition.setdefault(partition, []).extend(records)
    return {partition: records for partition, records in by_partition.items() if records}


def kafkas(topic: str, partition: int) -> list[dict[str, Any]]:
    """Kafka's records about a partition, in the order of the log."""
    lines = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
    name = {"Name": topic, "Partition": partition}
    of = [line for line in lines if name.items() <= line["decoded"]["RemoteLogSegmentId"]["TopicIdPartition"].items()]
    return sorted(of, key=lambda line: line["offset"])


def once(value: bytes, old: bytes, new: bytes) -> bytes:
    assert value.count(old) == 1, "the field cannot be told from the others"
    return value.replace(old, new)


def as_of_here(line: dict[str, Any], value: bytes, topic_id: bytes, ids: dict[str, bytes]) -> bytes:
    """Kafka's record with what chance and the clock decide taken from ``value``: ids, event time, segment size."""
    decoded, kafka = line["decoded"], bytes.fromhex(line["value"])
    segment = decoded["RemoteLogSegmentId"]
    kafka = once(kafka, uuid_bytes(segment["TopicIdPartition"]["Id"]), topic_id)
    topic_at = value.index(topic_id)
    # The partition's four bytes and a tag count stand between the two ids.
    ids.setdefault(segment["Id"], value[topic_at + 21 : topic_at + 37])
    kafka = once(kafka, uuid_bytes(segment["Id"]), ids[segment["Id"]])
    event_ms = decoded["EventTimestampMs"].to_bytes(8, "big")
    at = kafka.rindex(event_ms)
    kafka = kafka[:at] + value[at : at + 8] + kafka[at + 8 :]
    if "SegmentSizeInBytes" in decoded:
        at = kafka.rindex(decoded["SegmentSizeInBytes"].to_bytes(4, "big"))
        kafka = kafka[:at] + value[at : at + 4] + kafka[at + 4 :]
    return kafka


def test_records_of_copies_under_three_leaders_are_kafkas(running: Lab) -> None:
    running.create(TOPIC, [(1, 2)], batches=3)
    running.produce(TOPIC, *values(0, 1, 2, 3))
    running.wait_offsets(TOPIC, (0, 0, 4, 2), 1, 2)
    running.move_leader(TOPIC, (2, 1))
    running.produce(TOPIC, *values(4, 5, 6, 7, 8, 9))
    running.wait_offsets(TOPIC, (0, 0, 10, 8), 1, 2)
    running.move_leader(TOPIC, (1, 2))
    running.produce(TOPIC, *values(10, 11, 12))
    running.wait_offsets(TOPIC, (0, 0, 13, 11), 1, 2)
    topic_id = running.log(TOPIC).topic_id_partition.topic_id
    [records] = written(running, topic_id).values()
    expected = kafkas(TOPIC, 0)
    assert [record.key for record in records] == [None] * len(expected)
    ids: dict[str, bytes] = {}
    for record, line in zip(records, expected, strict=True):
        value = bytes(record.value or b"")
        assert value.hex(" ") == as_of_here(line, value, topic_id, ids).hex(" "), line["decoded"]
    assert len(set(ids.values())) == 4


def test_a_deleted_topic_is_told_as_by_kafka_within_the_kips_life_cycle(running: Lab) -> None:
    """Kafka's records of the segments, by the remover where Kafka has the leader; around them those of the partition,
    which Kafka's code never writes.
    """
    topic = "gone"
    running.create(topic, [(2, 1)], batches=3)
    running.produce(topic, *values(*range(7)))
    running.wait_offsets(topic, (0, 0, 7, 5))
    topic_id = running.log(topic).topic_id_partition.topic_id
    remover = running.leader(METADATA, metadata_partition(topic_id, 0, PARTITIONS))
    running.delete_topic(topic)
    expected = kafkas(topic, 0)

    def records_of_topic() -> list[bytes]:
        return [bytes(record.value or b"") for record in next(iter(written(running, topic_id).values()))]

    running.wait("all of it is told", lambda: len(records_of_topic()) >= len(expected) + 3)
    events = [decode(value) for value in records_of_topic()]
    partition = [
        (at, event.state, event.broker_id) for at, event in enumerate(events) if isinstance(event, PartitionDelete)
    ]
    copies = len(expected) - 4
    assert partition == [
        (copies, PartitionDeleteState.DELETE_PARTITION_MARKED, 1),
        (copies + 1, PartitionDeleteState.DELETE_PARTITION_STARTED, remover),
        (len(expected) + 2, PartitionDeleteState.DELETE_PARTITION_FINISHED, remover),
    ]
    ids: dict[str, bytes] = {}
    segments = [
        value for value, event in zip(records_of_topic(), events, strict=True) if not isinstance(event, PartitionDelete)
    ]
    for value, line in zip(segments, expected, strict=True):
        kafka = as_of_here(line, value, topic_id, ids)
        if line["decoded"]["RemoteLogSegmentState"] >= SegmentState.DELETE_SEGMENT_STARTED:
            before = ids[line["decoded"]["RemoteLogSegmentId"]["Id"]] + b"\x00"
            kafka = once(kafka, before + (2).to_bytes(4, "big"), before + remover.to_bytes(4, "big"))
        assert value.hex(" ") == kafka.hex(" "), line["decoded"]
