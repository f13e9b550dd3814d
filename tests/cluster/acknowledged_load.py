"""The acknowledged records, kept outside of the cluster: plain, compacted, tiered and transactional records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PLAIN: Final = "plain"
COMPACTED: Final = "compacted"
TIERED: Final = "tiered"
TRANSACTIONAL: Final = "transactional"
PARTITIONS: Final = 3
KEYS: Final = 40
TRANSACTION_RECORDS: Final = 6
PAUSE_S: Final = 0.004
DELIVERY_TIMEOUT_MS: Final = 8_000
READ_S: Final = 60.0
NUMBER_BYTES: Final = 8
# Values of the tiered topic fill some of its segments of 1 MiB within a few rounds.
PADDING: Final = b"." * 12_000


class Acknowledged:
    """The records that are acknowledged so far, by topic; grows only."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = tuple(topics)
        self.values: dict[str, set[bytes]] = {topic: set() for topic in self.topics}
        self.newest: dict[bytes, int] = {}
        """Of each key of the compacted topic: the largest acknowledged number."""
        self.number = 0

    def __len__(self) -> int:
        return sum(len(values) for values in self.values.values())

    def reached(self, count: int) -> bool:
        return len(self) >= count

    def missing(self, bootstrap: str) -> list[str]:
        """Returns the acknowledged records that cannot be read now, in words; empty if all are there."""
        sentences: list[str] = []
        for topic in self.topics:
            read = read_values(bootstrap, topic)
            if topic == COMPACTED:
                held = {key: int(value) for key, value in read}
                sentences += [
                    f"{topic}: key {key!r} has {held.get(key)}, acknowledged was {number}"
                    for key, number in self.newest.items()
                    if held.get(key, -1) < number
                ]
            else:
                gone = self.values[topic] - {value for _, value in read}
                if gone:
                    sentences.append(f"{topic}: {len(gone)} of {len(self.values[topic])}, as {sorted(gone)[:3]!r}")
        return sentences


class Load:
    """Producers with acks=all, each on a thread, from one start of the cluster to its end."""

    def __init__(self, bootstrap: str, acknowledged: Acknowledged) -> None:
        self._acknowledged = acknowledged
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._plain, self._transactions)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Records that are not acknowledged by now are given up: the cluster is down, or left alone."""
        self._stop.set()
        for thread in self._threads:
            thread.join(READ_S)
            assert not thread.is_alive()

    def _number(self) -> int:
        with self._lock:
            self._acknowledged.number += 1
            return self._acknowledged.number

    def _plain(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 2,
             "delivery.timeout.ms": DELIVERY_TIMEOUT_MS, "log_level": 0}
        )  # fmt: skip
        topics = [topic for topic in self._acknowledged.topics if topic != TRANSACTIONAL]
        while not self._stop.is_set():
            number = self._number()
            topic = topics[number % len(topics)]
            value = b"%d" % number if topic == COMPACTED else b"%08d" % number + (PADDING if topic == TIERED else b"")
            key = b"key-%d" % (number // len(topics) % KEYS)
            try:
                producer.produce(topic, value, key, on_delivery=self._delivered)
            except (BufferError, KafkaException):
                self._stop.wait(0.1)
            producer.poll(PAUSE_S)
        producer.purge()
        producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            return
        if message.topic() == COMPACTED:
            key, number = message.key(), int(message.value())
            self._acknowledged.newest[key] = max(self._acknowledged.newest.get(key, -1), number)
        self._acknowledged.values[message.topic()].add(message.value()[:NUMBER_BYTES])

    def _transactions(self) -> None:
        while not self._stop.is_set():
            try:
                self._transact()
            except KafkaException:
                self._stop.wait(0.3)

    def _transact(self) -> None:
        """Transactions with one producer until one of its calls fails: it is not used after that."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": "load", "transaction.timeout.ms": 5_000,
             "message.timeout.ms": 4_000, "log_level": 0}
        )  # fmt: skip
        producer.init_transactions(5)
        while not self._stop.is_set():
            values = [b"%08d" % self._number() for _ in range(TRANSACTION_RECORDS)]
            producer.begin_transaction()
            for at, value in enumerate(values):
                producer.produce(TRANSACTIONAL, value, partition=at % PARTITIONS)
            if values[0].endswith(b"3"):
                producer.abort_transaction(5)
                continue
            producer.commit_transaction(5)
            self._acknowledged.values[TRANSACTIONAL].update(values)


def create_topics(admin: AdminClient, topics: Iterable[str]) -> None:
    """Three replicas each; partition p prefers broker p + 1."""
    replicas = [[(partition + at) % 3 + 1 for at in range(3)] for partition in range(PARTITIONS)]
    config = {
        COMPACTED: {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"},
        TIERED: {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "2097152"},
    }
    new = [NewTopic(topic, PARTITIONS, replica_assignment=replicas, config=config.get(topic, {})) for topic in topics]
    for made in admin.create_topics(new).values():
        made.result(30)


def read_values(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """(key, value) of all committed records from offset 0 on, in order within a partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0,
         "enable.partition.eof": True, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    records: list[tuple[bytes, bytes]] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + READ_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end: {len(records)} records came"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                records.append((message.key() or b"", (message.value() or b"")[:NUMBER_BYTES]))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return records
