"""Kafka records to Arrow, without Spark."""

from __future__ import annotations

import json

import pytest

from backend.protocol.remote_log_metadata import SegmentSnapshot, SegmentState, encode
from spark.decode import RAW_VALUE_BYTES_MAX, to_batch
from spark.schemas import RECORD_ARROW, RECORD_SCHEMA
from tests.spark.records import CAPTURED, captured, delete_partition, life, log, raw


@pytest.mark.parametrize("file", CAPTURED)
def test_every_captured_record_becomes_the_event_kafka_decoded(file: str) -> None:
    lines = sorted(captured(file), key=lambda line: (line["partition"], line["offset"]))
    for row, line in zip(to_batch(raw(lines)).to_pylist(), lines, strict=True):
        kafka = line["decoded"]
        assert row["problem"] is None
        assert (row["metadata_partition"], row["metadata_offset"]) == (line["partition"], line["offset"])
        assert (row["kind"], row["record_timestamp_ms"]) == (kafka["apiKey"], line["timestamp"])
        assert row["broker_id"] == kafka["BrokerId"]
        assert row["event_timestamp_ms"] == kafka["EventTimestampMs"]
        segment_id = kafka["RemoteLogSegmentId"]
        partition = segment_id["TopicIdPartition"]
        assert (row["topic"], row["topic_id"], row["partition"]) == (
            partition["Name"],
            partition["Id"],
            partition["Partition"],
        )
        assert (row["segment_id"], row["state"]) == (segment_id["Id"], kafka["RemoteLogSegmentState"])
        if kafka["apiKey"] == 0:
            assert (row["start_offset"], row["end_offset"]) == (kafka["StartOffset"], kafka["EndOffset"])
            assert row["max_timestamp_ms"] == kafka["MaxTimestampMs"]
            assert row["segment_size_bytes"] == kafka["SegmentSizeInBytes"]
            epochs = [[epoch["LeaderEpoch"], epoch["Offset"]] for epoch in kafka["SegmentLeaderEpochs"]]
            assert json.loads(row["leader_epochs"]) == epochs
            assert row["txn_index_empty"] == kafka.get("TxnIndexEmpty", False)


def test_a_partition_delete_has_no_segment() -> None:
    rows = to_batch(log(delete_partition())).to_pylist()
    assert [(row["kind"], row["segment_id"], row["state"]) for row in rows] == [
        (2, None, 0),
        (2, None, 1),
        (2, None, 2),
    ]


def test_an_empty_read_gives_an_empty_batch_of_the_same_shape() -> None:
    batch = to_batch([])
    assert batch.num_rows == 0
    assert batch.schema == RECORD_ARROW


def test_arrow_and_spark_schema_name_the_same_columns() -> None:
    assert RECORD_SCHEMA.names == RECORD_ARROW.names
    assert [field.nullable for field in RECORD_SCHEMA] == [field.nullable for field in RECORD_ARROW]


def test_what_cannot_be_read_keeps_place_reason_and_the_start_of_the_value() -> None:
    value = b"\x00" * (RAW_VALUE_BYTES_MAX + 7)
    (row,) = to_batch([(3, 14, 15, b"k", value)]).to_pylist()
    assert (row["metadata_partition"], row["metadata_offset"], row["record_timestamp_ms"]) == (3, 14, 15)
    assert row["problem"].startswith("frame-version: ")
    assert f"of {len(value)} bytes" in row["problem"]
    assert (row["raw_key"], row["raw_value"]) == (b"k", value[:RAW_VALUE_BYTES_MAX])
    assert row["kind"] is None


def test_a_snapshot_record_is_no_event() -> None:
    snapshot = SegmentSnapshot(bytes(16), 0, 9, 1, 5, 6, ((0, 0),), 100, None, SegmentState.COPY_SEGMENT_FINISHED)
    (row,) = to_batch([(0, 0, 0, None, encode(snapshot))]).to_pylist()
    assert "snapshot" in row["problem"]


def test_one_bad_record_does_not_touch_its_neighbours() -> None:
    before, after = log(life(1)), log(life(2), first=5)
    rows = to_batch([*before, (0, 4, 0, None, None), *after]).to_pylist()
    assert [row["problem"] is None for row in rows] == [True] * 4 + [False] + [True] * 4
