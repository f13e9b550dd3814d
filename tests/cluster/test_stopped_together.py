"""A whole cluster that is stopped in order keeps every ISR as it is, and its start gives each partition its leader."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.controller.image.metadata_image import MetadataImage
from tests.engine_cluster import EngineCluster, layout

TOPIC: Final = "orders"
SETTINGS: Final = {"broker.heartbeat.interval.ms": "200", "replica.lag.time.max.ms": "3000"}
STOP_S: Final = 20


def members(image: MetadataImage) -> dict[tuple[str, int], tuple[int, ...]]:
    """The ISR of each partition."""
    return {
        (topic.name, index): tuple(sorted(partition.isr))
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    }


def leaders(image: MetadataImage) -> dict[tuple[str, int], int]:
    """The leader of each partition."""
    return {
        (topic.name, index): partition.leader
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    }


def epochs(image: MetadataImage) -> dict[tuple[str, int], int]:
    """The leader epoch of each partition."""
    return {
        (topic.name, index): partition.leader_epoch
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    }


@pytest.mark.parametrize("voters", [1, 3])
def test_nobody_leaves_an_isr_and_each_directory_is_marked_clean(tmp_path: Path, voters: int) -> None:
    made = layout(tmp_path, brokers=3, settings=SETTINGS, voters=voters)
    with EngineCluster(tmp_path, made=made) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(600):
            producer.produce(TOPIC, str(number), partition=number % 6)
        assert producer.flush(30) == 0
        metadata = [cluster.broker(node).services.metadata for node in (1, 2, 3)]
        everyone = {(1, 2, 3)}
        cluster.wait_until("all are in sync", lambda: {*members(metadata[0].image).values()} == everyone)
        before = members(metadata[0].image)
        led = leaders(metadata[0].image)
        lives = {node: cluster.broker(node).server.epoch for node in (1, 2, 3)}

        started = time.monotonic()
        cluster.call(cluster.cluster.stop())
        assert time.monotonic() - started < STOP_S
        assert [members(metadata_cache.image) for metadata_cache in metadata] == [before] * 3
        for node, log_dir in made.log_dirs.items():
            marker = json.loads(Path(log_dir, ".kafka_cleanshutdown").read_text())
            assert marker == {"version": 0, "brokerEpoch": lives[node]}

        cluster.call(cluster.cluster.start())
        # At once: nobody has left, so nobody has to come in again, and nobody else has led meanwhile.
        cluster.wait_until("all are led", lambda: min(leaders(cluster.broker(1).services.metadata.image).values()) > 0)
        image = cluster.broker(1).services.metadata.image
        assert members(image) == before
        assert leaders(image) == led


def test_a_broker_that_stays_away_is_waited_for_for_the_stated_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "broker.heartbeat.interval.ms": "200",
        # By its session alone a broker that is away would be found after this time.
        "broker.session.timeout.ms": "60000",
        "ebbline.leader.start.wait.ms": "1500",
    }
    made = layout(tmp_path, brokers=3, settings=settings)
    with EngineCluster(tmp_path, made=made) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(30)
        admin.create_topics([NewTopic("alone", 3, 1)])["alone"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(60):
            producer.produce(TOPIC, str(number), partition=number % 6)
        assert producer.flush(30) == 0
        led = leaders(cluster.broker(1).services.metadata.image)
        cluster.call(cluster.cluster.stop())

        cluster.call(cluster.cluster.start_broker(1))
        cluster.call(cluster.cluster.start_broker(2))

        def image() -> MetadataImage:
            return cluster.broker(1).services.metadata.image

        # A replica that is alone waits for nobody.
        here = [at for at, leader in led.items() if at[0] == "alone" and leader in (1, 2)]
        cluster.wait_until("those alone are led", lambda: all(leaders(image())[at] == led[at] for at in here))
        cluster.wait_until("all are led", lambda: all(leaders(image())[TOPIC, at] in (1, 2) for at in range(6)))
        for at in range(6):
            partition = image().partition(TOPIC, at)
            assert partition is not None
            assert set(partition.isr) == {1, 2}
            assert led[TOPIC, at] in (partition.leader, 3)
        said = [record.getMessage() for record in caplog.records]
        assert any("waits for broker 3 (not here yet; at most 1.5 s)" in line for line in said)
        assert any("broker 3 has not come within 2 s" in line for line in said)
        missing = [at for at, leader in led.items() if at[0] == "alone" and leader == 3]
        assert [leaders(image())[at] for at in missing] == [-1] * len(missing)

        cluster.call(cluster.cluster.start_broker(3))
        cluster.wait_until("all is led", lambda: all(leaders(image())[at] == 3 for at in missing))
        cluster.wait_until("all are in sync", lambda: all(len(members(image())[TOPIC, at]) == 3 for at in range(6)))


def test_a_controller_that_restarts_beside_living_brokers_waits_for_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = layout(tmp_path, brokers=3, settings=SETTINGS)
    with EngineCluster(tmp_path, made=made) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(30)

        def knows_leader() -> bool:
            return (TOPIC, 5) in leaders(cluster.broker(2).services.metadata.image)

        cluster.wait_until("broker 2 has heard of the topic", knows_leader)
        before = epochs(cluster.broker(2).services.metadata.image)
        led = leaders(cluster.broker(2).services.metadata.image)
        # Node 1 alone is the controller.
        cluster.call(cluster.cluster.kill_broker(1))
        cluster.call(cluster.cluster.start_broker(1))

        def image() -> MetadataImage:
            return cluster.broker(2).services.metadata.image

        cluster.wait_until("all are led", lambda: min(leaders(image()).values()) > 0)
        cluster.wait_until("all are in sync", lambda: all(len(members(image())[TOPIC, at]) == 3 for at in range(6)))
        others = [(TOPIC, at) for at in range(6) if led[TOPIC, at] != 1]
        assert [epochs(image())[at] for at in others] == [before[at] for at in others]
        assert not [record for record in caplog.records if "the cluster starts" in record.getMessage()]
