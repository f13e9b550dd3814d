"""Groups of the consumer protocol (KIP-848) with unmodified clients: librdkafka, and Apache Kafka's own tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries, table
from tests.waiting import wait_until

PARTITIONS: Final = 6
WAIT_S: Final = 60.0
# Kafka's intervals would make every test wait.
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}
NEW: Final = {"group.protocol": "consumer"}
# Of records: group, member, target's epoch, target, what a member owns, expression.
KINDS: Final = (3, 5, 6, 7, 8, 16)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("consumers"), brokers=3, settings=SETTINGS) as running:
        yield running


def create(cluster: EngineCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)


def produce(cluster: EngineCluster, topic: str, numbers: range) -> list[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return [str(number).encode() for number in numbers]


def consumer(cluster: EngineCluster, group: str, settings: dict[str, Any]) -> Consumer:
    return Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, **settings}
    )  # fmt: skip


def owned(*consumers: Consumer) -> list[int]:
    """How many partitions each has; each gets a turn."""
    for member in consumers:
        message = member.poll(0.05)
        assert message is None or message.error() is None, message.error()
    return [len(member.assignment()) for member in consumers]


def share(*consumers: Consumer) -> None:
    """Waits until all have the same number of different partitions."""
    even = [PARTITIONS // len(consumers)] * len(consumers)
    wait_until(f"the shares are {even}", lambda: owned(*consumers) == even, WAIT_S)
    indexes = [topic_partition.partition for each in consumers for topic_partition in each.assignment()]
    assert sorted(indexes) == list(range(PARTITIONS))


def read_and_commit(member: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []

    def enough() -> bool:
        message = member.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
            member.commit(message=message, asynchronous=False)
        return len(values) >= count

    wait_until(f"{count} records are read", enough, WAIT_S)
    return values


@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
def test_members_share_take_over_and_are_described(cluster: EngineCluster, assignor: str | None) -> None:
    topic = f"shared-{assignor}"
    create(cluster, topic)
    settings = NEW if assignor is None else {**NEW, "group.remote.assignor": assignor}
    consumers = [consumer(cluster, topic, {**settings, "client.id": f"c{at}"}) for at in range(3)]
    for at, subscriber in enumerate(consumers):
        # One of them subscribes by an expression, which the broker matches.
        subscriber.subscribe([topic] if at else [f"^shared-{assignor}$"])
    share(*consumers)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([topic])[topic].result(30)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert described.partition_assignor == (assignor or "uniform")
    assert sorted(member.client_id for member in described.members) == ["c0", "c1", "c2"]
    assert all(len(member.assignment.topic_partitions) == 2 for member in described.members)
    listed = {listing.group_id: listing.type for listing in admin.list_consumer_groups().result(30).valid}
    assert listed[topic] is ConsumerGroupType.CONSUMER
    consumers.pop().close()
    share(*consumers)
    for subscriber in consumers:
        subscriber.close()
    admin.delete_consumer_groups([topic])[topic].result(30)


def test_a_static_member_comes_back_to_its_partitions(cluster: EngineCluster) -> None:
    create(cluster, "static")
    revoked: list[int] = []
    stays = consumer(cluster, "static", {**NEW, "group.instance.id": "stays"})
    restarts = consumer(cluster, "static", {**NEW, "group.instance.id": "restarts"})
    stays.subscribe(
        ["static"], on_revoke=lambda _, partitions: revoked.extend(partition.partition for partition in partitions)
    )
    restarts.subscribe(["static"])
    share(stays, restarts)
    before = {partition.partition for partition in restarts.assignment()}
    revoked.clear()
    restarts.close()
    again = consumer(cluster, "static", {**NEW, "group.instance.id": "restarts"})
    again.subscribe(["static"])
    share(stays, again)
    assert {partition.partition for partition in again.assignment()} == before
    assert revoked == []
    for member in (stays, again):
        member.close()


def test_a_deployment_is_upgraded_and_downgraded_one_member_at_a_time(cluster: EngineCluster) -> None:
    create(cluster, "rolling")
    old = [consumer(cluster, "rolling", {"heartbeat.interval.ms": 200}) for _ in range(2)]
    for member in old:
        member.subscribe(["rolling"])
    share(*old)
    old[0].close()
    share(old[1])
    sent = produce(cluster, "rolling", range(60))
    assert Counter(read_and_commit(old[1], 60)) == Counter(sent)
    fresh = consumer(cluster, "rolling", NEW)
    fresh.subscribe(["rolling"])
    share(old[1], fresh)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    kind = admin.describe_consumer_groups(["rolling"])["rolling"].result(30)
    assert (kind.type, len(kind.members)) == (ConsumerGroupType.CONSUMER, 2)
    old[1].close()
    share(fresh)
    more = produce(cluster, "rolling", range(60, 120))
    assert Counter(read_and_commit(fresh, 60)) == Counter(more)
    back = consumer(cluster, "rolling", {"heartbeat.interval.ms": 200})
    back.subscribe(["rolling"])
    share(fresh, back)
    fresh.close()
    share(back)
    kind = admin.describe_consumer_groups(["rolling"])["rolling"].result(30)
    assert kind.type is ConsumerGroupType.CLASSIC
    last = produce(cluster, "rolling", range(120, 180))
    assert Counter(read_and_commit(back, 60)) == Counter(last)
    back.close()


def led_by(cluster: EngineCluster, node_id: int) -> str:
    """The name of a group whose coordinator is a broker."""
    topic = cluster.broker(1).services.metadata.image.topic(OFFSETS_TOPIC)
    assert topic is not None
    names = (f"moves-{number}" for number in range(1000))
    return next(
        name for name in names if topic.partitions[coordinator_partition(name, len(topic.partitions))].leader == node_id
    )


def test_a_group_survives_the_death_of_its_coordinator_and_a_restart_of_all(cluster: EngineCluster) -> None:
    create(cluster, "moving")
    first = produce(cluster, "moving", range(60))
    warm = consumer(cluster, "warm", NEW)
    warm.subscribe(["moving"])
    share(warm)
    warm.close()
    group = led_by(cluster, 2)
    member = consumer(cluster, group, {**NEW, "bootstrap.servers": cluster.bootstrap_of(1)})
    member.subscribe(["moving"])
    assert Counter(read_and_commit(member, 60)) == Counter(first)
    cluster.kill_broker(2)
    more = produce(cluster, "moving", range(60, 120))
    # It goes on as the member it was: nothing is read again.
    assert Counter(read_and_commit(member, 60)) == Counter(more)
    cluster.start_broker(2)
    for node in (3, 2, 1):
        cluster.stop_broker(node)
    cluster.call(cluster.cluster.start())
    last = produce(cluster, "moving", range(120, 180))
    assert Counter(read_and_commit(member, 60)) == Counter(last)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    assert sum(position.offset for position in committed.topic_partitions) == 180
    member.close()


def test_the_java_consumer_and_group_tool_speak_it(cluster: EngineCluster) -> None:
    tools = JavaTools(libraries(), cluster.bootstrap)
    create(cluster, "java")
    produce(cluster, "java", range(30))
    property_ = ["--command-property", "group.protocol=consumer"]
    reading = ["--topic", "java", "--group", "java", "--from-beginning", "--max-messages", "30", *property_]
    text = tools.run("kafka-console-consumer", *reading)
    assert sorted(text.split(), key=int) == [str(number) for number in range(30)]
    rows = table(tools.run("kafka-consumer-groups", "--describe", "--group", "java"))
    assert {(row["TOPIC"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows} == {("java", "5", "0")}
    with tools.running("kafka-console-consumer", "--topic", "java", "--group", "java", *property_):

        def members() -> list[dict[str, str]]:
            return table(tools.run("kafka-consumer-groups", "--describe", "--group", "java", "--members"))

        wait_until("the Java consumer is a member", lambda: [row["#PARTITIONS"] for row in members()] == ["6"], WAIT_S)
        state = tools.run("kafka-consumer-groups", "--describe", "--group", "java", "--state")
        assert "uniform" in state
        assert "Stable" in state
        listed = tools.run("kafka-groups", "--list")
        assert ["java", "Consumer", "consumer"] in [line.split() for line in listed.splitlines()]
    offsets = ["--reset-offsets", "--to-earliest", "--topic", "java", "--execute"]

    def reset() -> bool:
        text = tools.run("kafka-consumer-groups", "--group", "java", *offsets)
        return "Assignments can only be reset if the group" not in text

    wait_until("the group has no members", reset, WAIT_S)
    rows = table(tools.run("kafka-consumer-groups", "--describe", "--group", "java"))
    assert {row["LAG"] for row in rows} == {"5"}
    tools.run("kafka-consumer-groups", "--delete", "--group", "java")
    assert "java" not in tools.run("kafka-consumer-groups", "--list").split()


def test_kafka_reads_the_records_of_a_group(cluster: EngineCluster) -> None:
    tools = JavaTools(libraries(), cluster.bootstrap)
    create(cluster, "dumped")
    member = consumer(cluster, "dumped", NEW)
    member.subscribe(["^dumped"])
    share(member)
    image = cluster.broker(1).services.metadata.image
    topic = image.topic(OFFSETS_TOPIC)
    assert topic is not None
    index = coordinator_partition("dumped", len(topic.partitions))
    leader = topic.partitions[index].leader
    folder = cluster.folder / "brokers" / str(leader) / "log" / f"{OFFSETS_TOPIC}-{index}"
    logs = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    text = tools.run("kafka-dump-log", "--files", logs, "--offsets-decoder", "--deep-iteration")
    assert "Could not read record" not in text
    lines = [line for line in text.splitlines() if '"groupId":"dumped"' in line]
    assert {kind for line in lines for kind in KINDS if f'"type":"{kind}"' in line} == set(KINDS)
    member.close()
