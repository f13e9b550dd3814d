"""ListOffsets through the life of a tiered topic, answer for answer as a real Kafka gave them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from backend.engine.remote.storage.object_store_manager import EventType, ObjectStoreRemoteStorageManager
from tests.scenarios.tiering_lab import START_MS, Lab, Told, lab, values

FIXTURE: Final = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "list-offsets.json").read_text()
)
STATES: Final[Mapping[str, Any]] = {state["state"]: state for state in FIXTURE["states"]}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("list-offsets")) as started:
        yield started


def answers(running: Lab, state: Mapping[str, Any]) -> tuple[dict[str, Told], dict[str, Told]]:
    """(what Kafka answered, what we answer) to every question of a state."""
    topic, leader, replicas = state["topic"], state["leader"], state["replicas"]
    followers = [node for node in replicas if node != leader]
    strangers = [node for node in (1, 2, 3) if node not in replicas]
    expected: dict[str, Told] = {}
    actual: dict[str, Told] = {}
    seen: dict[str, int] = {}
    for row in state["rows"]:
        role, replica_id = row["to"], row["replica_id"]
        # The same question to the second follower is a separate row.
        key = f"{role} {replica_id} {row['isolation']}"
        at = seen[key] = seen.get(key, -1) + 1
        node = {"leader": [leader], "follower": followers, "other": strangers}[role]
        replica = followers[0] if replica_id == "follower" else replica_id
        for timestamp, answer in row["answers"].items():
            name = f"{timestamp} to {role} {at} as {replica_id}, isolation {row['isolation']}"
            expected[name] = Told(answer["offset"], answer["leader_epoch"], answer["timestamp"], answer["error"])
            actual[name] = running.list_offset(
                node[min(at, len(node) - 1)], topic, int(timestamp), replica=replica, isolation=row["isolation"]
            )
    return expected, actual


def kip_answers(expected: dict[str, Told], log_end: Told) -> dict[str, Told]:
    """With everything tiered a follower gets the log end (KIP-1023); Kafka 4.3 answers -1 and never lets it join."""
    return {
        name: log_end if name.startswith("-6 to leader") and "as follower" in name and answer.offset == -1 else answer
        for name, answer in expected.items()
    }


def at_time(expected: dict[str, Told], kafkas_ms: int, ours_ms: int) -> dict[str, Told]:
    """A marker is stamped with the time of its writing."""
    return {name: replace(answer, timestamp=ours_ms) if answer.timestamp == kafkas_ms else answer
            for name, answer in expected.items()}  # fmt: skip


def expect(
    running: Lab,
    name: str,
    *,
    log_end_for_followers: Told | None = None,
    without: str = "-",
    times: tuple[int, int] = (0, 0),
) -> None:
    """Asks until every answer is Kafka's. `times`: what Kafka's clock said, and what ours did."""
    last: dict[str, tuple[Told, Told]] = {}

    def agree() -> bool:
        expected, actual = answers(running, STATES[name])
        if log_end_for_followers is not None:
            expected = kip_answers(expected, log_end_for_followers)
        expected = at_time(expected, *times)
        last.clear()
        wrong = {key: (answer, actual[key]) for key, answer in expected.items() if actual[key] != answer}
        last.update({key: both for key, both in wrong.items() if without == "-" or without not in key})
        return not last

    try:
        running.wait(name, agree, 20)
    except AssertionError:
        lines = [f"{key}: Kafka {kafka}, here {here}" for key, (kafka, here) in last.items()]
        raise AssertionError("\n".join([f"state: {name}", *lines])) from None


def test_a_tiered_topic_from_empty_to_everything_tiered(running: Lab) -> None:
    topic = "ember"
    running.create(topic)
    expect(running, "tiered topic, empty", log_end_for_followers=Told(0, 0))
    running.produce(topic, *values(0, 1))
    expect(running, "2 records in the active segment, nothing tiered")
    running.produce(topic, *values(2, 3, 4, 5, 6))
    expect(running, "7 records, segments 0-1 2-3 4-5 tiered and still local")
    running.alter(topic, local_retention_bytes=1)
    expect(running, "local segments below 6 deleted (local.retention.bytes=1)")
    running.delete_records(topic, 3)
    expect(running, "DeleteRecords to 3 (inside remote segment 2-3)")
    running.move_leader(topic, (2, 1, 3))
    running.produce(topic, *values(7, 8, 9))
    expect(running, "leadership moved, 3 records more: mixed-epoch segment")
    running.delete_records(topic, 9)
    expect(running, "DeleteRecords to 9 (inside the local active segment)")
    running.produce(topic, *values(10, 11, 12, 13))
    expect(running, "4 records more")
    running.alter(topic, local_retention_ms=1)
    expect(running, "everything tiered (local.retention.ms=1): LEO 14", log_end_for_followers=Told(14, 1))
    running.produce(topic, *values(14))
    expect(running, "same, 3 s later", log_end_for_followers=Told(15, 1))
    running.move_leader(topic, (3, 2, 1))
    expect(running, "2.5 s after moving leadership", log_end_for_followers=Told(15, 2))


def test_a_former_leader_of_an_empty_log_answers_its_former_epoch(running: Lab) -> None:
    """No record has that epoch, so it differs from the leader's in health, and a broker that never led has none."""
    running.create("hollow")
    running.move_leader("hollow", (2, 1, 3))
    expect(running, "no record ever, leadership moved", log_end_for_followers=Told(0, 1))
    running.move_leader("hollow", (1, 2, 3))
    expect(running, "no record ever, leadership moved and moved back", log_end_for_followers=Told(0, 2))


