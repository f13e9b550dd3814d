"""The demo's thread: makes the topics, writes and reads until it is stopped.

Its clients are ordinary ones of librdkafka: they see the cluster as any user's program does, and keep trying when
brokers are away.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewTopic

from backend.control.lab.demo.payments import PaymentTransactions
from backend.control.lab.demo.readers import GROUPS, DemoReader
from backend.control.lab.demo.topics import PAYMENTS, TOPICS, DemoTopic, record

TICKS_PER_S: Final = 5
# History is not written at once: brokers, pipeline and dashboard start at the same time, on two cores.
HISTORY_BYTES_PER_S: Final = 4 << 20
REQUEST_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 2.0
# The clients' close commits and leaves the groups; the backend's stop waits 10 s for all of it.
FLUSH_S: Final = 5.0
_log = logging.getLogger(__name__)


class DemoWorkload:
    """Produces and reads until stopped."""

    def __init__(self, bootstrap_servers: str, *, replication_factor: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._replication_factor = replication_factor
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-workload", daemon=True)
        self._transactions = PaymentTransactions(bootstrap_servers)
        self._failed = 0
        # It must outlive the futures that it gives: they are completed by its own thread.
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the threads; waits for them."""
        self._stop.set()
        self._transactions.stop()
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        # The topics that are there, and those of them that the demo made: it leaves all others alone.
        present: set[DemoTopic] = set()
        own: list[DemoTopic] = []
        # Bytes of history that are still to be written, and when copying is to be paused (monotonic seconds).
        history: dict[DemoTopic, int] = {}
        pauses: dict[DemoTopic, float] = {}
        while not self._stop.is_set():
            try:
                for topic in TOPICS:
                    if topic in present:
                        continue
                    chosen = topic.config
                    if self._create(topic):
                        history[topic] = topic.history_bytes
                    else:
                        chosen = self._chosen_settings(topic)
                    present.add(topic)
                    if not topic.made(chosen):
                        _log.warning("The demo leaves topic %s alone: it was not made by the demo", topic.name)
                        continue
                    own.append(topic)
                    if topic.awaits_pause(chosen):
                        pauses[topic] = time.monotonic() + topic.pause_after_s
                self._work(own, history, pauses)
            except (KafkaException, TimeoutError) as error:
                # Also a producer whose error is fatal: another one takes its place.
                _log.warning("The demo: %s; trying again in %.0f s", _reason(error), RETRY_S)
                self._stop.wait(RETRY_S)

    def _create(self, topic: DemoTopic) -> bool:
        """True when the topic is new."""
        new = NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=self._replication_factor,
            config=dict(topic.config),
        )
        try:
            self._admin.create_topics([new])[topic.name].result(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def _chosen_settings(self, topic: DemoTopic) -> Mapping[str, str]:
        """The settings of an existing topic that are its own. Raises KafkaException and TimeoutError."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name)
        entries = self._admin.describe_configs([resource])[resource].result(timeout=REQUEST_TIMEOUT_S)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG
        return {name: entry.value for name, entry in entries.items() if ConfigSource(entry.source) is own}

    def _work(self, own: Sequence[DemoTopic], history: dict[DemoTopic, int], pauses: dict[DemoTopic, float]) -> None:
        """Writes and reads until stopped. Raises KafkaException."""
        numbers = itertools.count(time.time_ns() // 1_000_000)
        producer = self._producer()
        groups = [group.limited_to(own) for group in GROUPS]
        readers = [DemoReader(self._bootstrap_servers, group) for group in groups if group.topics]
        if any(topic.name == PAYMENTS.name for topic in own):
            self._transactions.start()
        try:
            while not self._stop.wait(1.0 / TICKS_PER_S):
                self._write(producer, own, history, numbers)
                for reader in readers:
                    reader.read(1.0 / TICKS_PER_S)
                for topic in [topic for topic, due_s in pauses.items() if time.monotonic() > due_s]:
                    self._pause(topic)
                    del pauses[topic]
        finally:
            producer.flush(FLUSH_S)
            for reader in readers:
                reader.close()

    def _write(
        self,
        producer: Producer,
        own: Sequence[DemoTopic],
        history: dict[DemoTopic, int],
        numbers: itertools.count[int],
    ) -> None:
        """One tick of every topic; histories one after the other, and live traffic of a topic after its own."""
        before = next((topic for topic, left_bytes in history.items() if left_bytes > 0), None)
        for topic in own:
            if topic == before:
                size_bytes = HISTORY_BYTES_PER_S // TICKS_PER_S
                history[topic] -= size_bytes
            elif history.get(topic, 0) > 0:
                continue
            else:
                size_bytes = topic.bytes_per_s // TICKS_PER_S
            self._send(producer, topic, size_bytes, numbers)

    def _send(self, producer: Producer, topic: DemoTopic, size_bytes: int, numbers: itertools.count[int]) -> None:
        sent = 0
        while sent < size_bytes and not self._stop.is_set():
            key, value = record(topic.records, next(numbers), time.time_ns() // 1_000_000)
            try:
                producer.produce(topic.name, value=value, key=key, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.1)
                continue
            sent += len(value)
        producer.poll(0)

    def _pause(self, topic: DemoTopic) -> None:
        """Pauses copying once. A cluster that refuses it now keeps copying: the demo goes on."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (topic.paused_config or {}).items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name, incremental_configs=entries)
        try:
            self._admin.incremental_alter_configs([resource])[resource].result(timeout=REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            _log.warning("Demo topic %s: copying is not paused: %s", topic.name, _reason(error))

    def _producer(self) -> Producer:
        return Producer(
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

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        self._failed += 1
        if self._failed == 1 or self._failed % 1000 == 0:
            _log.warning(
                "Demo topic %s: %d records could not be delivered, last: %s", message.topic(), self._failed, error.str()
            )


def _reason(error: KafkaException | TimeoutError) -> str:
    if isinstance(error, KafkaException):
        return str(error.args[0].str())
    return f"no answer within {REQUEST_TIMEOUT_S:.0f} s"
