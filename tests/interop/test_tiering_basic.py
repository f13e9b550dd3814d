"""Tiering end to end: segments are copied, local ones go, and a real client still reads everything from offset 0."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.engine_cluster import EngineCluster
from tests.interop.test_failover import Load, registrations

PARTITIONS: Final = 3
VALUE_BYTES: Final = 2000
RECORDS: Final = 4000
CONFIG: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": "1",
    "min.insync.replicas": "2",
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("tiering"), brokers=3, tiering=True) as running:
        yield running


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 50_000})
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for number in range(RECORDS):
        producer.produce(topic, value(number), key=str(number), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []


def value(number: int) -> bytes:
    return f"{number}-".encode().ljust(VALUE_BYTES, b"x")


def log_starts(cluster: EngineCluster, topic: str) -> list[tuple[int, int, int]]:
    """(local start, end, latest tiered offset) of every partition on its leader."""
    offsets = []
    for partition in range(PARTITIONS):
        leader = registrations(cluster, topic)[partition].leader
        log = cluster.broker(leader).broker_services.replica_manager.partition(topic, partition).log
        offsets.append((log.local_log_start_offset, log.log_end_offset, log.highest_remote_offset))
    return offsets


def read_numbers(bootstrap: str, topic: str) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "cold", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    numbers: list[int] = []
    deadline = time.monotonic() + 60
    while len(numbers) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            content = message.value() or b""
            number = int(content.split(b"-")[0])
            assert content == value(number)
            numbers.append(number)
    consumer.close()
    return sorted(numbers)


def test_old_segments_are_remote_only_and_readable(cluster: EngineCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("cold", PARTITIONS, 3, config=CONFIG)])["cold"].result(30)
    fill(cluster.bootstrap, "cold")
    cluster.wait_until(
        "all but the active segments is only remote",
        lambda: all(0 < start <= tiered + 1 < end for start, end, tiered in log_starts(cluster, "cold")),
        60,
    )
    assert len(list(cluster.remote_folder.rglob("*.log"))) >= PARTITIONS
    assert read_numbers(cluster.bootstrap, "cold") == list(range(RECORDS))


def test_another_leader_serves_what_the_first_one_tiered(cluster: EngineCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moved", PARTITIONS, 3, config=CONFIG)])["moved"].result(30)
    fill(cluster.bootstrap, "moved")
    cluster.wait_until(
        "old segments are remote",
        lambda: all(0 < start <= tiered + 1 for start, _, tiered in log_starts(cluster, "moved")),
        60,
    )
    cluster.stop_broker(2)
    assert read_numbers(cluster.bootstrap, "moved") == list(range(RECORDS))
    load = Load(cluster.bootstrap, "moved")
    load.send(10)
    load.flush()
    assert load.failed == []
