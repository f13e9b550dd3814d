"""Kafka's own integration tests of tiered storage, with their numbers (`OffloadAndConsume…`, `DeleteSegments…`,
`Reassign…`).
"""

from __future__ import annotations

import pytest

from backend.engine.remote.metadata.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from backend.engine.remote.storage.object_store_manager import EventType
from backend.protocol.remote_log.metadata_serde import PartitionDelete, decode, metadata_partition
from backend.tiering.ids import TopicIdPartition
from tests.scenarios.tiering_lab import START_MS, Lab, Told, fetched_segments, history, values, wait_deleted

METADATA = "__remote_log_metadata"


def copied_segments(running: Lab, node: int, topic: str) -> list[int]:
    """First offsets of what the broker copied, in the order of copies."""
    return [event.start_offset for event in history(running, node, topic, EventType.COPY_SEGMENT)]


def test_offload_and_consume_from_the_leader_also_after_a_restart(running: Lab) -> None:
    running.create("one", [(2,)], batches=1, local_retention_bytes=1)
    running.create("two", [(2,)], batches=2, local_retention_bytes=1)
    running.produce("one", *values(0, 1, 2))
    running.produce("two", *values(0, 1, 2, 3, 4))
    running.wait_offsets("one", (0, 2, 3, 1))
    running.wait_offsets("two", (0, 4, 5, 3))
    assert running.remote_starts("one") == [0, 1]
    assert running.remote_starts("two") == [0, 2]
    running.cluster.stop_broker(2)
    running.cluster.start_broker(2)
    running.wait("broker 2 leads again", lambda: running.leads(2, "one") and running.leads(2, "two"))
    # It reads the remote log's metadata first; until then it answers REPLICA_NOT_AVAILABLE, as Kafka does.
    running.wait_offsets("one", (0, 2, 3, 1))
    running.wait_offsets("two", (0, 4, 5, 3))
    assert running.consume("one", 1) == values(1, 2)
    assert fetched_segments(running, 2, "one") == 1
    assert running.consume("two", 1) == values(1, 2, 3, 4)
    assert fetched_segments(running, 2, "two") == 2


@pytest.mark.parametrize("setting", ["retention_bytes", "retention_ms"])
def test_retention_deletes_remote_segments_by_size_and_by_time(running: Lab, setting: str) -> None:
    topic = setting.replace("_", "-")
    running.create(topic, [(1, 2)], batches=1, local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2))
    # The last record is from tomorrow, so that the active segment survives.
    running.produce(topic, *values(3), first_ms=START_MS + 400_000_000_000)
    running.wait_offsets(topic, (0, 3, 4, 2))
    assert running.alter(topic, **{setting: 1, f"local_{setting}": 1}) == 0
    running.wait_offsets(topic, (3, 3, 4, 2), 1, 2)
    running.wait("nothing is remote", lambda: running.remote_starts(topic) == [])
    wait_deleted(running, 1, topic, 0, 1, 2)
    assert running.log(topic).leader_epochs.earliest_entry == (0, 3)
    # A consumer that begins at 0 gets OFFSET_OUT_OF_RANGE and goes to the earliest offset.
    assert running.fetch(topic, 0).error == 1
    assert running.list_offset(1, topic, -2).offset == 3
    assert running.consume(topic, 3) == values(3)
    assert fetched_segments(running, 1, topic) == 0


