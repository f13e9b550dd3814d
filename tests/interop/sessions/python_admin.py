"""A session of kafka-python's transactions and of what its admin client does with replicas, groups and settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    AbortTransactionSpec,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    NewTopic,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import CoordinatorLoadInProgressError, NotCoordinatorError
from kafka.structs import OffsetAndMetadata

from tests.interop.sessions.metadata import everybody_knows
from tests.interop.sessions.python_session import PythonSession
from tests.interop.sessions.transcript import Transcript
from tests.waiting import wait_until

TOPIC: Final = "pa-a"
ID: Final = "pa-tx"
GROUP: Final = "pa-group"
FIRST: Final = TopicPartition(TOPIC, 0)
PREFERRED: Final = 0
# Of both partitions, once one of them has moved to two brokers.
REPLICAS: Final = 5


def run(bootstrap: str) -> Transcript:
    """The whole session."""
    session = Session(bootstrap)
    return session.play(session.transactions, session.groups, session.replicas, session.settings)


class Session(PythonSession):
    """Topics and groups begin with `pa-`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("kafka-python admin", bootstrap)
        self.admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2, 3], 1: [2, 3, 1]})])
        wait_until("the topic is in sync", lambda: self._in_sync() == [3, 3])

    def _in_sync(self) -> list[int]:
        (topic,) = self.admin.describe_topics([TOPIC])
        return [len(partition["isr_nodes"]) for partition in topic["partitions"]]

    # Transactions

    def transactions(self) -> None:
        producer: Any = KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=ID)
        producer.init_transactions()
        for number, commit in enumerate((True, False)):
            producer.begin_transaction()
            for part in range(3):
                producer.send(TOPIC, b"%d-%d" % (number, part), partition=0)
            if commit:
                producer.send_offsets_to_transaction({FIRST: OffsetAndMetadata(2, "", -1)}, GROUP)
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        self._wait_for_end()
        self.ask("describe unknown id", partial(_loaded, lambda: self.admin.describe_transactions(["pa-no"])))
        self.ask("describe id", lambda: self.admin.describe_transactions([ID]), _described)
        producer.begin_transaction()
        producer.send(TOPIC, b"open", partition=0)
        producer.flush()
        self.ask("describe open", lambda: self.admin.describe_transactions([ID]), _described)
        for words in ({"transactional_id_pattern": "pa-.*"}, {"transactional_id_pattern": "("},
                      {"duration_filter_ms": 3_600_000}):  # fmt: skip
            self.ask(f"list {words}", partial(_loaded, partial(self.admin.list_transactions, **words)), _listed)
        self.ask("producers", lambda: self.admin.describe_producers([FIRST]), _producers)
        self.ask("hanging", self.admin.find_hanging_transactions)
        for isolation in ("read_committed", "read_uncommitted"):
            self.record(isolation, self._read(isolation))
        spec = AbortTransactionSpec(FIRST, 10**9, -5)
        self.ask("abort of an unknown id, epoch -5", partial(self.admin.abort_transaction, spec))
        producer.abort_transaction()
        producer.close()
        self._wait_for_end()
        again: Any = KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=ID)
        again.init_transactions()
        again.close()
        self.record("in the end", self._read("read_committed"))
        self.ask("offsets of the transaction", lambda: self.admin.list_group_offsets(GROUP), _offsets)

    def _wait_for_end(self) -> None:
        def ended() -> bool:
            return bool(self.admin.describe_transactions([ID])[ID].state.name.startswith("COMPLETE"))

        wait_until("the transaction has ended", ended)

    def _read(self, isolation: str) -> list[tuple[int, bytes]]:
        consumer: Any = KafkaConsumer(
            bootstrap_servers=self.bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
        )
        consumer.assign([FIRST])
        end = consumer.end_offsets([FIRST])[FIRST]
        received: list[tuple[int, bytes]] = []

        def at_end() -> bool:
            for records in consumer.poll(100).values():
                received.extend((record.offset, record.value) for record in records)
            return bool(consumer.position(FIRST) >= end)

        wait_until(f"everything {isolation} is read", at_end)
        consumer.close()
        return received

    # Groups

    def groups(self) -> None:
        self.ask("describe groups", lambda: self.admin.describe_groups([GROUP]), _states)
        unknown_group = partial(_loaded, lambda: self.admin.describe_groups(["pa-no"]))
        self.ask("describe unknown group", unknown_group, _states)
        listed = [group for group in self.admin.list_groups(types_filter=["classic"]) if group["group_id"] == GROUP]
        self.record(
            "list groups", [{key: group[key] for key in sorted(group) if key != "broker_id"} for group in listed]
        )
        for offsets in ({FIRST: 1}, {TopicPartition("pa-no", 0): 1}):
            moved = {key: OffsetAndMetadata(value, "moved", -1) for key, value in offsets.items()}
            self.ask(f"move to {offsets}", partial(self.admin.alter_group_offsets, GROUP, moved), _codes)
        self.ask("reset", lambda: self.admin.reset_group_offsets(GROUP, {FIRST: OffsetSpec.LATEST}))
        self.ask("offsets", lambda: self.admin.list_group_offsets(GROUP), _offsets)
        self.ask("remove member",
                 lambda: self.admin.remove_group_members(GROUP, [MemberToRemove(group_instance_id="nobody")]),
                 lambda codes: [code.__name__ for code in codes.values()])  # fmt: skip
        unknown = TopicPartition("pa-no", 0)
        self.ask("delete offsets", lambda: self.admin.delete_group_offsets(GROUP, [FIRST, unknown]), _codes)
        self.ask("delete offsets of unknown", lambda: self.admin.delete_group_offsets("pa-no", [FIRST]), _codes)

    # Replicas

    def replicas(self) -> None:
        moves = {FIRST: [3, 1], TopicPartition("pa-no", 0): [1], TopicPartition(TOPIC, 1): [2, 2]}
        for partition, target in moves.items():
            self.ask(f"move {partition} to {target}",
                     partial(self.admin.alter_partition_reassignments, {partition: target}))  # fmt: skip
        wait_until("the replica has moved", lambda: not self.admin.list_partition_reassignments())
        everybody_knows(self.bootstrap)
        (topic,) = self.admin.describe_topics([TOPIC])
        rows = [
            (partition_state["partition_index"], partition_state["replica_nodes"], sorted(partition_state["isr_nodes"]))
            for partition_state in topic["partitions"]
        ]
        self.record("moved", sorted(rows))
        self.ask("cancel", lambda: self.admin.alter_partition_reassignments({FIRST: None}))
        for partition in (0, 0, 7):
            self.ask(f"elect {partition}",
                     partial(self.admin.elect_leaders, PREFERRED, {TOPIC: [partition]}, raise_errors=False),
                     _elected)  # fmt: skip
        # Who has lost a replica removes it a moment later.
        wait_until("the old replica is gone", lambda: len(_log_dirs(self.admin.describe_log_dirs([TOPIC]))) == REPLICAS)
        self.ask("log dirs", lambda: self.admin.describe_log_dirs([TOPIC]), _log_dirs)
        self.ask("unknown log dir", lambda: self.admin.alter_replica_log_dirs({(TOPIC, 1, 2): "/nowhere"}))

    # Settings, users, rights

    def settings(self) -> None:
        for name, values in (
            (TOPIC, {"retention.ms": "1000", "retention.bytes": "2000"}),
            (TOPIC, {"retention.ms": "x"}),
            ("pa-no", {"retention.ms": "1"}),
        ):
            resource = ConfigResource(ConfigResourceType.TOPIC, name, values)
            self.ask(f"alter {name} {values}", partial(self.admin.alter_configs, [resource]))
        reset = [ConfigResource(ConfigResourceType.TOPIC, TOPIC, {"retention.ms": None})]
        self.ask("reset settings", lambda: self.admin.reset_configs(reset))
        requested = [ConfigResource(ConfigResourceType.TOPIC, TOPIC)]
        everybody_knows(self.bootstrap)
        self.ask("settings", lambda: self.admin.describe_configs(requested))
        user = UserScramCredentialUpsertion("pa-user", ScramMechanism.SCRAM_SHA_512, "secret", 4096)
        self.ask("new user", lambda: self.admin.alter_user_scram_credentials([user]))
        everybody_knows(self.bootstrap)
        self.ask("user", lambda: self.admin.describe_user_scram_credentials(["pa-user", "pa-no"]))
        for mechanism in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
            gone = UserScramCredentialDeletion("pa-user", mechanism)
            self.ask(f"delete {mechanism.name}", partial(self.admin.alter_user_scram_credentials, [gone]))
        right = ACL("User:x", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "x"))
        self.ask("new acl", lambda: self.admin.create_acls([right]),
                 lambda by_outcome: sorted((key, len(rows)) for key, rows in by_outcome.items()))  # fmt: skip


