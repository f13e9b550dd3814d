"""Eight clients of librdkafka that move records from topic to topic, each batch in a transaction with its offsets.

python -m tests.interop.transform_clients.librdkafka BOOTSTRAP SOURCE TARGET GROUP CLIENTS BATCH

Works until its input ends, then prints what it did as JSON. Ends with status 1 and a line "fatal: …" when a producer
cannot be used any longer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

WAIT_S: Final = 60.0
# Of a client's transactions: every so many one is aborted with its records, one is followed by an abort of nothing, and
# the consumer leaves its group and joins again.
ABORTED, EMPTY, REJOINED = 5, 3, 9


class Client:
    """A consumer and a producer."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, number: int, batch: int) -> None:
        self._source, self._target, self._group, self._batch = source, target, group, batch
        self._bootstrap = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.did: Counter[str] = Counter()
        self._producer = Producer(self._bootstrap | {"transactional.id": f"{group}-{number}"})
        self._producer.init_transactions(WAIT_S)
        self._consumer = self._joined()
        # They do not all do the same at the same time.
        self._turn = number

    def _joined(self) -> Consumer:
        consumer = Consumer(
            self._bootstrap
            | {"group.id": self._group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
               "isolation.level": "read_committed", "heartbeat.interval.ms": 300}
        )  # fmt: skip
        consumer.subscribe([self._source], on_assign=lambda *_: self.did.update(rebalances=1))
        return consumer

    def run(self, ended: threading.Event) -> None:
        """Raises KafkaException when the producer cannot be used any longer."""
        while not ended.is_set():
            messages = [message for message in self._consumer.consume(self._batch, 0.2) if message.error() is None]
            if messages:
                self._turn += 1
                self._move(messages)
        self._consumer.close()

    def _move(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._producer.produce(self._target, message.value(), partition=message.partition() or 0)
            if self._turn % ABORTED == 0:
                self._producer.flush(WAIT_S)
                self._abort("aborts")
                return
            ends = {message.partition() or 0: (message.offset() or 0) + 1 for message in messages}
            offsets = [TopicPartition(self._source, index, offset) for index, offset in ends.items()]
            metadata = self._consumer.consumer_group_metadata()
            _again(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, WAIT_S))
            _again(lambda: self._producer.commit_transaction(WAIT_S))
            self.did["commits"] += 1
        except KafkaException as error:
            if error.args[0].fatal() or not error.args[0].txn_requires_abort():
                raise
            self._abort("refused")
            return
        if self._turn % EMPTY == 0:
            self._producer.begin_transaction()
            # Never with a record: librdkafka 2.16 ends a transaction whose partition the coordinator could not add yet,
            # as the one before was still ending, and takes the answer of any Kafka (INVALID_TXN_STATE) as its end.
            _again(lambda: self._producer.abort_transaction(WAIT_S))
            self.did["empty aborts"] += 1
        if self._turn % REJOINED == 0:
            self._consumer.close()
            self._consumer = self._joined()

    def _abort(self, why: str) -> None:
        _again(lambda: self._producer.abort_transaction(WAIT_S))
        self.did[why] += 1
        for kept in self._consumer.committed(self._consumer.assignment(), WAIT_S):
            self._consumer.seek(TopicPartition(kept.topic, kept.partition, max(kept.offset, 0)))


def _again(work: Callable[[], object]) -> None:
    while True:
        try:
            work()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def main(bootstrap: str, source: str, target: str, group: str, count: str, batch: str) -> None:
    """Runs the clients, each on its thread."""
    ended = threading.Event()
    clients = [Client(bootstrap, source, target, group, number, int(batch)) for number in range(int(count))]

    def work(client: Client) -> None:
        try:
            client.run(ended)
        except KafkaException as error:
            print(f"fatal: {error}", flush=True)
            os._exit(1)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps(sum((client.did for client in clients), Counter())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
