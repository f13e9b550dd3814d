"""Kafka records to Arrow, without Spark."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyarrow.compute
import pytest

from backend.protocol.remote_log.metadata_serde import SegmentSnapshot, SegmentState, encode
from backend.tiering.bulk_events import split
from spark.decode import RAW_VALUE_BYTES_MAX, to_batch
from spark.schemas import RECORD_ARROW, RECORD_SCHEMA
from tests.effort import effort
from tests.spark.records import CAPTURED, captured, delete_partition, life, log, mixed, raw


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


@pytest.mark.parametrize("seed", range(effort(4, 200)))
def test_bulk_and_one_by_one_give_the_same_columns_whatever_is_in_the_bytes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    records = [(p, o, t, key, damaged(value, chance)) for p, o, t, key, value in mixed(600, seed=seed)]
    records += log([*life(1, topic="ünlike"), *life(2, topic="x" * 200)], partition=9)
    chance.shuffle(records)
    bulk = to_batch(records)
    monkeypatch.setattr("backend.tiering.bulk_events.GROUP_MIN", len(records) + 1)
    assert bulk.equals(to_batch(records))
    assert pa.compute.sum(bulk["problem"].is_null()).as_py() > 300
    assert bulk["problem"].null_count < len(records)


def damaged(value: bytes | None, chance: random.Random) -> bytes | None:
    """The value; one of four has another byte somewhere."""
    if not value or chance.random() > 0.25:
        return value
    at = chance.randrange(len(value))
    return value[:at] + bytes([chance.choice([0, 1, 2, 127, 128, 255, chance.randrange(256)])]) + value[at + 1 :]


def test_most_of_a_usual_topic_is_decoded_in_bulk() -> None:
    values = [value for *_, value in mixed(2_000)]
    groups, rest = split(values)
    assert len(rest) < 0.1 * len(values)
    assert sorted([*rest, *(at for group in groups for at in group.positions.tolist())]) == list(range(len(values)))