def test_replicas_of_an_emptied_log_answer_the_epoch_of_its_records(running: Lab) -> None:
    running.create("emptied")
    running.produce("emptied", *values(0, 1, 2))
    running.wait_offsets("emptied", (0, 0, 3, 1), 1, 2, 3)
    running.delete_records("emptied", 3)
    running.move_leader("emptied", (2, 1, 3))
    expect(running, "emptied by DeleteRecords, leadership moved", log_end_for_followers=Told(3, 1))


def test_copying_off_and_on_and_remote_storage_off(running: Lab) -> None:
    topic = "frozen"
    running.create(topic, [(1, 2)])
    running.produce(topic, *values(0, 1, 2, 3, 4))
    running.wait_offsets(topic, (0, 0, 5, 3))
    assert running.alter(topic, remote_log_copy_disable="true") == 0
    running.produce(topic, *values(5, 6, 7, 8, 9))
    expect(running, "remote.log.copy.disable=true after 0-3 were tiered, 10 records")
    assert running.alter(topic, retention_bytes=200) == 0
    expect(running, "copy disabled and retention.bytes=200: old local segments and remote segments expire")
    running.wait("nothing is remote", lambda: running.remote_starts(topic) == [])
    assert running.alter(topic, retention_bytes=None, remote_log_copy_disable="false") == 0
    # Kafka's follower stays at 3 for good; ours learns of the copy like after any other.
    expect(running, "copy enabled again, after catching up", without="to follower")
    running.wait_offsets(topic, (6, 6, 10, 7), 1, 2)
    running.wait("the next segment is remote", lambda: running.remote_starts(topic) == [6])
    assert running.alter(topic, remote_storage_enable="false") == 40
    assert running.alter(topic, remote_storage_enable="false", remote_log_delete_on_disable="true") == 0
    expect(running, "remote storage switched off with remote.log.delete.on.disable=true")
    running.wait("nothing is remote", lambda: running.remote_starts(topic) == [])


def test_a_topic_without_remote_storage(running: Lab) -> None:
    topic = "plain"
    running.create(topic, [(2, 1)], remote_storage_enable="false")
    expect(running, "topic without remote storage, empty")
    running.produce(topic, *values(0, 1, 2, 3, 4, 5, 6))
    expect(running, "topic without remote storage, 7 records")
    running.delete_records(topic, 3)
    expect(running, "topic without remote storage, DeleteRecords to 3")