def _loaded(question: Callable[[], Any]) -> Any:
    """The answer; another coordinator than the session's own may still be reading its log."""
    while True:
        try:
            return question()
        except (CoordinatorLoadInProgressError, NotCoordinatorError):
            time.sleep(0.05)


def _described(transactions: Any) -> object:
    return [(key, transaction.state.name, transaction.transaction_timeout_ms, transaction.producer_epoch >= 0,
             sorted(transaction.topic_partitions))
            for key, transaction in transactions.items()]  # fmt: skip


def _listed(by_broker: Any) -> object:
    return sorted((transaction.transactional_id, transaction.state.name) for rows in by_broker.values()
                  for transaction in rows if transaction.transactional_id == ID)  # fmt: skip


def _producers(by_partition: Any) -> object:
    return [(producer.producer_epoch, producer.last_sequence, producer.current_transaction_start_offset)
            for state in by_partition.values() for producer in state.active_producers]  # fmt: skip


def _states(groups: Any) -> object:
    return [(key, group["group_state"], group["protocol_type"], group["members"]) for key, group in groups.items()]


def _offsets(by_group: Any) -> object:
    return {group: sorted((str(key), value) for key, value in offsets.items()) for group, offsets in by_group.items()}


def _codes(codes: Any) -> object:
    return sorted((str(key), code.__name__) for key, code in codes.items())


def _elected(response: Any) -> object:
    return [(partition.partition_id, partition.error_code) for topic in response.replica_election_results
            for partition in topic.partition_result]  # fmt: skip


def _log_dirs(brokers: Any) -> list[tuple[Any, ...]]:
    rows = []
    for broker in brokers:
        for log_dir in broker["log_dirs"]:
            for topic in log_dir["topics"]:
                rows += [(broker["broker"], log_dir["error_code"], topic["name"], partition["partition_index"],
                          partition["partition_size"] > 0, partition["offset_lag"], partition["is_future_key"])
                         for partition in topic["partitions"]]  # fmt: skip
    return sorted(rows)
