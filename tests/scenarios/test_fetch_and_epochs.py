"""Fetch, OffsetForLeaderEpoch, DeleteRecords on a tiered partition with two leader epochs, as a real Kafka answers."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from backend.protocol import messages as m
from backend.protocol.record_batches.record_batch import iter_batches
from tests.scenarios.tiering_lab import START_MS, Lab, Told, lab, values

FIXTURE: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "fetch-and-epochs.json").read_text()
)
KAFKA: Final[dict[str, Any]] = {**FIXTURE["answers"], **FIXTURE["more_answers"]}
TOPIC: Final = "fetchy"
LEADER, FOLLOWER, OTHER = 1, 2, 3
Row = m.FetchResponse.Responses.Partitions


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """11 records, epochs 0 (0-4) and 2 (5-10); 0-9 are remote only."""
    with lab(tmp_path_factory.mktemp("fetch")) as started:
        started.create(TOPIC, [(LEADER, FOLLOWER)])
        started.produce(TOPIC, *values(0, 1, 2, 3, 4))
        started.move_leader(TOPIC, (FOLLOWER, LEADER))
        started.move_leader(TOPIC, (LEADER, FOLLOWER))
        started.produce(TOPIC, *values(5, 6, 7, 8, 9, 10))
        started.alter(TOPIC, local_retention_bytes=1)
        started.wait_offsets(TOPIC, (0, 10, 11, 9), LEADER, FOLLOWER)
        yield started


def fetch(
    running: Lab, offset: int, *, node: int = LEADER, version: int = 12, replica: int = -1, current_epoch: int = -1,
    last_epoch: int = -1, max_bytes: int = 1 << 20, isolation: int = 0, topic: str = TOPIC,
    topic_id: bytes | None = None, replica_epoch: int = -1,
) -> Row:  # fmt: skip
    topics = m.FetchRequest.Topics
    request = m.FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_epoch=-1,
        replica_state=m.FetchRequest.ReplicaState(replica_id=replica, replica_epoch=replica_epoch),
        topics=[
            topics(
                topic=topic,
                topic_id=topic_id or running.log(topic).topic_id_partition.topic_id,
                partitions=[
                    topics.Partitions(
                        partition=0,
                        current_leader_epoch=current_epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        partition_max_bytes=max_bytes,
                    )
                ],
            )
        ],
    )
    answer = running.ask(node, request, version, m.FetchResponse)
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def batches(records: Any) -> list[tuple[int, int, int]]:
    """(base offset, last offset, leader epoch) of the whole batches."""
    data = bytes(records or b"")
    return [(header.base_offset, header.last_offset, header.leader_epoch) for _, header in iter_batches(data)]


def row_fields(row: Row) -> dict[str, Any]:
    """A row in the fixture's words."""
    aborted = row.aborted_transactions
    fields: dict[str, Any] = {
        "ErrorCode": row.error_code,
        "HighWatermark": row.high_watermark,
        "LastStableOffset": row.last_stable_offset,
        "LogStartOffset": row.log_start_offset,
        "AbortedTransactions": None
        if aborted is None
        else [aborted_transaction.producer_id for aborted_transaction in aborted],
        "PreferredReadReplica": row.preferred_read_replica,
        "Records": batches(row.records),
    }
    if row.diverging_epoch.end_offset >= 0:
        fields["DivergingEpoch"] = {"Epoch": row.diverging_epoch.epoch, "EndOffset": row.diverging_epoch.end_offset}
    return fields


def expected(name: str) -> dict[str, Any]:
    """Kafka's row, records as (base, last, epoch)."""
    requested = {key: value for key, value in KAFKA[name].items() if key != "PartitionIndex"}
    records = str(requested.get("Records", ""))
    requested["Records"] = ast.literal_eval(records.split(": ", 1)[1]) if ": " in records else []
    return requested


CONSUMER_CASES: Final[dict[str, dict[str, Any]]] = {
    **{f"consumer fetch v12 offset {at}": {"offset": at} for at in (0, 1, 3, 5, 9, 10, 11, 12, 50, -1)},
    "consumer fetch v18 offset 1": {"offset": 1, "version": 18},
    "consumer fetch v4 offset 1": {"offset": 1, "version": 4},
    "consumer fetch offset 0 max 100 bytes": {"offset": 0, "max_bytes": 100},
    "consumer fetch offset 0 max 10 bytes": {"offset": 0, "max_bytes": 10},
    "consumer fetch offset 0 read_committed": {"offset": 0, "isolation": 1},
    "consumer fetch offset 0 from follower": {"offset": 0, "node": FOLLOWER},
    "consumer fetch offset 0 from follower v12 with current epoch": {
        "offset": 0, "node": FOLLOWER, "current_epoch": 2,
    },
    "consumer fetch offset 1 stale epoch": {"offset": 1, "current_epoch": 1},
    "consumer fetch offset 1 future epoch": {"offset": 1, "current_epoch": 3},
    "consumer fetch offset 1 lastFetchedEpoch 0": {"offset": 1, "last_epoch": 0},
    "consumer fetch offset 7 lastFetchedEpoch 0 (diverging: epoch 0 ends at 5)": {"offset": 7, "last_epoch": 0},
    "consumer fetch offset 7 lastFetchedEpoch 9": {"offset": 7, "last_epoch": 9},
    "consumer fetch unknown topic id": {"offset": 1, "version": 17, "topic_id": b"\x44" * 16},
    "debug replica -2 fetch offset 1": {"offset": 1, "replica": -2},
}  # fmt: skip


