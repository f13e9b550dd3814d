"""A session of kafka-python: topics, settings, records, groups, administration."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternFilter,
    ResourceType,
)

from tests.interop.sessions.python_session import PythonSession
from tests.interop.sessions.transcript import Transcript
from tests.waiting import wait_until

WAIT_S: Final = 60
T0_MS: Final = 700_000_000_000


def run(bootstrap: str) -> Transcript:
    """The whole session."""
    session = Session(bootstrap)
    return session.play(session.topics, session.records, session.groups, session.administration)


class Session(PythonSession):
    """Topics and groups begin with `py-`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("kafka-python", bootstrap)

    def topics(self) -> None:
        for new in (
            NewTopic("py-a", 3, 3, topic_configs={"retention.ms": "-1"}),
            NewTopic("py-a", 3, 3),
            NewTopic("py bad", 1, 1),
            NewTopic("py-far", 1, 4),
            NewTopic("py-config", 1, 1, topic_configs={"cleanup.policy": "shred"}),
        ):
            self.ask(f"create {new.name}", partial(self.admin.create_topics, [new]), _made)
        wait_until("py-a has leaders", self._ready)
        self.ask("grow", lambda: self.admin.create_partitions({"py-a": NewPartitions(2)}))
        self.ask("describe", lambda: self.admin.describe_topics(["py-a", "py-no"]), _topics)
        self.ask("delete unknown", lambda: self.admin.delete_topics(["py-no"]))
        resource = ConfigResource(ConfigResourceType.TOPIC, "py-a")
        self.ask("settings", lambda: self.admin.describe_configs([resource]))

    def _ready(self) -> bool:
        (topic,) = self.admin.describe_topics(["py-a"])
        partitions = topic["partitions"]
        return len(partitions) == 3 and all(len(partition["isr_nodes"]) == 3 for partition in partitions)

    def records(self) -> None:
        for codec in (None, "gzip"):
            producer = KafkaProducer(bootstrap_servers=self.bootstrap, compression_type=codec, linger_ms=50, acks="all")
            sent = [
                producer.send("py-a", f"{codec}-{n}".encode() * 9, b"k%d" % n, [("h", b"\x00\xff")], n % 3, T0_MS + n)
                for n in range(12)
            ]
            rows = [(metadata.partition, metadata.offset) for metadata in (future.get(WAIT_S) for future in sent)]
            self.record(f"written {codec}", rows)
            producer.close()
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, max_request_size=5_000_000)
        self.ask("too large", lambda: producer.send("py-a", b"x" * 1_200_000, partition=0).get(WAIT_S))
        producer.close()
        consumer: Any = KafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="none", consumer_timeout_ms=3000
        )
        partitions = [TopicPartition("py-a", index) for index in range(3)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        records = [
            (r.partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value[:8], r.headers) for r in consumer
        ]
        self.record("records", sorted(records))
        self.ask("beginning", lambda: _by_partition(consumer.beginning_offsets(partitions)))
        self.ask("end", lambda: _by_partition(consumer.end_offsets(partitions)))
        for at in (T0_MS, T0_MS + 7, T0_MS + 1000):
            requested = dict.fromkeys(partitions, at)
            self.ask(f"offsets for time +{at - T0_MS}", partial(consumer.offsets_for_times, requested), _by_partition)
        consumer.seek(partitions[0], 10_000)
        self.ask("past the end", lambda: next(consumer))
        consumer.close()

    def groups(self) -> None:
        consumer: Any = KafkaConsumer(
            "py-a", bootstrap_servers=self.bootstrap, group_id="py-group", auto_offset_reset="earliest",
            enable_auto_commit=False, consumer_timeout_ms=10_000,
        )  # fmt: skip
        self.record(
            "read by the group", len({(r.partition, r.offset) for _, r in zip(range(24), consumer, strict=False)})
        )
        self.ask("commit", consumer.commit)
        self.ask("committed", lambda: [consumer.committed(TopicPartition("py-a", index)) for index in range(3)])
        self.ask("delete living", lambda: self.admin.delete_groups(["py-group"]))
        consumer.close()
        self.ask("offsets", lambda: self.admin.list_group_offsets("py-group"), _group_offsets)
        self.ask("delete", lambda: self.admin.delete_groups(["py-group"]))
        self.ask("delete again", lambda: self.admin.delete_groups(["py-group"]))

    def administration(self) -> None:
        self.ask("brokers", lambda: sorted(broker["broker_id"] for broker in self.admin.describe_cluster()["brokers"]))
        partition = TopicPartition("py-a", 0)
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP):
            self.ask(f"list {spec.name}", partial(self.admin.list_partition_offsets, {partition: spec}))
        self.ask("delete records", lambda: self.admin.delete_records({partition: 3}))
        self.ask("delete too many", lambda: self.admin.delete_records({partition: 3000}))
        everything = ACLFilter(
            None,
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        self.ask("acls", lambda: self.admin.describe_acls(everything))


def _made(answer: Any) -> object:
    return [(topic["name"], topic["num_partitions"], topic["replication_factor"]) for topic in answer["topics"]]


def _topics(topics: list[dict[str, Any]]) -> object:
    return [
        (
            topic["name"],
            topic["error_code"],
            [(p["partition_index"], len(p["replica_nodes"])) for p in topic["partitions"]],
        )
        for topic in topics
    ]


def _by_partition(by_partition: Any) -> object:
    return sorted((str(key), value) for key, value in by_partition.items())


def _group_offsets(by_group: Any) -> object:
    return {group: _by_partition(offsets) for group, offsets in by_group.items()}
