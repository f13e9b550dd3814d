"""Kafka's own integration tests of tiered topics that change while they live, with their numbers (`EnableRemoteLog…`,
`DisableRemoteLog…`, `PartitionsExpand…`, `ReassignReplica…`, `AlterLogDir…`, `FetchFromLeaderWithCorrupted…`).
"""

from __future__ import annotations

from pathlib import Path

from backend.engine.remote.storage.object_store_manager import EventType
from backend.tiering.ids import TopicIdPartition
from tests.scenarios.tiering_lab import Lab, fetched_segments, history, values, wait_deleted


def fetched(running: Lab, node: int, topic: str, partition: int) -> int:
    events = history(running, node, topic, EventType.FETCH_SEGMENT)
    return sum(1 for event in events if event.topic_id_partition.partition == partition)


def copy_lag_segments(running: Lab, node: int, tip: TopicIdPartition) -> int:
    manager = running.cluster.broker(node).services.remote_log_manager
    assert manager is not None
    return running.cluster.ask(lambda: manager.meters.gauges(tip).remotecopylagsegments)


def test_tiering_switched_on_later_takes_what_is_there(running: Lab) -> None:
    topic = "later"
    running.create(topic, [(1, 2), (2, 1)], batches=1, remote_storage_enable="false")
    for partition in (0, 1):
        running.produce(topic, *values(0, 1, 2), partition=partition)
        assert running.offsets(topic, partition) == (0, 0, 3, -1)
    assert running.alter(topic, remote_storage_enable="true", local_retention_bytes=1) == 0
    for partition in (0, 1):
        running.produce(topic, *values(3, 4), partition=partition)
        running.wait_offsets(topic, (0, 4, 5, 3), partition=partition)
        assert running.consume(topic, 0, partition=partition) == values(0, 1, 2, 3, 4)
        assert fetched(running, partition + 1, topic, partition) == 4


def test_copying_switched_off_and_on_then_tiering_off_with_its_data(running: Lab) -> None:
    topic = "off"
    running.create(topic, [(1, 2)], batches=1, local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2))
    running.wait_offsets(topic, (0, 2, 3, 1))
    assert running.alter(topic, remote_log_copy_disable="true", local_retention_bytes=-2) == 0
    assert running.consume(topic, 0) == values(0, 1, 2)
    assert fetched_segments(running, 1, topic) == 2
    assert copy_lag_segments(running, 1, running.log(topic).topic_id_partition) == 0
    assert running.alter(topic, remote_log_copy_disable="false", local_retention_bytes=1) == 0
    running.produce(topic, *values(3))
    running.wait_offsets(topic, (0, 3, 4, 2))
    assert running.alter(topic, remote_log_copy_disable="true", local_retention_bytes=-2) == 0
    assert running.consume(topic, 0) == values(0, 1, 2, 3)
    assert fetched_segments(running, 1, topic) == 2 + 3
    running.delete_records(topic, 1)
    wait_deleted(running, 1, topic, 0)  # expiration goes on although nothing is copied
    assert running.remote_starts(topic) == [1, 2]
    assert running.alter(topic, remote_storage_enable="false") == 40
    assert running.alter(topic, remote_storage_enable="false", remote_log_delete_on_disable="true") == 0
    wait_deleted(running, 1, topic, 0, 1, 2)
    assert running.remote_starts(topic) == []
    assert running.consume(topic, 3) == values(3)
    assert running.fetch(topic, 2).error == 1
    running.wait_offsets(topic, (3, 3, 4, -1), 1, 2)


def test_tiering_switched_off_and_on_again_loses_nothing_that_was_local(running: Lab) -> None:
    """Segments that were remote once are deleted with the switch: it must be copied again before it may go locally."""
    topic = "again"
    running.create(topic, [(1, 2)], batches=1)
    running.produce(topic, *values(0, 1, 2, 3))
    running.wait_offsets(topic, (0, 0, 4, 2), 1, 2)
    assert running.alter(topic, remote_storage_enable="false", remote_log_delete_on_disable="true") == 0
    running.wait("nothing is remote", lambda: running.remote_starts(topic) == [])
    assert running.alter(topic, remote_storage_enable="true", local_retention_bytes=1) == 0
    running.wait_offsets(topic, (0, 3, 4, 2), 1, 2)
    assert running.remote_starts(topic) == [0, 1, 2]
    assert running.consume(topic, 0) == values(0, 1, 2, 3)


