"""Three independent clients against three brokers: create a topic, produce, read from 0 by assignment and by group."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import NewTopic as PythonNewTopic

from tests.engine_cluster import EngineCluster

PARTITIONS: Final = 3
RECORDS: Final = 2000
WAIT_S: Final = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("clients"), brokers=3) as running:
        yield running


def values(client: str) -> list[bytes]:
    return [f"{client}-{number}".encode() * (1 + number % 7) for number in range(RECORDS)]


@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_kafka_reads_what_it_wrote(cluster: EngineCluster, acks: str, compression: str) -> None:
    topic = f"confluent-{acks}-{compression}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": acks == "all",
            "linger.ms": 5,
        }
    )
    sent = values(topic)
    for number, value in enumerate(sent):
        producer.produce(
            topic,
            value,
            key=str(number),
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    by_hand = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-hand"})
    by_hand.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    assert confluent_values(by_hand) == Counter(sent)
    by_group = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-group", "auto.offset.reset": "earliest"}
    )
    by_group.subscribe([topic])
    assert confluent_values(by_group) == Counter(sent)


def confluent_values(consumer: Any) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    deadline = time.monotonic() + WAIT_S
    while counts.total() < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            counts[message.value()] += 1
    consumer.close()
    return counts


def test_a_group_resumes_where_it_committed(cluster: EngineCluster) -> None:
    topic = "committed"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(20):
        producer.produce(topic, str(number))
    assert producer.flush(WAIT_S) == 0
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "resumes",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }

    def read(count: int) -> list[bytes]:
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        received: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        while len(received) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None, message.error()
                received.append(message.value() or b"")
                consumer.commit(message=message, asynchronous=False)
        consumer.close()
        return received

    assert read(12) == [str(number).encode() for number in range(12)]
    assert read(8) == [str(number).encode() for number in range(12, 20)]


def test_kafka_python_reads_what_it_wrote(cluster: EngineCluster) -> None:
    topic = "kafka-python"
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([PythonNewTopic(name=topic, num_partitions=PARTITIONS, replication_factor=3)])
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=5)
    sent = values(topic)
    futures = [producer.send(topic, value=value, key=str(n).encode()) for n, value in enumerate(sent)]
    for future in futures:
        future.get(timeout=WAIT_S)
    producer.close()
    admin.close()
    by_hand = KafkaConsumer(bootstrap_servers=cluster.bootstrap, consumer_timeout_ms=20_000)
    assigned = [PythonTopicPartition(topic, partition) for partition in range(PARTITIONS)]
    by_hand.assign(assigned)
    by_hand.seek_to_beginning(*assigned)
    assert python_values(by_hand) == Counter(sent)
    by_group = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=f"{topic}-group",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    assert python_values(by_group) == Counter(sent)


def python_values(consumer: Any) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    for record in consumer:
        counts[record.value] += 1
        if counts.total() == RECORDS:
            break
    consumer.close()
    return counts


def test_aiokafka_reads_what_it_wrote(cluster: EngineCluster) -> None:
    topic = "aiokafka"

    async def play() -> tuple[Counter[bytes], Counter[bytes], list[bytes]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic(name=topic, num_partitions=PARTITIONS, replication_factor=3)])
        await admin.close()
        sent = values(topic)
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=5)
        await producer.start()
        try:
            waiting = [await producer.send(topic, value) for value in sent]
            await asyncio.gather(*waiting)
        finally:
            await producer.stop()
        by_hand = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        await by_hand.start()
        by_hand.assign([AioTopicPartition(topic, partition) for partition in range(PARTITIONS)])
        first = await aio_values(by_hand)
        by_group = AIOKafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=f"{topic}-group", auto_offset_reset="earliest"
        )
        await by_group.start()
        return first, await aio_values(by_group), sent

    first, second, sent = asyncio.run(play())
    assert first == Counter(sent)
    assert second == Counter(sent)


async def aio_values(consumer: Any) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    try:
        async with asyncio.timeout(WAIT_S):
            while counts.total() < RECORDS:
                record = await consumer.getone()
                counts[record.value] += 1
    finally:
        await consumer.stop()
    return counts
