"""Operations on topics and their records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.incidents.rigs import cluster_requests as requests
from tests.incidents.rigs.cluster_clients import ADMIN_S, ClusterClients
from tests.incidents.rigs.records import Load, readable, write
from tests.interop.java_tools import JavaTools, libraries
from tests.waiting import wait_until

# Segments of 1 MiB, of which two stay local. Total retention is what the load of an hour must not fill a disk with.
TIERED: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "2097152",
    "retention.bytes": "20971520",
}
# Longer than an incident, so that nobody but an operator ends it.
TRANSACTION_MS: Final = 900_000
# Of the brokers: only such a client may write into internal topics.
ADMIN_CLIENT_ID: Final = "__admin_client"


class TopicOperations(ClusterClients):
    """Topics, records, transactions."""

    _forgotten: Producer | None = None

    def create_topic(
        self,
        *,
        topic: str,
        replicas: Sequence[Sequence[int]],
        tiered: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        assignment = [list(brokers) for brokers in replicas]
        settings = {**(TIERED if tiered else {}), **(config or {})}
        requested = NewTopic(topic, len(assignment), replica_assignment=assignment, config=settings)

        def created() -> bool:
            # A topic of this name may still be on its way out.
            try:
                self.admin.create_topics([requested])[topic].result(ADMIN_S)
            except Exception as error:
                if "TOPIC_ALREADY_EXISTS" in str(error):
                    return False
                raise
            return True

        wait_until(f"{topic} is created", created)
        self.topics[topic] = len(assignment)
        wait_until(
            f"{topic} is led",
            lambda: (
                len(leaders := requests.leaders(self.live_port(), [topic])) == len(assignment)
                and min(leaders.values()) >= 0
            ),
        )

    def create_topics(self, *, prefix: str, count: int) -> None:
        names = [f"{prefix}-{number}" for number in range(count)]
        futures = self.admin.create_topics([NewTopic(name, 1, 3) for name in names])
        for future in futures.values():
            future.result(ADMIN_S)
        self.topics |= dict.fromkeys(names, 1)

    def delete_topic(self, *, topic: str) -> None:
        self._delete([topic])

    def delete_topics(self, *, prefix: str, count: int) -> None:
        self._delete([f"{prefix}-{number}" for number in range(count)])

    def _delete(self, topics: Sequence[str]) -> None:
        for future in self.admin.delete_topics(list(topics)).values():
            future.result(ADMIN_S)
        for topic in topics:
            self.forget_topic(topic)

    def produce(self, *, topic: str, records: int) -> None:
        write(self.bootstrap, topic, self._partitions(topic), records, self.acknowledged)
        self.written.add(topic)

    def _partitions(self, topic: str) -> int:
        return self.topics.get(topic) or len(requests.replica_lists(self.live_port(), [topic]))

    def load(self, *, topic: str, bytes_per_s: int) -> None:
        self.loads[topic] = Load(self.bootstrap, topic, self._partitions(topic), bytes_per_s, self.acknowledged)

    def stop_load(self, *, topic: str) -> None:
        self.loads.pop(topic).stop()

    def missing_records(self) -> int:
        """Of topics under load, whose retention removes records, only the end of each partition is compared."""
        for topic, load in self.loads.items():
            if load.error is not None:
                raise RuntimeError(f"the load of {topic} ended, so nothing can be missed: {load.error}")
        missing = 0
        acknowledged = self.acknowledged.counts()
        for topic, keys in itertools.groupby(sorted(acknowledged), key=lambda key: key[0]):
            counts: Mapping[int, int]
            if topic in self.written and topic not in self.loads:
                counts = readable(self.bootstrap, topic, self._partitions(topic))
            else:
                counts = {
                    partition: requests.offset(self.port_of_leader(topic, partition), topic, partition, requests.LATEST)
                    for partition in range(self._partitions(topic))
                }
            missing += sum(max(0, acknowledged[key] - counts.get(key[1], 0)) for key in keys)
        return missing

    def delete_records(self, *, topic: str, partition: int, offset: int) -> None:
        requested = TopicPartition(topic, partition, offset)
        for future in self.admin.delete_records([requested]).values():
            future.result(ADMIN_S)
        self.written.discard(topic)

    def wait_remote(self, *, topic: str) -> None:
        """All but what local retention keeps is in the remote tier only, and all that may be copied is."""

        def settled() -> bool:
            for partition in range(self._partitions(topic)):
                port = self.port_of_leader(topic, partition)
                starts = [
                    requests.offset(port, topic, partition, when)
                    for when in (requests.EARLIEST_LOCAL, requests.LATEST_TIERED, requests.LATEST)
                ]
                # Of records of 1 kB, a segment of 1 MiB is active and two are kept.
                if starts[0] <= 0 or starts[2] - starts[1] > 1_100:
                    return False
            return True

        wait_until(f"the old records of {topic} are in the remote tier only", settled, 120)

    def write_garbage(self, *, topic: str, led_by: int = 0) -> None:
        leaders = requests.leaders(self.live_port(), [topic])
        partition = min(at for (_, at), leader in leaders.items() if led_by in (0, leader))
        producer = Producer({"bootstrap.servers": self.bootstrap, "client.id": ADMIN_CLIENT_ID, "log_level": 0})
        refused: list[object] = []
        # A key, since compacted topics take nothing without: of a version that is known, and cut off.
        producer.produce(
            topic,
            b"\x01\x09\x00",
            key=b"\x00\x01\x09",
            partition=partition,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
        if producer.flush(30) or refused:
            raise RuntimeError(f"nobody took the record for {topic}: {refused}")

    def open_transaction(self, *, topic: str, partition: int, transactional_id: str) -> None:
        self._forgotten = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS,
                "log_level": 0,
            }
        )
        self._forgotten.init_transactions(ADMIN_S)
        self._forgotten.begin_transaction()
        self._open_at = requests.offset(self.port_of_leader(topic, partition), topic, partition, requests.LATEST)
        self._forgotten.produce(topic, b"open", partition=partition)
        self._forgotten.flush(30)

    def end_transactions(self) -> None:
        """Ends the producer that forgot its transaction: it would have its topic made again once that is deleted."""
        self._forgotten = None

    def abort_transaction(self, *, topic: str, partition: int) -> None:
        place = ("--topic", topic, "--partition", str(partition), "--start-offset", str(self._open_at))
        JavaTools(libraries(), self.bootstrap).run("kafka-transactions", "abort", *place)
