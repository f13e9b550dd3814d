"""A session of confluent-kafka (librdkafka): topics, settings, records, groups, transactions, administration."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.interop.sessions.transcript import Transcript, error_text
from tests.waiting import wait_until

WAIT_S: Final = 60.0
T0_MS: Final = 1_700_000_000_000 - 10**12  # outside what a transcript takes for a time of today
OFFSETS: Final[Any] = OffsetSpec  # its methods have no types
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def run(bootstrap: str) -> Transcript:
    """The whole session."""
    session = Session(bootstrap)
    session.topics()
    session.settings()
    session.records()
    session.groups()
    session.transactions()
    session.offsets_and_deletion()
    session.administration()
    return session.transcript


class Session:
    """Topics and groups begin with `cf-`: sessions share a cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.servers: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self.transcript = Transcript("confluent-kafka", bootstrap)
        self.ask, self.record = self.transcript.ask, self.transcript.record
        self.admin: Any = AdminClient(self.servers)

    def each(self, label: str, futures: dict[Any, Any], shown: Any = repr) -> None:
        """One line for each future."""
        for key in sorted(futures, key=str):
            self.ask(f"{label} {_name(key)}", partial(futures[key].result, WAIT_S), shown)

    # Topics

    def topics(self) -> None:
        new = [
            # Its records are of long ago.
            NewTopic("cf-a", 3, 3, config={"retention.ms": "-1"}),
            NewTopic("cf-b", 1, 2, config={"retention.ms": "1234567", "cleanup.policy": "compact"}),
            NewTopic("cf-c", 2, replica_assignment=[[3, 1], [1, 2]]),
            NewTopic("cf-defaults", -1, -1),
            NewTopic("bad name", 1, 1),
            NewTopic("..", 1, 1),
            NewTopic("n" * 250, 1, 1),
            NewTopic("cf-none", 0, 1),
            NewTopic("cf-far", 1, 4),
            NewTopic("cf-unknown-config", 1, 1, config={"no.such.thing": "1"}),
            NewTopic("cf-bad-config", 1, 1, config={"retention.ms": "long"}),
            NewTopic("cf-too-small", 1, 1, config={"segment.bytes": "1"}),
            NewTopic("cf-twice", 1, replica_assignment=[[1, 1]]),
            NewTopic("cf-nobody", 1, replica_assignment=[[9]]),
        ]
        self.each("create", self.admin.create_topics(new))
        self.each("create again", self.admin.create_topics([NewTopic("cf-a", 3, 3)]))
        self.each("validate", self.admin.create_topics([NewTopic("cf-only-asked", 2, 2)], validate_only=True))
        self._wait_for_leaders("cf-a", 3)
        grow = [NewPartitions("cf-b", 3), NewPartitions("cf-a", 3), NewPartitions("cf-c", 1), NewPartitions("cf-no", 2)]
        self.each("grow", self.admin.create_partitions(grow))
        self.each("grow badly", self.admin.create_partitions([NewPartitions("cf-b", 4, [[9]])]))
        for topic in ("cf-b", "cf-c", "cf-defaults"):
            self._wait_for_leaders(topic, {"cf-b": 3, "cf-c": 2, "cf-defaults": 1}[topic])
        described = self.admin.describe_topics(TopicCollection(["cf-a", "cf-b", "cf-c", "cf-defaults", "cf-no"]))
        self.each("describe", described, _topic)
        self.each("delete", self.admin.delete_topics(["cf-defaults", "cf-no"]))
        wait_until("cf-defaults is gone", lambda: "cf-defaults" not in self._listed())
        self.record("listed", self._listed())
        unknown = self.admin.list_topics("cf-no", timeout=WAIT_S).topics["cf-no"]
        self.record("metadata of an unknown topic", f"{unknown.error.name()} {len(unknown.partitions)}")

    def _listed(self) -> list[str]:
        return sorted(name for name in self.admin.list_topics(timeout=WAIT_S).topics if name.startswith("cf-"))

    def _wait_for_leaders(self, topic: str, partitions: int) -> None:
        """All brokers have heard of the topic and its leaders."""

        def all_in_sync() -> bool:
            by_id = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            in_sync = all(
                partition.leader > 0 and len(partition.isrs) == len(partition.replicas) for partition in by_id.values()
            )
            return len(by_id) == partitions and in_sync

        wait_until(f"{topic} has leaders", all_in_sync)

    # Settings

    def settings(self) -> None:
        for topic in ("cf-a", "cf-b"):
            resource = ConfigResource(ResourceType.TOPIC, topic)
            entries = self.admin.describe_configs([resource])[resource].result(WAIT_S)
            for name, entry in sorted(entries.items()):
                self.record(f"setting {topic} {name}", _entry(entry))
        resource = ConfigResource(ResourceType.TOPIC, "cf-no")
        self.each("describe settings of", self.admin.describe_configs([resource]), sorted)
        self.set("cf-b", "retention.ms", "7654321")
        self.set("cf-b", "retention.ms", "soon")
        self.set("cf-b", "no.such.thing", "1")
        self.set("cf-b", "cleanup.policy", "delete", AlterConfigOpType.APPEND)
        self.set("cf-b", "cleanup.policy", "compact", AlterConfigOpType.SUBTRACT)
        self.set("cf-b", "retention.ms", "1", AlterConfigOpType.APPEND)
        self.set("cf-b", "min.insync.replicas", "0")
        self.set("cf-no", "retention.ms", "1")
        resource = ConfigResource(ResourceType.TOPIC, "cf-b")
        entries = self.admin.describe_configs([resource])[resource].result(WAIT_S)
        for name in ("retention.ms", "cleanup.policy", "min.insync.replicas"):
            self.record(f"then {name}", _entry(entries[name]))
        self.set("1", "log.cleaner.threads", "2", kind=ResourceType.BROKER)
        self.set("1", "broker.id", "5", kind=ResourceType.BROKER)
        self.set("1", "log.cleaner.threads", None, AlterConfigOpType.DELETE, ResourceType.BROKER)

    def set(
        self,
        name: str,
        key: str,
        value: str | None,
        how: AlterConfigOpType = AlterConfigOpType.SET,
        kind: ResourceType = ResourceType.TOPIC,
    ) -> None:
        entry = ConfigEntry(key, value, incremental_operation=how)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        self.each(f"{how.name.lower()} {key}={value} of", self.admin.incremental_alter_configs([resource]))

    # Records

    def records(self) -> None:
        for codec in CODECS:
            producer = Producer(self.servers | {"compression.type": codec, "linger.ms": 50})
            for number in range(20):
                producer.produce(
                    "cf-a", f"{codec}-{number}".encode() * 20, f"k{number}".encode(), number % 3,
                    timestamp=T0_MS + number, headers=[("h", b"\x00\xff"), ("empty", None)],
                )  # fmt: skip
            self.record(f"left to send {codec}", producer.flush(WAIT_S))
        self.told_errors("an unknown partition", "cf-a", b"x", 17)
        self.told_errors("a record that is too large", "cf-a", b"x" * 1_200_000, 0, {"message.max.bytes": 5_000_000})
        self.told_errors("a key for a compacted topic", "cf-b", b"x", 0)
        for isolation in ("read_committed", "read_uncommitted"):
            for index in range(3):
                records = list(self.read("cf-a", index, 0, isolation=isolation))
                self.record(f"records of cf-a-{index} {isolation}", records)
        self.record("from the middle", list(self.read("cf-a", 0, 5))[:3])
        consumer = Consumer(self.servers | {"group.id": "cf-range", "auto.offset.reset": "error"})
        consumer.assign([TopicPartition("cf-a", 0, 10_000)])
        self.record("past the end", _first_error(consumer))
        self.record("watermarks", consumer.get_watermark_offsets(TopicPartition("cf-a", 0), WAIT_S))
        for ask_ms in (0, T0_MS, T0_MS + 5, T0_MS + 10**9):
            topic_partitions = [TopicPartition("cf-a", index, ask_ms) for index in range(3)]
            self.record(
                f"offsets for time +{ask_ms - T0_MS}", _offsets(consumer.offsets_for_times(topic_partitions, WAIT_S))
            )
        consumer.close()

    def told_errors(
        self, label: str, topic: str, value: bytes, partition: int, more: dict[str, Any] | None = None
    ) -> None:
        errors: list[str] = []
        producer = Producer(self.servers | {"message.timeout.ms": 10_000} | (more or {}))
        try:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda e, _: errors.append(e.name() if e else "")
            )
            producer.flush(WAIT_S)
        except KafkaException as error:
            errors.append(error_text(error))
        self.record(label, errors)

    def read(
        self, topic: str, index: int, offset: int, *, isolation: str = "read_committed"
    ) -> Iterable[tuple[Any, ...]]:
        """Every record up to the end, with all that a consumer sees of it."""
        consumer = Consumer(
            self.servers | {"group.id": "cf-reader", "isolation.level": isolation, "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, index, offset)])
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            message: Any = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                break
            yield (message.offset(), message.key(), message.value()[:12], message.headers(), message.timestamp(),
                   message.leader_epoch())  # fmt: skip
        consumer.close()

    # Groups

    def groups(self) -> None:
        for protocol in ("classic", "consumer"):
            self.group(f"cf-{protocol}", protocol)
        listed = self.admin.list_consumer_groups().result(WAIT_S)
        mine = [group for group in listed.valid if group.group_id.startswith("cf-")]
        self.record(
            "groups",
            sorted(
                (group.group_id, group.state.name, group.type.name, group.is_simple_consumer_group) for group in mine
            ),
        )
        self.record("groups with errors", [error.name() for error in listed.errors])
        self.each("describe group", self.admin.describe_consumer_groups(["cf-no-group"]), _group)
        topic_partitions = [ConsumerGroupTopicPartitions("cf-no-group")]
        self.each("offsets of", self.admin.list_consumer_group_offsets(topic_partitions), _group_offsets)
        self.each("delete group", self.admin.delete_consumer_groups(["cf-no-group", "cf-classic"]))

    def group(self, name: str, protocol: str) -> None:
        settings: dict[str, Any] = {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        consumer = Consumer(self.servers | settings)
        consumer.subscribe(["cf-a"])
        seen: set[tuple[int, int]] = set()
        until = time.monotonic() + WAIT_S
        while len(seen) < 100 and time.monotonic() < until:
            message: Any = consumer.poll(1.0)
            if message is not None and message.error() is None:
                seen.add((message.partition(), message.offset()))
        self.record(f"{name} has read", len(seen))
        self.record(
            f"{name} owns",
            sorted((topic_partition.topic, topic_partition.partition) for topic_partition in consumer.assignment()),
        )
        self.ask(f"{name} commits", lambda: consumer.commit(asynchronous=False), _offsets)
        self.each("describe group", self.admin.describe_consumer_groups([name]), _group)
        self.each("delete living group", self.admin.delete_consumer_groups([name]))
        moved = ConsumerGroupTopicPartitions(name, [TopicPartition("cf-a", 0, 1)])
        self.each("move living group", self.admin.alter_consumer_group_offsets([moved]), _group_offsets)
        consumer.close()
        wait_until(f"{name} is empty", lambda: self._is_empty(name))
        self.each("describe empty group", self.admin.describe_consumer_groups([name]), _group)
        moved = ConsumerGroupTopicPartitions(name, [TopicPartition("cf-a", 0, 7), TopicPartition("cf-no", 0, 1)])
        self.each("move group", self.admin.alter_consumer_group_offsets([moved]), _group_offsets)
        self.each(
            "offsets of", self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]), _group_offsets
        )

    def _is_empty(self, name: str) -> bool:
        described = self.admin.describe_consumer_groups([name])[name].result(WAIT_S)
        return bool(described.state.name == "EMPTY")

    # Transactions

    def transactions(self) -> None:
        self.admin.create_topics([NewTopic("cf-tx", 1, 3)])["cf-tx"].result(WAIT_S)
        producer = Producer(self.servers | {"transactional.id": "cf-tx"})
        producer.init_transactions(WAIT_S)
        for number, ends in enumerate(("commit", "abort", "commit", "abort")):
            producer.begin_transaction()
            for part in range(3):
                producer.produce("cf-tx", f"{ends}-{number}-{part}", partition=0)
            producer.flush(WAIT_S)
            self.ask(
                f"{ends} {number}", producer.commit_transaction if ends == "commit" else producer.abort_transaction
            )
        later = Producer(self.servers | {"transactional.id": "cf-tx"})
        later.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("cf-tx", "fenced", partition=0)
        self.ask("a fenced producer commits", producer.commit_transaction)
        for isolation in ("read_committed", "read_uncommitted"):
            records = [(offset, value) for offset, _, value, *_ in self.read("cf-tx", 0, 0, isolation=isolation)]
            self.record(f"transactions {isolation}", records)
        requested = {TopicPartition("cf-tx", 0): OFFSETS.latest()}
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            self.each(f"end {level.name}", self.admin.list_offsets(requested, isolation_level=level), _listed)

    # Offsets and deletion

    def offsets_and_deletion(self) -> None:
        for spec, what in (
            (OFFSETS.earliest(), "earliest"),
            (OFFSETS.latest(), "latest"),
            (OFFSETS.max_timestamp(), "max timestamp"),
            (OFFSETS.for_timestamp(T0_MS + 4), "timestamp"),
        ):
            requested = {TopicPartition("cf-a", index): spec for index in (0, 1, 2)} | {
                TopicPartition("cf-no", 0): spec
            }
            self.each(what, self.admin.list_offsets(requested), _listed)
        for offset in (4, 2, 10_000, -1):
            self.each(f"delete to {offset}", self.admin.delete_records([TopicPartition("cf-a", 1, offset)]),
                      lambda done: done.low_watermark)  # fmt: skip
        self.record("after deletion", [offset for offset, *_ in self.read("cf-a", 1, 0)])
        self.each("delete of unknown", self.admin.delete_records([TopicPartition("cf-no", 0, 1)]))

    # Administration

    def administration(self) -> None:
        described = self.admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
        self.record(
            "cluster",
            (sorted(node.id for node in described.nodes), sorted(o.name for o in described.authorized_operations)),
        )
        for partitions in ([TopicPartition("cf-a", 0)], [TopicPartition("cf-no", 0)]):
            elected = self.admin.elect_leaders(ElectionType.PREFERRED, partitions).result(WAIT_S)
            self.record(
                "elect", {str(_name(key)): None if error is None else error.name() for key, error in elected.items()}
            )
        acl_filter: Any = AclBindingFilter
        everything = acl_filter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
                                      AclPermissionType.ANY)  # fmt: skip
        self.ask("acls", lambda: self.admin.describe_acls(everything).result(WAIT_S))
        self.each("unknown user", self.admin.describe_user_scram_credentials(["cf-nobody"]))
        upsertion = UserScramCredentialUpsertion(
            "cf-user", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"s", b"salt"
        )
        self.each("new user", self.admin.alter_user_scram_credentials([upsertion]))
        weak = UserScramCredentialUpsertion(
            "cf-weak", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10), b"s", b"salt"
        )
        self.each("weak user", self.admin.alter_user_scram_credentials([weak]))


