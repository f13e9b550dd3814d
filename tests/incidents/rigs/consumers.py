"""Groups that read: with members from the start or the end, or without members by assign and commit."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

PAUSE_S: Final = 0.25
# 400 records of 1 kB a second: a reader of 12 MB is on its way for half a minute, in which somebody reads its offsets.
RECORDS_PER_PAUSE: Final = 100
# Of the newest all that comes: the load of 600 records a second would leave it behind, and retention would overtake it.
RECORDS_OF_THE_END: Final = 10_000


class Reader:
    """Reads a topic and commits, until it is stopped. One that begins at the start begins there again at the end."""

    def __init__(self, bootstrap: str, topic: str, group: str, *, members: bool, from_start: bool) -> None:
        self._topic, self._from_start = topic, from_start
        self._records_per_pause = RECORDS_PER_PAUSE if from_start else RECORDS_OF_THE_END
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest" if from_start else "latest",
                "fetch.message.max.bytes": 100_000,
                "queued.min.messages": 1 if from_start else RECORDS_OF_THE_END,
                "log_level": 0,
            }
        )
        metadata = self._consumer.list_topics(topic, timeout=30)
        self._partitions = sorted(metadata.topics[topic].partitions)
        if members:
            self._consumer.subscribe([topic])
        else:
            self._consumer.assign([TopicPartition(topic, partition, 0) for partition in self._partitions])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader-{group}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(KafkaException):
            while not self._stop.wait(PAUSE_S):
                messages = self._consumer.consume(self._records_per_pause, timeout=PAUSE_S)
                good = [message for message in messages if message.error() is None]
                if good:
                    self._commit()
                if self._from_start:
                    self._begin_again()
            self._consumer.close()

    def _commit(self) -> None:
        """A commit that fails is made again with the next one."""
        with suppress(KafkaException):
            self._consumer.commit(asynchronous=False)

    def _begin_again(self) -> None:
        """Partitions that are read to their end."""
        with suppress(KafkaException):
            for position in self._consumer.position(self._consumer.assignment()):
                _, high = self._consumer.get_watermark_offsets(position, cached=True)
                if 0 < high <= position.offset:
                    self._consumer.seek(TopicPartition(self._topic, position.partition, 0))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)


def commit(bootstrap: str, topic: str, group: str, offset: int) -> None:
    """As a member of nothing: the group stays empty."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()
