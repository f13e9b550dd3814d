"""Groups of unmodified clients on three brokers: they share, take over, resume, survive their coordinator's death."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from tests.engine_cluster import FAST, EngineCluster

PARTITIONS: Final = 6
WAIT_S: Final = 60.0
# A crash is noticed when the session ends; Kafka's 9 s would make the test wait.
SETTINGS: Final = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "1500"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("groups"), brokers=3, settings=SETTINGS) as running:
        yield running


def create(cluster: EngineCluster, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)


def produce(cluster: EngineCluster, topic: str, numbers: range) -> list[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return [str(number).encode() for number in numbers]


def confluent_consumer(cluster: EngineCluster, group: str, **settings: Any) -> Consumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "heartbeat.interval.ms": 200, **named}
    )  # fmt: skip


def until(what: str, question: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not question():
        assert time.monotonic() < deadline, f"not within {WAIT_S:.0f} s: {what}"


def owned(*consumers: Consumer) -> list[int]:
    """How many partitions each has; each gets a turn."""
    for consumer in consumers:
        message = consumer.poll(0.1)
        assert message is None or message.error() is None, message.error()
    return [len(consumer.assignment()) for consumer in consumers]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_and_the_one_that_stays_takes_over(cluster: EngineCluster, strategy: str) -> None:
    topic = f"shared-{strategy}"
    create(cluster, topic)
    settings = {"partition_assignment_strategy": strategy}
    first, second = (confluent_consumer(cluster, topic, **settings) for _ in range(2))
    first.subscribe([topic])
    until("the first has all", lambda: owned(first) == [PARTITIONS])
    second.subscribe([topic])
    until("both share", lambda: owned(first, second) == [3, 3])
    both = [topic_partition.partition for consumer in (first, second) for topic_partition in consumer.assignment()]
    assert sorted(both) == list(range(PARTITIONS))
    second.close()
    until("the first has all again", lambda: owned(first) == [PARTITIONS])
    first.close()


def test_clients_of_three_libraries_share_one_group(cluster: EngineCluster) -> None:
    topic = "mixed"
    create(cluster, topic)
    confluent = confluent_consumer(cluster, topic, partition_assignment_strategy="range")
    confluent.subscribe([topic])
    python = KafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=topic, heartbeat_interval_ms=200, enable_auto_commit=False
    )

    async def play() -> tuple[set[int], set[int], set[int]]:
        aio = AIOKafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id=topic, heartbeat_interval_ms=200,
            enable_auto_commit=False, partition_assignment_strategy=(RangePartitionAssignor,),
        )  # fmt: skip
        starting = asyncio.create_task(aio.start())
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    await asyncio.to_thread(confluent.poll, 0.1)
                    await asyncio.to_thread(python.poll, 100)
                    shares = (
                        {topic_partition.partition for topic_partition in confluent.assignment()},
                        {topic_partition.partition for topic_partition in python.assignment()},
                        {topic_partition.partition for topic_partition in aio.assignment()}
                        if starting.done()
                        else set(),
                    )
                    if [len(share) for share in shares] == [2, 2, 2] and len(set().union(*shares)) == PARTITIONS:
                        return shares
        finally:
            starting.cancel()
            await aio.stop()

    shares = asyncio.run(play())
    assert sorted(partition for share in shares for partition in share) == list(range(PARTITIONS))
    python.close()
    confluent.close()


def read_and_commit(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
            consumer.commit(message=message, asynchronous=False)
    return values


def test_a_static_member_comes_back_without_a_rebalance(cluster: EngineCluster) -> None:
    topic = "static"
    create(cluster, topic)
    revoked: list[int] = []
    stays = confluent_consumer(cluster, topic, group_instance_id="stays")
    restarts = confluent_consumer(cluster, topic, group_instance_id="restarts")
    stays.subscribe(
        [topic],
        on_revoke=lambda _, partitions: revoked.extend(topic_partition.partition for topic_partition in partitions),
    )
    restarts.subscribe([topic])
    until("both share", lambda: owned(stays, restarts) == [3, 3])
    before = {topic_partition.partition for topic_partition in restarts.assignment()}
    revoked.clear()
    # Static members do not leave when they close.
    restarts.close()
    again = confluent_consumer(cluster, topic, group_instance_id="restarts")
    again.subscribe([topic])
    until("it has its partitions again", lambda: owned(again) == [3])
    assert {topic_partition.partition for topic_partition in again.assignment()} == before
    assert revoked == []
    for consumer in (stays, again):
        consumer.close()


def coordinated_by(cluster: EngineCluster, node_id: int) -> Iterator[str]:
    """Names of groups whose coordinator is a broker."""
    image = cluster.broker(1).services.metadata.image
    topic = image.topic(OFFSETS_TOPIC)
    assert topic is not None
    for number in range(1000):
        name = f"group-{node_id}-{number}"
        partition = topic.partitions[coordinator_partition(name, len(topic.partitions))]
        if partition.leader == node_id:
            yield name


def test_groups_survive_the_death_of_their_coordinator(cluster: EngineCluster) -> None:
    topic = "failover"
    create(cluster, topic)
    # Any group brings __consumer_offsets to life.
    warm = confluent_consumer(cluster, "warm")
    warm.subscribe([topic])
    until("the warm-up group works", lambda: owned(warm) == [PARTITIONS])
    warm.close()
    victim = 2
    groups = coordinated_by(cluster, victim)
    sent = produce(cluster, topic, range(60))
    group, idle = next(groups), next(groups)
    idler = confluent_consumer(cluster, idle)
    idler.subscribe([topic])
    assert len(read_and_commit(idler, 60)) == 60
    idler.close()
    consumer = confluent_consumer(cluster, group)
    consumer.subscribe([topic])
    first = read_and_commit(consumer, 60)
    assert Counter(first) == Counter(sent)
    cluster.kill_broker(victim)
    more = produce(cluster, topic, range(60, 120))
    # The living member goes on: what it has committed it does not read again.
    assert Counter(read_and_commit(consumer, 60)) == Counter(more)
    consumer.close()
    # A group that stopped before the crash goes on where it committed, with another client.
    python = KafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap_of(1), group_id=idle, auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )  # fmt: skip
    values = []
    for record in python:
        values.append(record.value)
        if len(values) == 60:
            break
    assert Counter(values) == Counter(more)
    python.close()
    cluster.start_broker(victim)
    offsets = committed(cluster, group)
    assert sum(offsets.values()) == 120


def committed(cluster: EngineCluster, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_of(1)})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return {topic_partition.partition: topic_partition.offset for topic_partition in answer.topic_partitions}


def test_groups_survive_a_restart_of_all_brokers(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("restart")
    with EngineCluster(folder, brokers=3) as cluster:
        create(cluster, "orders")
        produce(cluster, "orders", range(30))
        consumer = confluent_consumer(cluster, "g")
        consumer.subscribe(["orders"])
        assert len(read_and_commit(consumer, 30)) == 30
        before = committed(cluster, "g")
        # Not closed: its membership is in the log, and it learns of no rebalance.
        for node in (3, 2, 1):
            cluster.stop_broker(node)
        cluster.call(cluster.cluster.start())
        assert committed(cluster, "g") == before
        more = produce(cluster, "orders", range(30, 60))
        assert Counter(read_and_commit(consumer, 30)) == Counter(more)
        consumer.close()


def test_admin_clients_see_change_and_delete_groups(cluster: EngineCluster) -> None:
    topic, group = "administered", "administered"
    create(cluster, topic)
    produce(cluster, topic, range(12))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    python = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    consumer = confluent_consumer(cluster, group, client_id="reader")
    consumer.subscribe([topic])
    assert len(read_and_commit(consumer, 12)) == 12
    described = admin.describe_consumer_groups([group, "nothing"])
    member = described[group].result(30).members[0]
    assert described[group].result(30).state.name == "STABLE"
    assert (member.client_id, len(member.assignment.topic_partitions)) == ("reader", PARTITIONS)
    assert described["nothing"].result(30).state.name == "DEAD"
    assert group in {listing.group_id for listing in admin.list_consumer_groups().result(30).valid}
    assert group in {listing["group_id"] for listing in python.list_groups()}
    assert committed(cluster, group) == dict.fromkeys(range(PARTITIONS), 2)
    # Members keep a group from being deleted or moved by others.
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(30)
    consumer.close()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([moved])[group].result(30)
    assert committed(cluster, group)[0] == 1
    offsets = python.list_group_offsets(group)[group]
    assert offsets[PythonTopicPartition(topic, 0)].offset == 1
    admin.delete_consumer_groups([group])[group].result(30)
    assert admin.describe_consumer_groups([group])[group].result(30).state.name == "DEAD"
    python.close()


def test_topics_are_described_as_they_were_created(cluster: EngineCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    python = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    create(cluster, "described", 4)
    listed = admin.list_topics(timeout=30).topics["described"]
    assert sorted(listed.partitions) == [0, 1, 2, 3]
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in listed.partitions.values())
    (topic,) = python.describe_topics(["described"])
    assert len(topic["partitions"]) == 4
    python.close()


def test_a_first_rebalance_waits_for_the_members_of_a_deployment(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"group.initial.rebalance.delay.ms": "1500"}
    assert FAST["group.initial.rebalance.delay.ms"] == "0"
    with EngineCluster(tmp_path_factory.mktemp("delay"), brokers=1, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
        assigned: list[int] = []
        consumers = [confluent_consumer(cluster, "g") for _ in range(3)]
        for consumer in consumers:
            consumer.subscribe(["orders"], on_assign=lambda _, partitions: assigned.append(len(partitions)))
        until("all share", lambda: owned(*consumers) == [2, 2, 2])
        # Nobody had to give anything back.
        assert assigned == [2, 2, 2]
        for consumer in consumers:
            consumer.close()