@pytest.mark.parametrize("name", CONSUMER_CASES)
def test_a_consumer_is_answered_as_by_kafka(running: Lab, name: str) -> None:
    assert_same(name, fetch(running, **CONSUMER_CASES[name]))


def assert_same(name: str, row: Row) -> None:
    expected_fields, fields = expected(name), row_fields(row)
    assert {key: fields.get(key) for key in expected_fields} == expected_fields
    assert ("DivergingEpoch" in fields) == ("DivergingEpoch" in expected_fields)


@pytest.mark.parametrize(("budget", "size"), [(100, 100), (10, None)])
def test_a_small_budget_gives_its_bytes_or_one_batch(running: Lab, budget: int, size: int | None) -> None:
    records = bytes(fetch(running, 0, max_bytes=budget).records or b"")  # type: ignore[arg-type]  # decoded
    [(_, first)] = list(iter_batches(records))
    assert len(records) == (size or first.size_bytes)


FOLLOWER_CASES: Final[dict[str, dict[str, Any]]] = {
    **{f"follower fetch v12 replica 2 offset {at}": {"offset": at, "replica": 2} for at in (0, 3, 9, 10, 11, 12, 50)},
    "follower fetch v12 replica 2 offset 7 lastFetchedEpoch 0": {"offset": 7, "last_epoch": 0, "replica": 2},
    "follower fetch v17 replica 2, wrong broker epoch 1": {
        "offset": 0, "version": 17, "replica": 2, "replica_epoch": 1,
    },
    "follower fetch v12 replica 3 (not assigned)": {"offset": 1, "replica": 3},
    "follower fetch v12 replica 77 (unknown)": {"offset": 1, "replica": 77},
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWER_CASES)
def test_a_follower_is_answered_as_by_kafka(running: Lab, name: str) -> None:
    assert_same(name, fetch(running, current_epoch=2, **FOLLOWER_CASES[name]))


def test_a_follower_asks_only_the_leader(running: Lab) -> None:
    assert_same("follower fetch to follower", fetch(running, 10, node=FOLLOWER, replica=2, current_epoch=2))
    assert fetch(running, 1, replica=3).error_code == 6, "without an epoch the stranger is told to look elsewhere"


