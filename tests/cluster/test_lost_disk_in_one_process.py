"""One disk is lost while everything is down, after an orderly stop and after a kill: no acknowledged record with it."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.protocol.events import UncleanRecoveryEvent, decode
from tests.engine_cluster import EngineCluster
from tests.waiting import wait_until

NODES: Final = (1, 2, 3)
RECORDS: Final = 300
WAIT_S: Final = 60.0
SETTINGS: Final = {
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


def acknowledged(cluster: EngineCluster) -> Counter[bytes]:
    """Values that acks=all has taken."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("kept", 1, 3)])["kept"].result(WAIT_S)
    taken: Counter[bytes] = Counter()

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        taken[message.value() or b""] += 1

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("kept", f"value-{number}".encode(), on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return taken


def readable(cluster: EngineCluster) -> Counter[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("kept", 0, 0)])
    counts: Counter[bytes] = Counter()
    until = time.monotonic() + WAIT_S
    while counts.total() < RECORDS and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            counts[message.value() or b""] += 1
    consumer.close()
    return counts


def elections_told(cluster: EngineCluster) -> list[UncleanRecoveryEvent]:
    """Events of elections by comparing logs, of the topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("__ebbline_events", 0, 0)])
    end = consumer.get_watermark_offsets(TopicPartition("__ebbline_events", 0), timeout=WAIT_S)[1]
    events: list[UncleanRecoveryEvent] = []
    at = 0
    while at < end:
        message = consumer.poll(WAIT_S)
        assert message is not None
        at = (message.offset() or 0) + 1
        event = decode(message.value())
        if isinstance(event, UncleanRecoveryEvent) and event.topic == "kept":
            events.append(event)
    consumer.close()
    return events


@pytest.mark.parametrize("how", ["orderly stop", "kill"])
@pytest.mark.parametrize("lost", NODES)
def test_the_disk_of_one_broker_is_lost_while_all_are_down(tmp_path: Path, how: str, lost: int) -> None:
    with EngineCluster(tmp_path, brokers=3, settings=SETTINGS, voters=3) as cluster:
        taken = acknowledged(cluster)
        if how == "kill":
            for node in NODES:
                cluster.kill_broker(node)
        else:
            cluster.call(cluster.cluster.stop())
        shutil.rmtree(cluster.layout.log_dirs[lost])
        cluster.call(cluster.cluster.start())
        assert readable(cluster) == taken

        def is_whole() -> bool:
            replica = cluster.broker(lost).broker_services.replica_manager
            partition = replica.image.partition("kept", 0)
            return partition is not None and sorted(partition.isr) == list(NODES)

        cluster.wait_until("all are in sync again", is_whole, WAIT_S)
        if how == "kill":
            events = wait_until("the election is told", lambda: elections_told(cluster), WAIT_S)
            assert [event.leader == lost for event in events] == [False]
        else:
            assert elections_told(cluster) == []
