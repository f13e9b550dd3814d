"""A broker that restarts takes up its remote metadata from its own files and serves the remote tier at once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.remote.metadata.metadata_files import COMMITTED_OFFSETS
from tests.engine_cluster import EngineCluster

TOPIC: Final = "orders"
RECORDS: Final = 30
CONFIG: Final = {
    "remote.storage.enable": "true",
    "segment.index.bytes": "48",
    "index.interval.bytes": "1",
    "local.retention.bytes": "1",
    "min.insync.replicas": "1",
}


def test_a_restarted_broker_reads_only_what_is_new_and_serves_every_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EngineCluster(tmp_path, brokers=1, tiering=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, f"{number}".encode())
            producer.flush(30)
        cluster.wait_until("old segments are only remote", lambda: local_start(cluster) > RECORDS // 2, 60)
        cluster.stop_broker(1)
        folder = Path(cluster.layout.log_dirs[1])
        assert (folder / COMMITTED_OFFSETS).read_text()
        assert list(folder.glob("_rlmm_*-0"))
        with caplog.at_level(logging.INFO):
            cluster.call(cluster.cluster.start_broker(1))
            assert read(cluster.bootstrap) == [f"{number}".encode() for number in range(RECORDS)]
        assert not [text for text in caplog.messages if "read from its start" in text or "cannot be used" in text]


def local_start(cluster: EngineCluster) -> int:
    return cluster.broker(1).broker_services.replica_manager.partition(TOPIC, 0).log.local_log_start_offset


def read(bootstrap: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "cold", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes | None] = []
    for _ in range(600):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
        if len(values) == RECORDS:
            break
    consumer.close()
    return values