def test_delete_records_takes_remote_segments_below_log_start(running: Lab) -> None:
    topic = "log-start"
    running.create(topic, [(1, 2)], local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2, 3, 4))
    running.wait_offsets(topic, (0, 4, 5, 3), 1, 2)
    running.delete_records(topic, 3)
    running.wait("one segment is left", lambda: running.remote_starts(topic) == [2])
    wait_deleted(running, 1, topic, 0)
    assert running.log(topic).leader_epochs.earliest_entry == (0, 3)
    assert running.consume(topic, 3) == values(3, 4)
    assert fetched_segments(running, 1, topic) == 1
    running.move_leader(topic, (2, 1))
    running.produce(topic, *values(5, 6, 7, 8, 9))
    running.wait_offsets(topic, (3, 8, 10, 7))
    # The new leader copies from where the old one stopped; its first segment has records of both.
    assert [copied_segments(running, node, topic) for node in (1, 2)] == [[0, 2], [4, 6]]
    running.delete_records(topic, 7)
    running.wait("one segment is left", lambda: running.remote_starts(topic) == [6])
    wait_deleted(running, 2, topic, 4, 2)  # the present epochs first
    assert running.consume(topic, 7) == values(7, 8, 9)
    assert fetched_segments(running, 2, topic) == 1


def deletion_events(running: Lab, topic_id: bytes, partition: int) -> list[tuple[str, int]]:
    """(state, broker) of what the metadata topic tells of a partition's deletion."""
    states = []
    target = metadata_partition(topic_id, partition, 5)
    for raw in running.read_raw(METADATA, target):
        event = decode(raw)
        if not isinstance(event, PartitionDelete):
            continue
        tip = event.topic_id_partition
        # Two partitions of a topic may have their events in one partition of the metadata topic.
        if (tip.topic_id, tip.partition) == (topic_id, partition):
            states.append((event.state.name, event.broker_id))
    return states


def test_deleting_a_topic_leaves_nothing_remote_and_a_new_one_of_its_name_alone(running: Lab) -> None:
    topic = "doomed"
    running.create(topic, [(1, 2), (2, 1)], batches=1, local_retention_bytes=1)
    for partition in (0, 1):
        running.produce(topic, *values(0, 1, 2), partition=partition)
        running.wait_offsets(topic, (0, 2, 3, 1), partition=partition)
    old_id = running.log(topic).topic_id_partition.topic_id
    running.delete_topic(topic)
    running.create(topic, [(1, 2), (2, 1)], batches=1, local_retention_bytes=1)
    new_id = running.log(topic).topic_id_partition.topic_id
    done = [("DELETE_PARTITION_MARKED", 1), ("DELETE_PARTITION_STARTED", 0), ("DELETE_PARTITION_FINISHED", 0)]
    for partition in (0, 1):
        running.produce(topic, *values(7, 8, 9), partition=partition)
        running.wait_offsets(topic, (0, 2, 3, 1), partition=partition)
        running.wait("the deletion ends", lambda p=partition: len(deletion_events(running, old_id, p)) >= len(done))
        remover = running.leader(METADATA, metadata_partition(old_id, partition, 5))
        assert deletion_events(running, old_id, partition) == [(name, who or remover) for name, who in done]
        assert deletion_events(running, new_id, partition) == []
        old = [
            (node, event.start_offset)
            for node in (1, 2, 3)
            for event in history(running, node, topic, EventType.DELETE_SEGMENT)
            if event.topic_id_partition == TopicIdPartition(topic, old_id, partition)
        ]
        assert old == [(remover, 0), (remover, 1)]
        assert running.remote_starts(topic, partition) == [0, 1]  # the new topic's
        assert running.consume(topic, 0, partition=partition) == values(7, 8, 9)


def test_the_active_segment_is_rolled_by_local_retention_and_copied(running: Lab) -> None:
    topic = "rolled"
    running.create(topic, [(1,)], batches=1, local_retention_ms=1)
    running.produce(topic, *values(0, 1, 2, 3))
    running.wait_offsets(topic, (0, 4, 4, 3))
    assert running.remote_starts(topic) == [0, 1, 2, 3]
    assert running.consume(topic, 0) == values(0, 1, 2, 3)
    assert fetched_segments(running, 1, topic) == 4


