"""Records of the metadata topic as KIP-405's formatter and as JSON."""

from __future__ import annotations

import json

import pytest

from backend.cli.remote.record_text import LineFormat, TopicRecord, all_fields, document, line
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    PartitionDeleteState,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentState,
    SegmentUpdate,
    encode,
)
from backend.tiering.ids import TopicIdPartition

TIP = TopicIdPartition("orders", bytes(range(1, 17)), 0)
SEGMENT = bytes(range(17, 33))
STARTED = SegmentMetadata(
    TIP, SEGMENT, 3, 5, 1, 1700000000123, 1700000001000, ((1, 3), (2, 5)), 4096, None,
    SegmentState.COPY_SEGMENT_STARTED, True,
)  # fmt: skip
FINISHED = SegmentUpdate(TIP, SEGMENT, 1, 1700000002000, b"\x01\x02\x03\x04", SegmentState.COPY_SEGMENT_FINISHED)
MARKED = PartitionDelete(TIP, 7, 1700000003000, PartitionDeleteState.DELETE_PARTITION_MARKED)
SNAPSHOT = SegmentSnapshot(SEGMENT, 3, 5, 1, 10, 20, ((1, 3),), 4096, None, SegmentState.COPY_SEGMENT_FINISHED)
PLACE = "topicId:AQIDBAUGBwgJCgsMDQ4PEA,topicName:orders,partition:0"
ID = "{id:ERITFBUWFxgZGhscHR4fIA," + PLACE + "}"


def record(event: SegmentMetadata | SegmentUpdate | PartitionDelete | SegmentSnapshot, offset: int = 9) -> TopicRecord:
    return TopicRecord.of(13, offset, 1700000001001, encode(event))


def form(*properties: str) -> LineFormat:
    made = LineFormat()
    for text in properties:
        made = made.with_property(text)
    return made


def test_by_default_a_line_has_type_and_main_fields() -> None:
    assert [line(record(event), form()) for event in (STARTED, FINISHED, MARKED)] == [
        "type:RemoteLogSegmentMetadata,event-value:{remote-log-segment-id:" + ID + ",start-offset:3,end-offset:5,"
        "broker-id:1,remote-log-segment-state:COPY_SEGMENT_STARTED}",
        "type:RemoteLogSegmentMetadataUpdate,event-value:{remote-log-segment-id:" + ID + ",broker-id:1,"
        "remote-log-segment-state:COPY_SEGMENT_FINISHED}",
        "type:RemotePartitionDeleteMetadata,event-value:{topic-id-partition:{" + PLACE + "},broker-id:7,"
        "remote-partition-delete-state:DELETE_PARTITION_MARKED}",
    ]


def test_properties_add_partition_offset_and_version_with_a_separator_of_choice() -> None:
    expected = form("print.partition=true", "print.message.offset=true", "print.version=true", "separator= | ")
    assert line(record(MARKED), expected) == (
        "partition:13 | message-offset:9 | type:RemotePartitionDeleteMetadata | version:0 | event-value:"
        "{topic-id-partition:{topicId:AQIDBAUGBwgJCgsMDQ4PEA | topicName:orders | partition:0} | broker-id:7 | "
        "remote-partition-delete-state:DELETE_PARTITION_MARKED}"
    )
    assert line(record(MARKED), form("separator=\t", "print.partition=TRUE")).startswith("partition:13\ttype:")


def test_with_all_fields_the_value_is_what_kafkas_classes_print() -> None:
    id_ = "RemoteLogSegmentId{topicIdPartition=AQIDBAUGBwgJCgsMDQ4PEA:orders-0, id=ERITFBUWFxgZGhscHR4fIA}"
    shown = line(record(STARTED), form("print.all.event.value.fields=true"))
    assert shown == "type:RemoteLogSegmentMetadata,event-value:" + all_fields(STARTED)
    assert all_fields(STARTED) == (
        "RemoteLogSegmentMetadata{remoteLogSegmentId=" + id_ + ", startOffset=3, endOffset=5, brokerId=1, "
        "maxTimestampMs=1700000000123, eventTimestampMs=1700000001000, segmentLeaderEpochs={1=3, 2=5}, "
        "segmentSizeInBytes=4096, customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED, txnIdxEmpty=true}"
    )
    assert all_fields(FINISHED) == (
        "RemoteLogSegmentMetadataUpdate{remoteLogSegmentId=" + id_ + ", customMetadata=Optional[CustomMetadata{4 "
        "bytes}], state=COPY_SEGMENT_FINISHED, eventTimestampMs=1700000002000, brokerId=1}"
    )


@pytest.mark.parametrize("text", ["print.partition", "print.partition=yes", "print.everything=true"])
def test_a_wrong_property_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"print\."):
        form(text)


def test_json_has_every_field_and_ids_as_kafka_prints_them() -> None:
    result = document(record(FINISHED))
    assert json.loads(json.dumps(result)) == result
    assert result == {
        "partition": 13, "offset": 9, "timestamp_ms": 1700000001001, "type": "RemoteLogSegmentMetadataUpdate",
        "topic": "orders", "topic_id": "AQIDBAUGBwgJCgsMDQ4PEA", "topic_partition": 0, "version": 0,
        "segment_id": "ERITFBUWFxgZGhscHR4fIA", "broker_id": 1, "event_timestamp_ms": 1700000002000,
        "custom_metadata": "01020304", "state": "COPY_SEGMENT_FINISHED",
    }  # fmt: skip
    assert set(document(record(STARTED))) >= {"start_offset", "end_offset", "segment_leader_epochs", "txn_index_empty"}
    assert document(record(SNAPSHOT))["type"] == "RemoteLogSegmentMetadataSnapshot"


@pytest.mark.parametrize("value", [b"", b"\x01\x09\x00", b"\x02\x00\x00", encode(STARTED)[:-2], encode(STARTED) + b"x"])
def test_what_cannot_be_read_is_shown_with_its_reason(value: bytes) -> None:
    read = TopicRecord.of(13, 9, 0, value)
    assert read.is_unreadable
    assert line(read, form("print.message.offset=true")).startswith(
        "message-offset:9,type:Unreadable,event-value:{problem:"
    )
    assert document(read)["value"] == value.hex()


def test_a_record_without_a_value_is_a_tombstone_and_no_failure() -> None:
    read = TopicRecord.of(13, 9, 0, None)
    assert not read.is_unreadable
    assert line(read, form()) == "type:Tombstone,event-value:null"


def test_a_topic_name_cannot_steer_the_terminal() -> None:
    hostile = MARKED._replace(topic_id_partition=TopicIdPartition("a\x1b[2Jb", bytes(range(1, 17)), 0))
    assert "\x1b" not in line(record(hostile), form())
    assert "\x1b" not in line(record(hostile), form("separator=\t"))
