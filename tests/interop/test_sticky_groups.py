"""The eager `sticky` assignor of the classic protocol: kafka-python's and Apache Kafka's own, in one group."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries

TOPIC: Final = "sticky"
PARTITIONS: Final = 6
MESSAGES: Final = 10
WAIT_S: Final = 60.0
JAVA_ASSIGNOR: Final = "org.apache.kafka.clients.consumer.StickyAssignor"


def member(bootstrap: str) -> KafkaConsumer:
    return KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=TOPIC,
        client_id="python",
        partition_assignment_strategy=[StickyPartitionAssignor],
        heartbeat_interval_ms=200,
        enable_auto_commit=False,
    )


def parts(consumer: KafkaConsumer) -> set[int]:
    return {partition.partition for partition in consumer.assignment()}


def until(what: str, question: Callable[[], bool], *members: KafkaConsumer) -> None:
    """Every member has its turns meanwhile."""
    deadline = time.monotonic() + WAIT_S
    while not question():
        assert time.monotonic() < deadline, (
            f"not within {WAIT_S:.0f} s: {what}; {[parts(consumer) for consumer in members]}"
        )
        for consumer in members:
            consumer.poll(100)


def test_members_keep_what_they_have_when_others_come_and_go(tmp_path: Path) -> None:
    libs = libraries()
    with EngineCluster(tmp_path, brokers=1) as cluster, ThreadPoolExecutor(1) as beside:
        quiet: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "logger": logging.Logger("quiet")}
        admin = AdminClient(quiet)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        first, second = member(cluster.bootstrap), member(cluster.bootstrap)
        until("the first has all", lambda: len(parts(first)) == PARTITIONS, first)
        until("both share", lambda: [len(parts(consumer)) for consumer in (first, second)] == [3, 3], first, second)
        before = parts(first), parts(second)
        assert before[0] | before[1] == set(range(PARTITIONS))

        tool = JavaTools(libs, cluster.bootstrap)
        words = ["--topic", TOPIC, "--group-id", TOPIC, "--assignment-strategy", JAVA_ASSIGNOR]
        limits = ["--max-messages", str(MESSAGES), "--reset-policy", "earliest"]
        java = beside.submit(tool.run, "kafka-verifiable-consumer", *words, *limits)
        until("three share", lambda: [len(parts(consumer)) for consumer in (first, second)] == [2, 2], first, second)
        assert parts(first) < before[0]
        assert parts(second) < before[1]
        given = set(range(PARTITIONS)) - parts(first) - parts(second)

        # Enough in each partition for it to end, having committed and left.
        producer = Producer(quiet)
        for number in range(PARTITIONS * MESSAGES):
            producer.produce(TOPIC, b"v", partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0
        between = parts(first), parts(second)
        until(
            "two share again", lambda: [len(parts(consumer)) for consumer in (first, second)] == [3, 3], first, second
        )
        assert parts(first) > between[0]
        assert parts(second) > between[1]

        events = [json.loads(line) for line in java.result(WAIT_S).splitlines()]
        assigned = [event["partitions"] for event in events if event["name"] == "partitions_assigned"]
        assert {partition["partition"] for partition in assigned[-1]} == given
        first.close()
        until("the second has all", lambda: len(parts(second)) == PARTITIONS, second)
        second.close()
