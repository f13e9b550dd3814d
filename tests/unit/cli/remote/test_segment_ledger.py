"""The metadata topic against the objects: Kafka's own tree is right, and every kind of damage is named."""

from __future__ import annotations

import json
from collections.abc import Iterator

from backend.cli.remote.record_text import TopicRecord
from backend.cli.remote.segment_ledger import ObjectProblem, SegmentLedger, compare, segment_document
from backend.engine.ports.object_store import open_object_store
from backend.engine.remote.storage.object_store_manager import object_key
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    PartitionDeleteState,
    SegmentState,
    SegmentUpdate,
    encode,
)
from backend.tiering.remote_keys import ROOT
from tests.unit.engine.log.logs import FIXTURES


def captured() -> Iterator[TopicRecord]:
    for text in (FIXTURES / "metadata-records.jsonl").read_text().splitlines():
        row = json.loads(text)
        yield TopicRecord.of(row["partition"], row["offset"], row["timestamp"], bytes.fromhex(row["value"]))


def ledger(*more: TopicRecord) -> SegmentLedger:
    made = SegmentLedger()
    made.apply([*captured(), *more])
    return made


def tree() -> dict[str, int]:
    return dict(open_object_store(str(FIXTURES / "remote")).list(ROOT))


def test_kafkas_own_tree_has_everything_that_its_topic_tells_of() -> None:
    segments = list(ledger().segments())
    assert len(segments) == len([key for key in tree() if key.endswith(".log")])
    assert compare(segments, tree()) == []


def test_missing_orphaned_and_cut_objects_are_told_apart() -> None:
    segments, objects = list(ledger().segments()), tree()
    first, second = segments[0], segments[1]
    del objects[object_key(first, "index")]
    objects[object_key(second, "log")] -= 1
    stray = f"{ROOT}/orders-9-AQIDBAUGBwgJCgsMDQ4PEA/00000000000000000000-AQIDBAUGBwgJCgsMDQ4PEA.log"
    objects[stray] = 5
    objects[f"{ROOT}/notes.txt"] = 1
    assert [(problem.problem, problem.key) for problem in compare(segments, objects)] == [
        (ObjectProblem.MISSING, object_key(first, "index")),
        (ObjectProblem.ORPHANED, f"{ROOT}/notes.txt"),
        (ObjectProblem.ORPHANED, stray),
        (ObjectProblem.SIZE_MISMATCH, object_key(second, "log")),
    ]


def test_a_segment_in_copy_or_deletion_may_have_any_part_of_its_objects() -> None:
    first = next(ledger().segments())
    gone = SegmentUpdate(first.topic_id_partition, first.segment_id, 1, 0, None, SegmentState.DELETE_SEGMENT_STARTED)
    segments = list(ledger(TopicRecord.of(0, 10_000, 0, encode(gone))).segments())
    objects = tree()
    del objects[object_key(first, "log")]
    assert compare(segments, objects) == []


def test_a_removed_partition_and_unreadable_records() -> None:
    tip = next(ledger().segments()).topic_id_partition
    removed = encode(PartitionDelete(tip, 1, 0, PartitionDeleteState.DELETE_PARTITION_FINISHED))
    made = ledger(
        TopicRecord.of(0, 10_000, 0, removed), TopicRecord.of(0, 10_001, 0, b"?"), TopicRecord.of(0, 10_002, 0, None)
    )
    assert list(made.segments(tip.topic, tip.partition)) == []
    assert made.unreadable == 1
    assert {ObjectProblem.ORPHANED} == {problem.problem for problem in compare(made.segments(), tree())}


def test_segments_come_by_partition_and_offset_and_may_be_chosen() -> None:
    segment_ledger = ledger()
    positions = [(segment.topic_id_partition, segment.start_offset) for segment in segment_ledger.segments()]
    assert positions == sorted(positions)
    assert {tip.topic for tip, _ in positions} == {"blocked", "clicks", "orders"}
    assert {segment.topic_id_partition.partition for segment in segment_ledger.segments("orders", 1)} == {1}
    result = segment_document(next(segment_ledger.segments("orders", 0)))
    assert (result["topic"], result["partition"], result["start_offset"], result["next_offset"]) == ("orders", 0, 0, 3)