def test_offsets_by_time_over_both_tiers_and_two_leaders(running: Lab) -> None:
    topic = "times"
    running.create(topic, [(1, 2)], local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2))
    running.wait_offsets(topic, (0, 2, 3, 1))
    running.move_leader(topic, (2, 1))
    running.produce(topic, *values(3, 4, 5))
    running.wait_offsets(topic, (0, 4, 6, 3), 1, 2)
    assert [copied_segments(running, node, topic) for node in (1, 2)] == [[0], [2]]
    named = [running.list_offset(2, topic, sentinel) for sentinel in (-2, -4, -5, -1)]
    assert named == [Told(0, 0), Told(4, 1), Told(3, 1), Told(6, 1)]

    def at(offset: int) -> Told:
        return running.list_offset(2, topic, START_MS + 1000 * offset)

    def at_offset(offset: int, epoch: int) -> Told:
        return Told(offset, epoch, START_MS + 1000 * offset)

    assert [at(6), at(5), at(4)] == [Told(-1, -1), at_offset(5, 1), at_offset(4, 1)]
    assert [at(-1), at(0), at(1), at(3)] == [at_offset(0, 0), at_offset(0, 0), at_offset(1, 0), at_offset(3, 1)]
    running.delete_records(topic, 3)
    wait_deleted(running, 2, topic, 0)
    assert [running.list_offset(2, topic, sentinel) for sentinel in (-2, -4)] == [Told(3, 1), Told(4, 1)]
    running.delete_records(topic, 4)
    wait_deleted(running, 2, topic, 0, 2)
    assert running.remote_starts(topic) == []
    named = [running.list_offset(2, topic, sentinel) for sentinel in (-2, -4, -5, -1)]
    assert named == [Told(4, 1), Told(4, 1), Told(3, -1), Told(6, 1)]


def metadata_partitions_read(running: Lab, node: int) -> set[int]:
    """Partitions of the metadata topic that a broker follows."""
    manager = running.cluster.broker(node).services.remote_log_manager
    assert manager is not None
    metadata = manager._tier.metadata
    assert isinstance(metadata, TopicBasedRemoteLogMetadataManager)
    return running.cluster.ask(lambda: {partition.metadata_partition for partition in metadata.hosted.values()})


def test_a_replica_that_comes_later_serves_what_others_copied(running: Lab) -> None:
    # So many partitions that both brokers have read every partition of the metadata topic before the replica comes:
    # by their random topic id, one of 5 is missed by all 60 of a broker once in 100,000 times.
    running.create("crowd", [(1,), (3,)] * 60)
    for node in (1, 3):
        running.wait("all metadata is read", lambda n=node: metadata_partitions_read(running, n) == {0, 1, 2, 3, 4})
    for topic, replicas in (("moved", (1, 3)), ("mover", (3,))):
        running.create(topic, [(1,)], batches=1, local_retention_bytes=1)
        running.produce(topic, *values(0, 1, 2))
        running.wait_offsets(topic, (0, 2, 3, 1))
        running.reassign(topic, replicas)
        running.wait("broker 3 is in sync", lambda t=topic, r=replicas: set(running.registration(t).isr) == set(r))
        if len(replicas) > 1:
            running.move_leader(topic, (3, 1))
        running.wait("broker 3 leads", lambda t=topic: running.leads(3, t))
        running.produce(topic, *values(3))
        running.wait_offsets(topic, (0, 3, 4, 2))
        assert running.remote_starts(topic) == [0, 1, 2]
        assert running.consume(topic, 0, node=3) == values(0, 1, 2, 3)
        assert fetched_segments(running, 3, topic) == 3
        # A broker that gives a replica away leaves remote segments alone.
        assert history(running, 1, topic, EventType.DELETE_SEGMENT) == []
    # Followers serve old offsets too, from their own view of the remote tier.
    assert running.fetch("moved", 1, node=1).error == 0
    assert running.fetch("moved", 1, node=1).values == [(1, b"v1")]
    running.delete_topic("crowd")


