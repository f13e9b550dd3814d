"""Numbered records: the writers of an incident, what was acknowledged to them, and whether it can be read."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

VALUE_BYTES: Final = 1_000
PAUSE_S: Final = 0.1
# A store that takes 2 s for each read of 1 MB is read to its end, too.
READ_S: Final = 300.0
SILENT_S: Final = 60.0


class Acknowledged:
    """The number of acknowledged records of each partition. Thread-safe: producers call back on their threads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """The callback of a producer."""
        topic, partition = message.topic(), message.partition()
        if error is None and topic is not None and partition is not None:
            with self._lock:
                self._counts[topic, partition] += 1

    def forget(self, topic: str) -> None:
        with self._lock:
            for key in [key for key in self._counts if key[0] == topic]:
                del self._counts[key]

    def counts(self) -> dict[tuple[str, int], int]:
        with self._lock:
            return dict(self._counts)


def value(number: int) -> bytes:
    return b"%012d" % number + b"." * (VALUE_BYTES - 12)


def new_producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            # As long as the longest outage of an incident, so that what was given up is rare.
            "delivery.timeout.ms": 300_000,
            "queue.buffering.max.messages": 50_000,
            "log_level": 0,
        }
    )


class Load:
    """Writes numbered records into the partitions of a topic, in turn, at a steady rate, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, bytes_per_s: int, acknowledged: Acknowledged):
        self._producer = new_producer(bootstrap)
        self._topic, self._partitions = topic, partitions
        self._records_per_pause = bytes_per_s * PAUSE_S / VALUE_BYTES
        self._acknowledged = acknowledged
        self._stop = threading.Event()
        self.error: KafkaException | None = None
        """Why it wrote no more: an unclean election ends a producer that numbers its records."""
        self._thread = threading.Thread(target=self._run, name=f"load-{topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number, due = 0, 0.0
        while not self._stop.wait(PAUSE_S):
            due += self._records_per_pause
            while number < due:
                try:
                    self._producer.produce(
                        self._topic,
                        value(number),
                        # Keys come back, for topics that are compacted.
                        key=str(number % 100).encode(),
                        partition=number % self._partitions,
                        on_delivery=self._acknowledged.delivered,
                    )
                except KafkaException as error:
                    self.error = error
                    return
                except BufferError:
                    # The cluster is away: the queue is as long as it may be, and what came meanwhile is left out.
                    due = number
                    break
                number += 1
            self._producer.poll(0)

    def stop(self) -> None:
        """Ends after a flush: a record on its way may still be acknowledged, and is lost to the count else."""
        self._stop.set()
        self._thread.join()
        # The library raises both for a producer that has ended.
        with suppress(KafkaException, SystemError):
            self._producer.flush(10)
            self._producer.purge()
            self._producer.flush(1)


def write(bootstrap: str, topic: str, partitions: int, records: int, acknowledged: Acknowledged) -> None:
    """Numbered records, to the partitions in turn; returns when all are acknowledged or given up."""
    producer = new_producer(bootstrap)
    for number in range(records):
        while True:
            try:
                producer.produce(
                    topic, value(number), partition=number % partitions, on_delivery=acknowledged.delivered
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records of {topic} were not acknowledged within 120 s")


def readable(bootstrap: str, topic: str, partitions: int) -> Counter[int]:
    """The number of records that can be read of each partition, from its log start to the end that it has now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "incidents-check",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    counts: Counter[int] = Counter()
    try:
        ends = {}
        for partition in range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            ends[partition] = (low, high)
        consumer.assign([TopicPartition(topic, partition, low) for partition, (low, _) in ends.items()])
        left = {partition: high for partition, (low, high) in ends.items() if high > low}
        end_s = time.monotonic() + READ_S
        silent_s = time.monotonic() + SILENT_S
        while left and time.monotonic() < min(end_s, silent_s):
            for message in consumer.consume(1_000, timeout=1.0):
                number, at = message.partition(), message.offset()
                if message.error() is not None or number is None or at is None:
                    continue
                silent_s = time.monotonic() + SILENT_S
                counts[number] += 1
                if at + 1 >= left.get(number, 0):
                    left.pop(number, None)
    finally:
        consumer.close()
    return counts
