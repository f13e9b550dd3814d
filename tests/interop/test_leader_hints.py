"""A client that asks the wrong broker gets the leader (KIP-951): as by Apache Kafka, and librdkafka goes there."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from backend.protocol import messages as m
from tests.engine_cluster import EngineCluster
from tests.interop.wrong_broker import Script
from tests.wire import ask

RECORDED: Final = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "leader-hints.json"
TOPIC: Final = "moving"
WAIT_S: Final = 30.0
# Nothing but the hint tells these clients in time that the leader has changed.
PATIENT: Final = {
    "topic.metadata.refresh.interval.ms": 3_600_000,
    "metadata.max.age.ms": 86_400_000,
    "debug": "topic,metadata,protocol",
}


class Heard(logging.Handler):
    """The log of a client."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.logger = logging.Logger(name, logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def found_the_leader_by_a_hint(self) -> bool:
        """Whether it went to broker 2 before any answer to a question for the leader."""
        moved = next((at for at, line in enumerate(self.lines) if "applying leader-id update 1 -> 2" in line), None)
        assert moved is not None, "\n".join(self.lines)
        before = self.lines[:moved]
        hinted = any("updated with leader 2 and epoch 1" in line for line in before)
        return hinted and not any("Received MetadataResponse" in line for line in before)


def test_the_leader_is_named_as_by_kafka(tmp_path: Path) -> None:
    with EngineCluster(tmp_path, brokers=2) as cluster:
        result = Script(cluster.layout.ports[1], cluster.layout.ports[2]).run()
    expected = json.loads(RECORDED.read_text())
    assert len(expected) == 63
    assert [[label, answer] for label, answer in result] == expected


def test_librdkafka_goes_to_the_leader_that_a_refusal_names(tmp_path: Path) -> None:
    writes, reads = Heard("writes"), Heard("reads")
    with EngineCluster(tmp_path, brokers=2) as cluster:
        create(cluster)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **PATIENT}, logger=writes.logger)
        reader = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer({**reader, **PATIENT}, logger=reads.logger)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        send(producer, b"to 1")
        assert received(consumer).value() == b"to 1"
        for heard in (writes, reads):
            heard.lines.clear()
        move(cluster)
        send(producer, b"to 2")
        assert received(consumer).value() == b"to 2"
        consumer.close()
    assert writes.found_the_leader_by_a_hint()
    assert reads.found_the_leader_by_a_hint()


def create(cluster: EngineCluster) -> None:
    kind = m.CreateTopicsRequest.Topics
    here = kind.Assignments(partition_index=0, broker_ids=[1, 2])
    topic = kind(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[here])
    request = m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert ask(cluster.layout.ports[1], request, 7, m.CreateTopicsResponse).topics[0].error_code == 0
    cluster.wait_until("the topic is in sync", lambda: isr(cluster) == [1, 2])


def isr(cluster: EngineCluster) -> list[int]:
    partition = cluster.broker(1).services.metadata.image.partition(TOPIC, 0)
    return [] if partition is None else sorted(partition.isr)


def move(cluster: EngineCluster) -> None:
    """Away from broker 1, which knows by now where to."""
    kind = m.AlterPartitionReassignmentsRequest.Topics
    there = kind.Partitions(partition_index=0, replicas=[2])
    request = m.AlterPartitionReassignmentsRequest(topics=[kind(name=TOPIC, partitions=[there])])
    ask(cluster.layout.ports[1], request, 1, m.AlterPartitionReassignmentsResponse)
    cluster.wait_until("broker 2 is alone", lambda: isr(cluster) == [2])


def send(producer: Producer, value: bytes) -> None:
    producer.produce(TOPIC, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def received(consumer: Consumer) -> Message:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            return message
    raise AssertionError("nothing came")
