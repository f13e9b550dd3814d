"""The demo's readers: a group that keeps up, a group that reads from the remote tier, a reader without membership."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from backend.control.lab.demo.topics import CUSTOMER_PROFILES, INVOICES, ORDERS, PAYMENTS, RECORD_BYTES, DemoTopic

COMMIT_S: Final = 5.0
# Ready records wait in a queue of librdkafka; a slow reader needs little of it.
QUEUE_KBYTES: Final = 512


@dataclass(frozen=True, slots=True)
class DemoGroup:
    """A consumer group. ``member`` False: it assigns itself its partitions and only commits."""

    name: str
    topics: tuple[DemoTopic, ...]
    begins: str
    bytes_per_s: int
    member: bool = True

    def limited_to(self, topics: Sequence[DemoTopic]) -> DemoGroup:
        """The group with those of its topics that are among these."""
        names = {topic.name for topic in topics}
        return replace(self, topics=tuple(topic for topic in self.topics if topic.name in names))


GROUPS: Final = (
    # The end of every topic, at any rate that the demo writes.
    DemoGroup("demo-shop", (ORDERS, CUSTOMER_PROFILES, INVOICES, PAYMENTS), "latest", 1_000_000),
    # From the oldest record on and slower than records are written: what it reads next is in the remote tier only.
    DemoGroup("demo-analytics", (ORDERS,), "earliest", 60_000),
    # As a sink connector or a stream processor that keeps its own assignment.
    DemoGroup("demo-audit", (INVOICES,), "earliest", 2_000, member=False),
)


class DemoReader:
    """Reads as one group does, at most ``bytes_per_s``. Belongs to one thread."""

    def __init__(self, bootstrap_servers: str, group: DemoGroup) -> None:
        self._group = group
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group.name,
                "client.id": f"{group.name}-1",
                "auto.offset.reset": group.begins,
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": QUEUE_KBYTES,
                "fetch.max.bytes": 1 << 20,
                "log_level": 0,
            }
        )
        self._assigned = False
        self._committed_s = time.monotonic()
        if group.member:
            self._consumer.subscribe([topic.name for topic in group.topics])
            self._assigned = True

    def read(self, seconds: float) -> None:
        """Reads what ``seconds`` of its rate hold, without waiting. Errors of a broker pass: librdkafka tries again."""
        try:
            if not self._assigned:
                self._assign()
            records_max = max(1, round(self._group.bytes_per_s * seconds / RECORD_BYTES))
            self._consumer.consume(records_max, timeout=0.01)
            if time.monotonic() - self._committed_s >= COMMIT_S:
                self._committed_s = time.monotonic()
                self._consumer.commit(asynchronous=True)
        except KafkaException:
            # No offset to commit yet, or a coordinator that moves: the next turn commits.
            return

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()

    def _assign(self) -> None:
        partitions = [TopicPartition(topic.name, n) for topic in self._group.topics for n in range(topic.partitions)]
        committed = self._consumer.committed(partitions, timeout=1.0)
        for partition in committed:
            if partition.offset == OFFSET_INVALID:
                partition.offset = OFFSET_BEGINNING
        self._consumer.assign(committed)
        self._assigned = True