def test_new_partitions_tier_as_the_old_one_does(running: Lab) -> None:
    topic = "grown"
    running.create(topic, [(1, 2)], batches=1, local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2))
    running.wait_offsets(topic, (0, 2, 3, 1))
    running.add_partitions(topic, 3, (1, 2), (2, 1))
    running.produce(topic, *values(3, 4, 5), partition=0)
    running.wait_offsets(topic, (0, 5, 6, 4))
    for partition in (1, 2):
        running.produce(topic, *values(0, 1, 2), partition=partition)
        running.wait_offsets(topic, (0, 2, 3, 1), partition=partition)
    assert running.consume(topic, 0, partition=0) == values(*range(6))
    assert fetched(running, 1, topic, 0) == 5
    assert running.consume(topic, 0, partition=1) == values(0, 1, 2)
    assert fetched(running, 1, topic, 1) == 2
    assert running.consume(topic, 1, partition=2) == values(1, 2)
    assert fetched(running, 2, topic, 2) == 1


def test_partitions_whose_leaders_are_taken_away_tier_on(running: Lab) -> None:
    topic = "shrunk"
    running.create(topic, [(1, 2), (2, 1)], batches=1, local_retention_bytes=1)
    for partition, left in ((0, 2), (1, 1)):
        running.produce(topic, *values(0, 1, 2), partition=partition)
        running.wait_offsets(topic, (0, 2, 3, 1), 1, 2, partition=partition)
        running.reassign(topic, (left,), partition=partition)
        running.wait("one replica is left", lambda p=partition, node=left: running.leads(node, topic, p) and
                     running.registration(topic, p).replicas == (node,))  # fmt: skip
        running.produce(topic, *values(3), partition=partition)
        running.wait_offsets(topic, (0, 3, 4, 2), partition=partition)
        assert running.consume(topic, 0, node=left, partition=partition) == values(0, 1, 2, 3)
        assert fetched(running, left, topic, partition) == 3


def test_a_replica_in_another_log_dir_tiers_on(running: Lab) -> None:
    topic = "disk"
    running.create(topic, [(2, 1)], batches=1, local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2))
    running.wait_offsets(topic, (0, 2, 3, 1), 1, 2)
    running.move_log_dir(1, topic)
    running.move_leader(topic, (1, 2))
    running.produce(topic, *values(3))
    running.wait_offsets(topic, (0, 3, 4, 2))
    assert running.remote_starts(topic) == [0, 1, 2]
    assert running.consume(topic, 0, node=1) == values(0, 1, 2, 3)
    assert fetched_segments(running, 1, topic) == 3


def test_a_leader_that_lost_its_checkpoints_still_starts_at_the_remote_part(running: Lab) -> None:
    topic = "checkpoints"
    running.create(topic, [(2, 3)], batches=1, local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2))
    running.wait_offsets(topic, (0, 2, 3, 1), 2, 3)
    assert running.consume(topic, 0) == values(0, 1, 2)
    assert fetched_segments(running, 2, topic) == 2
    running.cluster.stop_broker(3)
    running.cluster.stop_broker(2)
    for folder in running.cluster.layout.log_dirs[2].split(","):
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
            (Path(folder) / name).unlink(missing_ok=True)
    running.cluster.start_broker(2)
    running.wait("broker 2 leads again", lambda: running.leads(2, topic))
    running.cluster.start_broker(3)
    running.wait("broker 3 is back", lambda: set(running.registration(topic).isr) == {2, 3})
    running.produce(topic, *values(3, 4))
    running.wait_offsets(topic, (0, 4, 5, 3))
    assert running.remote_starts(topic) == [0, 1, 2, 3]
    assert running.consume(topic, 0) == values(0, 1, 2, 3, 4)
    assert fetched_segments(running, 2, topic) == 4


def test_reads_past_the_fetch_quota_answer_without_records_until_it_is_raised(running: Lab) -> None:
    topic = "throttled"
    running.create(topic, [(1,)], batches=1, local_retention_bytes=1)
    running.produce(topic, *values(0, 1, 2))
    running.wait_offsets(topic, (0, 2, 3, 1))
    quota = "remote_log_manager_fetch_max_bytes_per_second"
    assert running.alter_brokers(1, **{quota: 1}) == 0
    running.wait("the quota holds back", lambda: running.fetch(topic, 0).values == [])
    result = running.fetch(topic, 0)
    assert (result.error, result.high_watermark, result.log_start) == (0, 3, 0)
    assert running.fetch(topic, 2).values == [(2, b"v2")]  # what is local is not throttled
    assert running.alter_brokers(1, **{quota: None}) == 0
    running.wait("reads go on", lambda: running.fetch(topic, 0).values == [(0, b"v0")])