def local_from_6_remote_to_11(running: Lab, topic: str) -> None:
    """13 records on brokers 1 and 2."""
    running.create(topic, [(1, 2)])
    running.produce(topic, *values(*range(13)))
    running.wait_offsets(topic, (0, 0, 13, 11))
    size = running.log(topic).segments[0].size_bytes
    assert running.alter(topic, local_retention_bytes=3 * size + size // 2 + 1) == 0
    running.wait_offsets(topic, (0, 6, 13, 11), 1, 2)


@pytest.mark.parametrize("last_tiered", [False, True])
def test_an_empty_replica_starts_where_the_flag_says(running: Lab, last_tiered: bool) -> None:
    topic = f"bootstrap-{last_tiered}".lower()
    local_from_6_remote_to_11(running, topic)
    assert running.alter_brokers(3, follower_fetch_last_tiered_offset_enable=str(last_tiered).lower()) == 0
    running.reassign(topic, (1, 2, 3))
    running.wait("broker 3 is in sync", lambda: set(running.registration(topic).isr) == {1, 2, 3})
    start = 12 if last_tiered else 6
    running.wait_offsets(topic, (0, start, 13, 11), 3)
    log = running.log(topic, node=3)
    assert log.leader_epochs.entries == running.log(topic).leader_epochs.entries
    running.alter_brokers(3, follower_fetch_last_tiered_offset_enable=None)
    running.move_leader(topic, (3, 1, 2))
    assert running.consume(topic, 0) == values(*range(13))


def test_the_flag_counts_at_each_attempt_of_a_replica_that_cannot_start(running: Lab) -> None:
    topic = "attempts"
    local_from_6_remote_to_11(running, topic)
    [folder] = running.cluster.remote_folder.glob(f"kafka-tiered-storage/{topic}-0-*")
    [epochs] = folder.glob("*00010-*.leader_epoch_checkpoint")
    epochs.unlink()  # a start behind the last tiered offset needs it, one at the leader's local start does not
    assert running.alter_brokers(3, follower_fetch_last_tiered_offset_enable="true") == 0
    running.reassign(topic, (1, 2, 3))

    def attempts() -> list[int]:
        return [e.start_offset for e in history(running, 3, topic, EventType.FETCH_LEADER_EPOCH_CHECKPOINT)]

    running.wait("two attempts have failed", lambda: len(attempts()) >= 2)
    assert set(attempts()) == {10}
    assert set(running.registration(topic).isr) == {1, 2}
    assert running.offsets(topic, node=3)[2] == 0
    assert running.alter_brokers(3, follower_fetch_last_tiered_offset_enable="false") == 0
    running.wait("broker 3 is in sync", lambda: set(running.registration(topic).isr) == {1, 2, 3})
    running.wait_offsets(topic, (0, 6, 13, 11), 3)
    assert attempts()[-1] == 4
    running.alter_brokers(3, follower_fetch_last_tiered_offset_enable=None)


def test_everything_tiered_does_not_keep_a_new_replica_out(running: Lab) -> None:
    topic = "idle"
    running.create(topic, [(1, 2)], local_retention_ms=1)
    running.produce(topic, *values(0, 1, 2, 3))
    running.wait_offsets(topic, (0, 4, 4, 3), 1, 2)
    assert running.alter_brokers(3, follower_fetch_last_tiered_offset_enable="true") == 0
    running.reassign(topic, (1, 2, 3))
    running.wait("broker 3 is in sync", lambda: set(running.registration(topic).isr) == {1, 2, 3})
    running.wait_offsets(topic, (0, 4, 4, 3), 3)
    running.alter_brokers(3, follower_fetch_last_tiered_offset_enable=None)


def test_the_metadata_topic_is_created_as_kafka_creates_it(running: Lab) -> None:
    image = running.cluster.broker(1).services.metadata.image
    topic = image.topic(METADATA)
    assert topic is not None
    assert len(topic.partitions) == 5
    assert {len(partition.replicas) for partition in topic.partitions.values()} == {3}
    config = image.topic_config(METADATA)
    assert {name: config[name] for name in ("cleanup.policy", "min.insync.replicas", "retention.ms")} == {
        "cleanup.policy": "delete",
        "min.insync.replicas": "2",
        "retention.ms": "-1",
    }
