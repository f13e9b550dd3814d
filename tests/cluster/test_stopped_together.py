"""A whole cluster that is stopped in order keeps every ISR as it is, whoever was the last to stop."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.controller.image import MetadataImage
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
        epochs = {node: cluster.broker(node).part.epoch for node in (1, 2, 3)}

        started = time.monotonic()
        cluster.call(cluster.cluster.stop())
        assert time.monotonic() - started < STOP_S
        assert [members(one.image) for one in metadata] == [before] * 3
        for node, log_dir in made.log_dirs.items():
            marker = json.loads(Path(log_dir, ".kafka_cleanshutdown").read_text())
            assert marker == {"version": 0, "brokerEpoch": epochs[node]}

        cluster.call(cluster.cluster.start())
        cluster.wait_until(
            "all are in sync again",
            lambda: members(cluster.broker(1).services.metadata.image) == before,
        )