def epoch_end(
    running: Lab, epoch: int, *, node: int = LEADER, current: int = -1, replica: int = -1, version: int = 4,
    topic: str = TOPIC,
) -> dict[str, int]:  # fmt: skip
    topics = m.OffsetForLeaderEpochRequest.Topics
    part = topics.Partitions(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = m.OffsetForLeaderEpochRequest(replica_id=replica, topics=[topics(topic=topic, partitions=[part])])
    row = running.ask(node, request, version, m.OffsetForLeaderEpochResponse).topics[0].partitions[0]
    return {
        "ErrorCode": row.error_code,
        "Partition": row.partition,
        "LeaderEpoch": row.leader_epoch,
        "EndOffset": row.end_offset,
    }


@pytest.mark.parametrize("epoch", [-1, 0, 1, 2, 3, 99, -2])
def test_epoch_ends(running: Lab, epoch: int) -> None:
    assert epoch_end(running, epoch) == KAFKA[f"offsetForLeaderEpoch leader epoch {epoch}"]


def test_epoch_ends_are_asked_of_the_leader_under_its_epoch(running: Lab) -> None:
    assert epoch_end(running, 0, current=1) == KAFKA["ofle stale current"]
    assert epoch_end(running, 0, current=3) == KAFKA["ofle future current"]
    assert epoch_end(running, 0, node=FOLLOWER) == KAFKA["ofle to follower"]
    assert epoch_end(running, 0, node=FOLLOWER, replica=-2) == KAFKA["ofle to follower replica -2"]
    assert epoch_end(running, 0, replica=2) == KAFKA["ofle from follower id 2"]
    assert epoch_end(running, 0, version=2) == KAFKA["ofle v2"]
    assert epoch_end(running, 0, topic="nosuch") == KAFKA["ofle unknown topic"]
    assert running.log(TOPIC).leader_epochs.encode().decode() == KAFKA["epoch checkpoint"]


def delete(running: Lab, offset: int, node: int = LEADER) -> dict[str, int]:
    topics = m.DeleteRecordsRequest.Topics
    parts = [topics.Partitions(partition_index=0, offset=offset)]
    request = m.DeleteRecordsRequest(topics=[topics(name=TOPIC, partitions=parts)], timeout_ms=10_000)
    row = running.ask(node, request, 2, m.DeleteRecordsResponse).topics[0].partitions[0]
    return {"PartitionIndex": row.partition_index, "LowWatermark": row.low_watermark, "ErrorCode": row.error_code}


def test_deleted_records_are_gone_for_everybody(running: Lab) -> None:
    assert delete(running, -5) == KAFKA["DeleteRecords -5"]
    assert delete(running, -2) == KAFKA["DeleteRecords -2"]
    assert delete(running, 100) == KAFKA["DeleteRecords 100"]
    assert delete(running, 6, FOLLOWER) == KAFKA["DeleteRecords to follower"]
    assert delete(running, 6) == {"PartitionIndex": 0, "LowWatermark": 6, "ErrorCode": 0}
    assert running.log(TOPIC).leader_epochs.encode().decode() == KAFKA["after DeleteRecords 6: checkpoint"]
    for epoch in (0, 1, 2, 3):
        assert epoch_end(running, epoch) == KAFKA[f"after DeleteRecords 6: ofle {epoch}"]
    assert_same("after DeleteRecords 6: fetch 5", fetch(running, 5))
    assert_same("after DeleteRecords 6: follower fetch 5", fetch(running, 5, replica=2, current_epoch=2))
    cases: dict[str, dict[str, Any]] = {
        "follower fetch replica 2 offset 7 lastFetchedEpoch 9 (unknown to the leader)": {
            "offset": 7, "last_epoch": 9, "replica": 2,
        },
        "follower fetch replica 2 offset 10 lastFetchedEpoch 9 (unknown to the leader)": {
            "offset": 10, "last_epoch": 9, "replica": 2,
        },
        "consumer fetch offset 10 lastFetchedEpoch 9": {"offset": 10, "last_epoch": 9},
        "follower fetch replica 2 offset 7 lastFetchedEpoch 1": {"offset": 7, "last_epoch": 1, "replica": 2},
    }  # fmt: skip
    for name, case in cases.items():
        assert_same(name, fetch(running, current_epoch=2, **case))
    for after_ms in (0, 7500, 9000, 10_000, 10_001):
        row = running.list_offset(LEADER, TOPIC, START_MS + after_ms)
        expected_row = KAFKA[f"ListOffsets timestamp {START_MS + after_ms}"]
        assert (row.error, row.timestamp, row.offset, row.epoch) == (
            expected_row["ErrorCode"], expected_row["Timestamp"], expected_row["Offset"], expected_row["LeaderEpoch"],
        )  # fmt: skip


def test_a_missing_remote_file_hurts_only_its_segment_and_only_while_it_is_missing(running: Lab) -> None:
    topic = "lost"
    running.create(topic, [(LEADER,)])
    running.produce(topic, *values(0, 1, 2, 3, 4, 5, 6, 7, 8))
    running.alter(topic, local_retention_bytes=1)
    running.wait_offsets(topic, (0, 8, 9, 7))
    [folder] = running.cluster.remote_folder.glob(f"kafka-tiered-storage/{topic}-0-*")
    hidden: dict[Path, bytes] = {}
    for pattern in ("*00002-*.log", "*00004-*.index", "*00006-*.timeindex"):
        [path] = folder.glob(pattern)
        hidden[path] = path.read_bytes()
        path.unlink()
    assert_same("lost: .log of 2-3 removed: fetch 2", fetch(running, 2, topic=topic))
    assert_same("lost: fetch 0", fetch(running, 0, topic=topic))
    assert_same("lost: fetch 2 again", fetch(running, 2, topic=topic))
    assert running.list_offset(LEADER, topic, START_MS + 3000) == Told(-1, -1, -1, -1)
    assert_same("lost: .index of 4-5 removed: fetch 4", fetch(running, 4, topic=topic))
    assert_same("lost: .timeindex of 6-7 removed: fetch 6", fetch(running, 6, topic=topic))
    assert running.list_offset(LEADER, topic, START_MS + 7000) == Told(-1, -1, -1, -1)
    for path, data in hidden.items():
        path.write_bytes(data)
    assert_same("lost: file restored: fetch 2", fetch(running, 2, topic=topic))


VERSIONS: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "list-offsets.json").read_text()
)["by_request_version"]["versions"]


def test_every_version_of_list_offsets_knows_its_names(running: Lab) -> None:
    topic = "versions"
    running.create(topic)
    running.produce(topic, *values(0, 1, 2, 3, 4, 5, 6))
    running.wait_offsets(topic, (0, 0, 7, 5))
    topics = m.ListOffsetsRequest.Topics
    for version, answers in VERSIONS.items():
        for timestamp, expected_row in answers.items():
            part = topics.Partitions(partition_index=0, current_leader_epoch=-1, timestamp=int(timestamp))
            request = m.ListOffsetsRequest(
                replica_id=-1, topics=[topics(name=topic, partitions=[part])], timeout_ms=10_000
            )
            row = running.ask(LEADER, request, int(version), m.ListOffsetsResponse).topics[0].partitions[0]
            epoch = expected_row["leader_epoch"] if expected_row["leader_epoch"] is not None else row.leader_epoch
            assert (row.error_code, row.timestamp, row.offset, row.leader_epoch) == (
                expected_row["error"], expected_row["timestamp"], expected_row["offset"], epoch,
            ), (version, timestamp)  # fmt: skip