def _name(key: Any) -> str:
    if isinstance(key, TopicPartition):
        return f"{key.topic}-{key.partition}"
    return key.name if isinstance(key, ConfigResource) else str(key)


def _topic(topic: Any) -> object:
    rows = [(p.id, p.leader.id, [r.id for r in p.replicas], sorted(r.id for r in p.isr)) for p in topic.partitions]
    # The controller is free to choose the replicas' places.
    return (
        topic.name,
        topic.is_internal,
        [(row[0], len(row[2]), row[1] == row[2][0], row[3] == sorted(row[2])) for row in rows],
    )


def _entry(entry: ConfigEntry) -> object:
    synonyms = sorted(f"{synonym.name}={synonym.value}:{synonym.source}" for synonym in entry.synonyms.values())
    return entry.value, entry.source, entry.is_read_only, entry.is_sensitive, synonyms


def _offsets(rows: Iterable[TopicPartition]) -> object:
    return sorted(
        (
            topic_partition.topic,
            topic_partition.partition,
            topic_partition.offset,
            topic_partition.error and topic_partition.error.name(),
        )
        for topic_partition in rows
    )


def _group_offsets(group: Any) -> object:
    return group.group_id, _offsets(group.topic_partitions or [])


def _group(group: Any) -> object:
    members = [
        (member.client_id, member.host, member.group_instance_id, _offsets(member.assignment.topic_partitions))
        for member in group.members
    ]
    return (
        group.group_id,
        group.state.name,
        group.type.name,
        group.partition_assignor,
        group.is_simple_consumer_group,
        members,
    )


def _listed(offset_info: Any) -> object:
    return offset_info.offset, offset_info.timestamp, offset_info.leader_epoch


def _first_error(consumer: Any) -> str:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None:
            return message.error().name() if message.error() is not None else f"a record at {message.offset()}"
    return "nothing"
