"""The demo workload of `ebbline up`: a tiered topic of orders and about 100 kB/s of traffic.

An ordinary librdkafka client on a thread of its own: it sees the cluster as any user's program
does, and keeps trying when brokers are away.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
import threading
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC: Final = "demo.orders"
PARTITIONS: Final = 3
# remote 3 x 32 MiB + local 3 replicas x 3 partitions x (3 + 1 active + 1 pending) MiB = 141 MiB,
# far below the 1 GB that the demo may take.
TOPIC_CONFIG: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": str(3 << 20),
    "retention.bytes": str(32 << 20),
}
BYTES_PER_S: Final = 100_000
TICKS_PER_S: Final = 5
RECORD_BYTES: Final = 500
# A first start begins with history: 8 MiB a partition, so that remote data is there within seconds.
HISTORY_BYTES: Final = PARTITIONS * (8 << 20)
# Not all at once: brokers, pipeline and dashboard start at the same time, on two cores.
HISTORY_BYTES_PER_S: Final = 4 << 20
RETRY_S: Final = 2.0
CITIES: Final = ("Bergen", "Brest", "Cuxhaven", "Emden", "Esbjerg", "Husum", "Ostend", "Saint-Malo", "Whitby")

_log = logging.getLogger(__name__)


class DemoWorkload:
    """Produces until stopped."""

    def __init__(self, bootstrap_servers: str, *, replication_factor: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._replication_factor = replication_factor
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-workload", daemon=True)
        self._failed = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; waits for it."""
        self._stop.set()
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                history_bytes = HISTORY_BYTES if self._create_topic() else 0
                self._produce(history_bytes)
            except KafkaException as error:
                _log.warning("Demo topic %s: %s; trying again in %.0f s", TOPIC, error.args[0].str(), RETRY_S)
                self._stop.wait(RETRY_S)

    def _create_topic(self) -> bool:
        """True when the topic is new."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap_servers, "log_level": 0})
        topic = NewTopic(
            TOPIC, num_partitions=PARTITIONS, replication_factor=self._replication_factor, config=dict(TOPIC_CONFIG)
        )
        try:
            admin.create_topics([topic])[TOPIC].result(timeout=30.0)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def _produce(self, history_bytes: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "client.id": "ebbline-demo",
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 20,
                "queue.buffering.max.kbytes": 16_384,
                "log_level": 0,
            }
        )
        order_ids = itertools.count(time.time_ns() // 1_000_000)
        try:
            left_bytes = history_bytes
            while not self._stop.wait(1.0 / TICKS_PER_S):
                rate = HISTORY_BYTES_PER_S if left_bytes > 0 else BYTES_PER_S
                self._send(producer, rate // TICKS_PER_S, order_ids)
                left_bytes -= rate // TICKS_PER_S
        finally:
            producer.flush(5.0)

    def _send(self, producer: Producer, size_bytes: int, order_ids: itertools.count[int]) -> None:
        sent = 0
        while sent < size_bytes and not self._stop.is_set():
            key, value = order(next(order_ids))
            try:
                producer.produce(TOPIC, value=value, key=key, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.1)
                continue
            sent += len(value)
        producer.poll(0)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            return
        self._failed += 1
        if self._failed == 1 or self._failed % 1000 == 0:
            _log.warning("Demo topic %s: %d records could not be delivered, last: %s", TOPIC, self._failed, error.str())


def order(order_id: int) -> tuple[bytes, bytes]:
    """One order as (key, JSON value) of about :data:`RECORD_BYTES` bytes."""
    chance = random.Random(order_id)
    value = {
        "order_id": order_id,
        "placed_at_ms": time.time_ns() // 1_000_000,
        "city": chance.choice(CITIES),
        "items": [{"sku": f"SKU-{chance.randrange(10_000):05d}", "quantity": chance.randrange(1, 9)} for _ in range(6)],
        "total_cents": chance.randrange(500, 250_000),
    }
    text = json.dumps(value)
    note = "." * max(0, RECORD_BYTES - len(text) - 12)
    return str(order_id).encode(), f'{text[:-1]}, "note": "{note}"}}'.encode()
