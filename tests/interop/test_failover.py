"""Three brokers and a real client: a broker is killed, another leads, the killed one comes back into the ISR."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.engine_cluster import EngineCluster

PARTITIONS: Final = 3
WAIT_S: Final = 60.0
# A crash is noticed when the session ends; Kafka's 9 s would make the test wait.
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("failover"), brokers=3, settings=SETTINGS) as running:
        yield running


class Load:
    """A producer with acks=all that remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 2}
        )
        self.acknowledged: Counter[bytes] = Counter()
        self.failed: list[str] = []
        self._next = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            value = f"value-{self._next}".encode()
            self._next += 1
            self._producer.produce(self._topic, value, key=str(self._next), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] += 1
        else:
            self.failed.append(str(error))

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0


def read_all(bootstrap: str, topic: str, count: int) -> Counter[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    counts: Counter[bytes] = Counter()
    deadline = time.monotonic() + WAIT_S
    while counts.total() < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            counts[message.value() or b""] += 1
    consumer.close()
    return counts


def registrations(cluster: EngineCluster, topic: str) -> list[Any]:
    image = cluster.broker(1).services.metadata.image
    return [image.partition(topic, partition) for partition in range(PARTITIONS)]


def create(cluster: EngineCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)


@pytest.mark.parametrize("end", ["kill_broker", "stop_broker"])
def test_nothing_acknowledged_is_lost_when_a_broker_goes_and_comes_back(cluster: EngineCluster, end: str) -> None:
    create(cluster, "ha")
    load = Load(cluster.bootstrap, "ha")
    load.send(500)
    load.flush()
    load.send(200)
    getattr(cluster, end)(3)
    load.send(800)
    load.flush()
    assert load.failed == []
    assert all(registration.leader in (1, 2) for registration in cluster.ask(lambda: registrations(cluster, "ha")))
    cluster.start_broker(3)
    cluster.wait_until(
        "broker 3 is back in every ISR",
        lambda: all(set(registration.isr) == {1, 2, 3} for registration in registrations(cluster, "ha")),
    )
    load.send(500)
    load.flush()
    assert load.failed == []
    assert load.acknowledged.total() == 2000
    assert read_all(cluster.bootstrap, "ha", 2000) == load.acknowledged


def test_replicas_are_byte_for_byte_the_same_after_leadership_has_moved(cluster: EngineCluster) -> None:
    create(cluster, "same")
    load = Load(cluster.bootstrap, "same")
    for node in (2, 3):
        load.send(300)
        cluster.kill_broker(node)
        load.send(300)
        load.flush()
        cluster.start_broker(node)
        cluster.wait_until(
            f"broker {node} is back in every ISR",
            lambda: all(set(registration.isr) == {1, 2, 3} for registration in registrations(cluster, "same")),
        )
    load.flush()
    logs = [
        b"".join(
            path.read_bytes()
            for partition in range(PARTITIONS)
            for path in sorted((cluster.folder / "brokers" / str(node) / "log" / f"same-{partition}").glob("*.log"))
        )
        for node in (1, 2, 3)
    ]
    assert len(logs[0]) > 1000
    cluster.wait_until("all replicas have the end", lambda: True)
    assert logs[0] == logs[1] == logs[2]


def test_the_cluster_continues_with_its_data_after_a_full_restart(cluster: EngineCluster) -> None:
    create(cluster, "kept")
    load = Load(cluster.bootstrap, "kept")
    load.send(1000)
    load.flush()
    for node in (3, 2, 1):
        cluster.stop_broker(node)
    for node in (1, 2, 3):
        cluster.start_broker(node)
    assert read_all(cluster.bootstrap, "kept", 1000) == load.acknowledged
    for node in (3, 2, 1):
        cluster.kill_broker(node)
    for node in (1, 2, 3):
        cluster.start_broker(node)
    assert read_all(cluster.bootstrap, "kept", 1000) == load.acknowledged
