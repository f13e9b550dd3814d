"""Damaged log files: a cut tail is truncated at start, anything else takes that replica offline, and others go on."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.apis import metadata
from backend.engine.replica.partition import Partition
from backend.protocol.errors import KafkaError
from tests.engine_cluster import EngineCluster

TOPIC: Final = "orders"
# Replicas by partition: the broker whose file is damaged leads both.
REPLICAS: Final = {0: [2, 3, 1], 1: [2, 1, 3]}
WAIT_S: Final = 60
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "1",
    # Elections are asked for here.
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    with EngineCluster(tmp_path, brokers=3, settings=SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topic = NewTopic(TOPIC, len(REPLICAS), replica_assignment=list(REPLICAS.values()))
        admin.create_topics([topic])[TOPIC].result(30)
        yield running


def produce(cluster: EngineCluster, count: int, start: int = 0) -> list[bytes]:
    """Numbered values into both partitions, one batch each, acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    failures: list[str] = []
    values = [b"value-%06d" % number for number in range(start, start + count)]
    for value in values:
        for partition in REPLICAS:
            producer.produce(
                TOPIC,
                value,
                partition=partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    return values


def consume(cluster: EngineCluster, partition: int, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=WAIT_S)
        assert messages, f"{len(found)} of {count} records of partition {partition}"
        for message in messages:
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    consumer.close()
    return found


def registration(cluster: EngineCluster, partition: int) -> Any:
    return cluster.broker(1).services.metadata.image.partition(TOPIC, partition)


def hosted(cluster: EngineCluster, node: int, partition: int) -> Partition:
    return cluster.broker(node).services.replica_manager.partition(TOPIC, partition)


def folder(cluster: EngineCluster, node: int, partition: int = 0) -> Path:
    return Path(cluster.layout.log_dirs[node]) / f"{TOPIC}-{partition}"


def last_segment(cluster: EngineCluster, node: int) -> Path:
    return sorted(folder(cluster, node).glob("*.log"))[-1]


def cut_three_bytes(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-3])


def flip_bytes_of_the_last_batch(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) - 12, len(data) - 4):
        data[at] ^= 0xFF
    path.write_bytes(data)


def append_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xde\xad\xbe\xef" * 25)


def in_sync_everywhere(cluster: EngineCluster) -> None:
    cluster.wait_until(
        "all replicas are in sync",
        lambda: all(set(registration(cluster, partition).isr) == {1, 2, 3} for partition in REPLICAS),
    )


@pytest.mark.parametrize("damage", [cut_three_bytes, flip_bytes_of_the_last_batch, append_garbage])
def test_a_damaged_tail_is_truncated_and_copied_again(cluster: EngineCluster, damage: Callable[[Path], None]) -> None:
    values = produce(cluster, 50)
    in_sync_everywhere(cluster)
    cluster.kill_broker(2)
    path = last_segment(cluster, 2)
    good = path.read_bytes()
    damage(path)
    more = produce(cluster, 10, start=50)
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    assert consume(cluster, 0, 60) == values + more
    assert last_segment(cluster, 2).read_bytes() == last_segment(cluster, 1).read_bytes()
    assert last_segment(cluster, 2).read_bytes().startswith(good)


def test_damage_elsewhere_takes_that_replica_offline_and_others_lead(
    cluster: EngineCluster, caplog: pytest.LogCaptureFixture
) -> None:
    values = produce(cluster, 50)
    in_sync_everywhere(cluster)
    cluster.kill_broker(2)
    checkpoint = folder(cluster, 2) / "leader-epoch-checkpoint"
    whole = checkpoint.read_text()
    checkpoint.write_text("0\n1\nnonsense\n")
    with caplog.at_level(logging.ERROR):
        cluster.start_broker(2)
    said = [record.getMessage() for record in caplog.records if "orders-0" in record.getMessage()]
    assert any("Partition orders-0 is offline" in line and str(checkpoint) in line for line in said), said

    # The other partition is served there as ever, this one by the others, and clients are told so.
    cluster.wait_until("orders-1 is in sync on broker 2", lambda: 2 in registration(cluster, 1).isr)
    cluster.wait_until("the controller knows of the lost log", lambda: registration(cluster, 0).is_lost(2))
    assert registration(cluster, 0).leader in (1, 3)
    assert 2 not in registration(cluster, 0).isr
    assert offline_replicas(cluster) == {0: [2], 1: []}
    more = produce(cluster, 10, start=50)
    assert consume(cluster, 0, 60) == values + more

    # Repaired, it comes back.
    cluster.stop_broker(2)
    checkpoint.write_text(whole)
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    assert offline_replicas(cluster) == {0: [], 1: []}


def test_damage_found_while_serving_moves_the_leadership(cluster: EngineCluster) -> None:
    values = produce(cluster, 50)
    in_sync_everywhere(cluster)
    assert registration(cluster, 0).leader == 2
    # The size of the first batch becomes impossible: what the disk gives back is not what was written.
    with last_segment(cluster, 2).open("r+b") as file:
        file.write(b"\xff" * 30)
    before = registration(cluster, 0).leader_epoch

    def look_for_a_timestamp() -> None:
        with pytest.raises(KafkaError):
            hosted(cluster, 2, 0).log.offset_by_timestamp(1)

    cluster.ask(look_for_a_timestamp)
    cluster.wait_until("another leads orders-0", lambda: registration(cluster, 0).leader in (1, 3))
    assert registration(cluster, 0).leader_epoch > before
    assert registration(cluster, 0).is_lost(2)
    assert cluster.ask(lambda: cluster.broker(2).services.replica_manager.broken_partitions)
    more = produce(cluster, 10, start=50)
    assert consume(cluster, 0, 60) == values + more
    assert registration(cluster, 1).leader == 2

    # Without its folder the replica is copied again, and may lead again.
    cluster.kill_broker(2)
    for path in folder(cluster, 2).iterdir():
        path.unlink()
    folder(cluster, 2).rmdir()
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    assert not registration(cluster, 0).is_lost(2)
    assert consume(cluster, 0, 60) == values + more
    assert last_segment(cluster, 2).read_bytes() == last_segment(cluster, 1).read_bytes()


def offline_replicas(cluster: EngineCluster) -> dict[int, list[int]]:
    """What a client is told, by partition."""
    image = cluster.broker(1).services.metadata.image
    return {
        partition: metadata.offline_replicas(image, registration(cluster, partition), "PLAINTEXT")
        for partition in REPLICAS
    }


def test_a_leader_that_comes_back_without_its_data_takes_nobody_elses(tmp_path: Path) -> None:
    """Within its session metadata still has the killed life as leader; the new life must not act on that."""
    with EngineCluster(tmp_path, brokers=3, settings=SETTINGS | {"broker.session.timeout.ms": "6000"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, len(REPLICAS), replica_assignment=list(REPLICAS.values()))
        admin.create_topics([topic])[TOPIC].result(30)
        values = produce(cluster, 50)
        in_sync_everywhere(cluster)
        cluster.kill_broker(2)
        shutil.rmtree(folder(cluster, 2))
        assert registration(cluster, 0).leader == 2
        cluster.start_broker(2)
        in_sync_everywhere(cluster)
        assert registration(cluster, 0).leader in (1, 3)
        assert consume(cluster, 0, 50) == values