def test_an_open_transaction_bounds_what_readers_of_committed_records_see_and_what_is_copied(running: Lab) -> None:
    topic = "pending"
    running.create(topic, [(3, 1)])
    running.produce(topic, *values(0, 1, 2, 3, 4))
    producer = Producer(
        {"bootstrap.servers": running.cluster.bootstrap, "transactional.id": topic, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for at in range(3):
        producer.produce(topic, b"t%d" % at, partition=0, timestamp=START_MS + 100_000 + at)
        producer.flush(60)
    running.produce(topic, *values(8, 9, 10))
    expect(running, "transaction open since offset 5 (5,6,7 transactional, 8-10 plain)")
    producer.abort_transaction(60)
    running.wait("the marker is there", lambda: running.list_offset(3, topic, -3).offset == 11)
    marker_ms = running.list_offset(3, topic, -3).timestamp
    kafkas_ms = STATES["the transaction aborted (marker at 11)"]["rows"][0]["answers"]["-3"]["timestamp"]
    expect(running, "the transaction aborted (marker at 11)", times=(kafkas_ms, marker_ms))


def write_transactions(running: Lab, topic: str) -> None:
    """Records at 0, 2 and 4 in separate transactions, the second one aborted, markers behind each; 6 is plain."""
    producer = Producer({"bootstrap.servers": running.cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for at in range(3):
        producer.begin_transaction()
        producer.produce(topic, values(2 * at)[0], partition=0, timestamp=START_MS + at)
        producer.flush(60)
        if at == 1:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
        running.wait("the marker is there", lambda end=2 * at + 2: running.log(topic).log_end_offset == end)
    running.produce(topic, *values(6))


@pytest.mark.parametrize("transactional", [False, True])
def test_a_reader_of_committed_records_gets_the_same_from_the_remote_tier_as_from_the_local_log(
    running: Lab, transactional: bool
) -> None:
    # Kafka's OffloadAndTxnConsumeFromLeader: an index cache that holds nothing, one batch a segment.
    topic = f"committed-{transactional}"
    assert running.alter_brokers(1, remote_log_index_file_cache_total_size_bytes=1) == 0
    running.create(topic, [(1,)], batches=1, local_retention_bytes=1)
    if transactional:
        write_transactions(running, topic)
        expected = values(0, 4, 6)
    else:
        expected = values(0, 1, 2, 3, 4, 5, 6)
        running.produce(topic, *expected)
    running.wait_offsets(topic, (0, 6, 7, 5))
    manager = running.cluster.broker(1).services.remote_log_manager
    assert manager is not None
    storage = manager.storage
    assert isinstance(storage, ObjectStoreRemoteStorageManager)
    storage.history.clear()
    consumer = Consumer(
        {"bootstrap.servers": running.cluster.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    received: list[bytes | None] = []

    def last_came() -> bool:
        received.extend(message.value() for message in consumer.consume(7, 1.0))
        return received[-1:] == expected[-1:]

    running.wait("the last record came", last_came)
    consumer.close()
    assert received == expected
    counts = Counter(event.type for event in storage.history if event.topic_id_partition.topic == topic)
    assert 6 <= counts.pop(EventType.FETCH_SEGMENT) <= 12
    txn_index_fetches = counts.pop(EventType.FETCH_TRANSACTION_INDEX, 0)
    if transactional:
        # Only the segment of the abort's marker has one; every fetch before it may ask.
        assert 1 <= txn_index_fetches <= 12
    else:
        assert txn_index_fetches == 0, "metadata say that there is nothing in it"
    assert all(6 <= count <= 12 for count in counts.values()), counts
    running.alter_brokers(1, remote_log_index_file_cache_total_size_bytes=None)
