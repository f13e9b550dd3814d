"""`ebbline up --process-per-broker` ends as one cluster: no ISR shrinks for it, and one disk may be lost meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.data_folder.data_folder import DataFolder
from backend.supervisor.recovery.metadata_copies import read_copies
from tests.e2e.up_process import UpProcess
from tests.effort import effort
from tests.waiting import wait_until

OPTIONS = ("--no-ui", "--no-pipeline", "--no-demo", "--process-per-broker")
TOPIC = "orders"
PARTITIONS = 3
RECORDS = 300
PROCESSES = ("broker-1", "broker-2", "broker-3", "backend")


def produce_acknowledged(up: UpProcess) -> None:
    """Records that acks=all has taken with all three brokers in sync."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": up.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def values(up: UpProcess) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": up.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    consumed: set[bytes] = set()

    def more() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            consumed.add(message.value() or b"")
        return len(consumed) == RECORDS

    wait_until("all records", more, 90)
    consumer.close()
    return consumed


def replicas_and_isrs(data: Path) -> list[tuple[set[int], set[int]]]:
    """Of all partitions, from the metadata of a cluster that has ended."""
    folder = DataFolder(data)
    identity = folder.read_identity()
    assert identity is not None
    newest = max(read_copies(folder, identity), key=lambda copy: copy.end)
    assert newest.image is not None
    return [
        (set(partition.replicas), set(partition.isr))
        for topic in newest.image.topics.values()
        for partition in topic.partitions.values()
    ]


@pytest.mark.parametrize("how", effort(["Ctrl-C"], ["Ctrl-C", "the supervisor is killed"]))
def test_each_isr_is_whole_after_the_end_of_all_and_a_lost_disk_costs_nothing(tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    up = UpProcess(data, options=OPTIONS)
    with up:
        produce_acknowledged(up)
        pids = [up.pid(name) for name in PROCESSES]
        assert up.process is not None
        if how == "Ctrl-C":
            assert up.stop() == 0
        else:
            os.kill(up.process.pid, signal.SIGKILL)
            up.process.wait()
        wait_until("all processes end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)
    result = replicas_and_isrs(data)
    assert len(result) > PARTITIONS
    assert [isr for _, isr in result] == [replicas for replicas, _ in result]
    for node in (1, 2, 3):
        assert (data / "brokers" / str(node) / "log" / ".kafka_cleanshutdown").exists()

    shutil.rmtree(data / "brokers" / "1")
    with up:
        assert values(up) == {b"%d" % number for number in range(RECORDS)}
