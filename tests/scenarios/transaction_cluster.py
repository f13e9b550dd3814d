"""The brokers that the table of transactions is asked of: three, of which the second is stopped for some of it.

Transactional ids whose epochs are nearly used up are written into `__transaction_state` before its leader reads it:
producers would need 32,000 transactions each to get there.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from backend.engine.controller.commands.cluster_bootstrap import TRANSACTION_VERSION
from backend.engine.controller.commands.feature_control import SAFE_DOWNGRADE
from backend.engine.coordinator.group.group_records import coordinator_partition
from backend.engine.coordinator.transaction.transaction import EPOCH_MAX, LATEST_VERSION, Transaction
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC, encode_transaction
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import build_batch
from tests.waiting import wait_until
from tests.wire import Connection

SETTINGS: Final = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "min.insync.replicas": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    # The stopped broker stays a member of every ISR for longer than all questions take.
    "broker.session.timeout.ms": "900000",
    "replica.lag.time.max.ms": "900000",
}
STOPPED: Final = 2
TOPIC, HELD, OFFSETS = "t", "held", "__consumer_offsets"
GROUP: Final = "g"
# Partitions of __transaction_state: what one stores is replicated by a broker that runs, the other by the stopped one.
QUICK, SLOW = 0, 1
TIMEOUT_MS: Final = 600_000
NAMES: Final = 2_000
FIRST_SEEDED_ID: Final = 5_000_000
SEEDED: Final = {QUICK: 900, SLOW: 260}
# Three times introduced, a producer whose id is nearly used up has the last epoch that a producer can have.
SEEDED_EPOCH: Final = EPOCH_MAX - 4
ADMIN: Final = "__admin_client"


def names(partition: int, prefix: str = "id") -> Iterator[str]:
    """Transactional ids of a partition of `__transaction_state`."""
    made = (f"{prefix}-{number}" for number in itertools.count())
    return (name for name in made if coordinator_partition(name, 2) == partition)


class Cluster:
    """Asks broker 1, which leads and coordinates everything but the partition of the topic `held`."""

    def __init__(self, port: int, pid: int) -> None:
        self._port, self._pid = port, pid
        self._mine = threading.local()
        self.fresh_names = {partition: list(itertools.islice(names(partition), NAMES)) for partition in SEEDED}
        self.worn_names = {
            partition: list(itertools.islice(names(partition, "worn"), count)) for partition, count in SEEDED.items()
        }
        # Connections of all threads, and those whose answer nobody waits for.
        self._connections: list[Connection] = []

    def ask(self, request: Any, version: int, response: type[Any]) -> Any:
        """On a connection of the calling thread."""
        connection: Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._connect("test")
        return connection.ask(request, version, response)

    def send_behind(self, request: Any, version: int) -> None:
        """Its answer is not waited for."""
        self._connect("test").send(request, version)

    def _connect(self, client_id: str) -> Connection:
        connection = Connection(self._port, client_id)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        """Closes every connection, also of threads that have ended."""
        for connection in self._connections:
            connection.close()

    def prepare(self, level: int = LATEST_VERSION) -> None:
        """Topics, and transactional ids whose epochs are nearly used up, as a cluster of that level stores them."""
        self._create(TOPIC, [1, 3], [1, 3])
        self._create(HELD, [2, 3])
        self._create(OFFSETS, [1, 3], cleanup="compact")
        # Led by another first: who takes over reads what has been written by then.
        self._create(TRANSACTIONS_TOPIC, [1, 3], [1, 2], cleanup="compact")
        for partition in SEEDED:
            self._seed(partition, level)
        for index, other in ((QUICK, 3), (SLOW, 2)):
            for replicas in ([other, 1], [1, other]):
                self._reassign(index, replicas)
                self._elect(index)
                self._wait_led_by(index, replicas[0])
        for transactional_ids in self.worn_names.values():
            wait_until("ids have been read", lambda name=transactional_ids[-1]: self._is_known(name))  # type: ignore[misc]
        wait_until("the group is coordinated", self._has_group)

    def _create(self, name: str, *replicas: list[int], cleanup: str = "delete") -> None:
        topics = m.CreateTopicsRequest.Topics
        topic = topics(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                topics.Assignments(partition_index=index, broker_ids=list(ids)) for index, ids in enumerate(replicas)
            ],
            configs=[topics.Configs(name="cleanup.policy", value=cleanup)],
        )
        answer = self.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5, m.CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        for index, ids in enumerate(replicas):
            wait_until(f"{name}-{index} is led", lambda i=index, n=ids[0]: self._leader(name, i) == n)  # type: ignore[misc]

    def _leader(self, topic: str, index: int) -> int:
        request = m.MetadataRequest(topics=[m.MetadataRequest.Topics(name=topic)])
        partitions = self.ask(request, 9, m.MetadataResponse).topics[0].partitions
        return next((row.leader_id for row in partitions if row.partition_index == index), -1)

    def _seed(self, partition: int, level: int) -> None:
        now_ms = int(time.time() * 1000)
        records = [
            encode_transaction(
                Transaction(
                    transactional_id=name,
                    producer_id=FIRST_SEEDED_ID + 1000 * (SEEDED[QUICK] * partition + at),
                    epoch=SEEDED_EPOCH,
                    timeout_ms=TIMEOUT_MS,
                    updated_ms=now_ms,
                ),
                level,
                now_ms,
            )
            for at, name in enumerate(self.worn_names[partition])
        ]
        data = m.ProduceRequest.TopicData
        part = data.PartitionData(index=partition, records=bytes(build_batch(records)))
        request = m.ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[data(name=TRANSACTIONS_TOPIC, partition_data=[part])]
        )
        # Kafka lets its admin client write to internal topics.
        answer = self._connect(ADMIN).ask(request, 11, m.ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NONE, row

    def _reassign(self, index: int, replicas: list[int]) -> None:
        topics = m.AlterPartitionReassignmentsRequest.Topics
        request = m.AlterPartitionReassignmentsRequest(
            timeout_ms=30_000,
            topics=[
                topics(
                    name=TRANSACTIONS_TOPIC,
                    partitions=[topics.Partitions(partition_index=index, replicas=list(replicas))],
                )
            ],
        )
        answer = self.ask(request, 0, m.AlterPartitionReassignmentsResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE, answer

    def _elect(self, index: int) -> None:
        topic = m.ElectLeadersRequest.TopicPartitions(topic=TRANSACTIONS_TOPIC, partitions=[index])
        request = m.ElectLeadersRequest(election_type=0, topic_partitions=[topic], timeout_ms=30_000)
        self.ask(request, 2, m.ElectLeadersResponse)

    def _wait_led_by(self, index: int, broker: int) -> None:
        wait_until(f"{broker} coordinates", lambda: self._leader(TRANSACTIONS_TOPIC, index) == broker)

    def _is_known(self, name: str) -> bool:
        return self.described(name).error_code == ErrorCode.NONE

    def _has_group(self) -> bool:
        request = m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.Groups(group_id=GROUP, topics=None)])
        return bool(self.ask(request, 9, m.OffsetFetchResponse).groups[0].error_code == ErrorCode.NONE)

    def lower_level(self, level: int) -> None:
        """As `set_level`, unless it is that low."""
        if self._level() > level:
            self.set_level(level)

    def set_level(self, level: int) -> None:
        """Lowers the cluster's transaction.version: what the coordinator does by itself depends on it."""
        update = m.UpdateFeaturesRequest.FeatureUpdates(
            feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=SAFE_DOWNGRADE
        )
        request = m.UpdateFeaturesRequest(feature_updates=[update], timeout_ms=30_000)
        answer = self.ask(request, 1, m.UpdateFeaturesResponse)
        assert answer.error_code == ErrorCode.NONE, answer
        wait_until(f"{TRANSACTION_VERSION} is {level}", lambda: self._level() == level)

    def _level(self) -> int:
        finalized_features = self.ask(
            m.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3, m.ApiVersionsResponse
        ).finalized_features
        return next((row.max_version_level for row in finalized_features if row.name == TRANSACTION_VERSION), 0)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Broker 2 does nothing."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)

    def described(self, name: str) -> m.DescribeTransactionsResponse.TransactionStates:
        request = m.DescribeTransactionsRequest(transactional_ids=[name])
        answer: m.DescribeTransactionsResponse = self.ask(request, 0, m.DescribeTransactionsResponse)
        return answer.transaction_states[0]
