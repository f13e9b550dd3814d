"""A client that may be killed at any time: consumes, transforms and produces in transactions, until it is ended.

Run as `python -m tests.cluster.transform_worker BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID`. Ends with code 1 when
its producer is fenced or in any other way past repair, and by SIGALRM when a transaction does not end; whoever started
it starts it again.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

WAIT_S: Final = 30.0
BATCH: Final = 10
# The duration of transforming: most of the time a transaction is open with its records on the brokers.
WORK_S: Final = 0.1
# Shorter than Kafka's minute: what a killed client leaves open would hold the round up.
TRANSACTION_TIMEOUT_MS: Final = 10_000
# librdkafka 2.16 may ask for nothing any more once the group's coordinator is fenced, and knows no end of it (its
# issues 5511 and 5456): then only the process can be ended, long after the brokers have aborted the transaction.
STUCK_S: Final = 40


class Worker:
    """One producer and one consumer."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
        self._target = target
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0,
             "enable.auto.commit": False, "isolation.level": "read_committed", "session.timeout.ms": 6000,
             "heartbeat.interval.ms": 500}
        )  # fmt: skip
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0,
             "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "message.timeout.ms": TRANSACTION_TIMEOUT_MS}
        )  # fmt: skip
        self._producer.init_transactions(120)
        self._consumer.subscribe([source])

    def run(self) -> None:
        """Goes on for ever. Raises KafkaException when the producer cannot be used any longer."""
        while True:
            messages = [message for message in self._consumer.consume(BATCH, 0.2) if message.error() is None]
            if not messages:
                continue
            signal.alarm(STUCK_S)
            self._producer.begin_transaction()
            try:
                for message in messages:
                    self._producer.produce(self._target, message.value(), partition=message.partition() or 0)
                # On the brokers before the offsets are: a kill in between leaves records to be aborted.
                self._producer.flush(WAIT_S)
                time.sleep(WORK_S)
                self._commit()
            except KafkaException as error:
                self._recover(error)
            signal.alarm(0)

    def _commit(self) -> None:
        positions = [
            topic_partition
            for topic_partition in self._consumer.position(self._consumer.assignment())
            if topic_partition.offset >= 0
        ]
        metadata = self._consumer.consumer_group_metadata()
        self._again(lambda: self._producer.send_offsets_to_transaction(positions, metadata, WAIT_S))
        self._again(lambda: self._producer.commit_transaction(WAIT_S))

    def _again(self, work: Callable[[], object]) -> None:
        while True:
            try:
                work()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _recover(self, error: KafkaException) -> None:
        if error.args[0].fatal() or not error.args[0].txn_requires_abort():
            raise error
        self._again(lambda: self._producer.abort_transaction(WAIT_S))
        for kept in self._consumer.committed(self._consumer.assignment(), WAIT_S):
            self._consumer.seek(TopicPartition(kept.topic, kept.partition, max(kept.offset, 0)))


if __name__ == "__main__":
    try:
        Worker(*sys.argv[1:]).run()
    except KafkaException as refused:
        print(f"ends: {refused}", flush=True)
        sys.exit(1)
