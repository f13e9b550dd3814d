"""Three `ebbline broker` processes: kill -9 of any of them loses nothing acknowledged, and all come back together."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.cluster.broker_process import BrokerProcesses, View
from tests.effort import effort
from tests.waiting import wait_until

PARTITIONS: Final = 3
WAIT_S: Final = 90.0
KILLED: Final = effort((2, 1), tuple(random.Random(20_261).choices((1, 2, 3), k=20)))
# A crash is noticed when the session ends; Kafka's 9 s would make the tests wait.
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    # Elections are asked for here.
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    """One cluster for all tests: each leaves every node running, and uses another topic."""
    with BrokerProcesses(tmp_path_factory.mktemp("processes"), settings=SETTINGS) as running:
        yield running


class Load:
    """A producer with acks=all on a thread; remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self.failed: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"value-%08d" % number
            self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(WAIT_S)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value())
        else:
            self.failed.append(str(error))

    def goes_on(self) -> None:
        """Returns once more has been acknowledged, in every partition."""
        before = len(self.acknowledged)
        wait_until("more records are acknowledged", lambda: len(self.acknowledged) > before + 300, WAIT_S)

    def stop(self) -> set[bytes]:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        assert self.failed == []
        return self.acknowledged


def create(nodes: BrokerProcesses, topic: str, **config: str) -> None:
    """Partition p prefers broker p + 1."""
    replicas = [[(partition + at) % 3 + 1 for at in range(3)] for partition in range(PARTITIONS)]
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, PARTITIONS, replica_assignment=replicas, config=settings)
    nodes.admin.create_topics([new])[topic].result(30)


def agreed(nodes: BrokerProcesses, topic: str, condition: Callable[[list[View]], bool]) -> bool:
    """Every running broker says the same of the topic, and it is so: one that comes late knows what was before."""
    views = nodes.views(topic)
    return all(view == views[0] for view in views) and len(views[0]) == PARTITIONS and condition(views[0])


def wait_for(nodes: BrokerProcesses, topic: str, what: str, condition: Callable[[list[View]], bool]) -> None:
    wait_until(f"{topic}: {what}", lambda: agreed(nodes, topic, condition), WAIT_S)


def all_in_sync(nodes: BrokerProcesses, topic: str) -> None:
    wait_for(
        nodes, topic, "every broker is in every ISR", lambda view: all(partition.isr == {1, 2, 3} for partition in view)
    )


def in_order(nodes: BrokerProcesses, topic: str) -> list[list[bytes]]:
    """The values of each partition, as a consumer gets them."""
    consumer = Consumer(
        {"bootstrap.servers": nodes.bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    )
    every = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(topic_partition, timeout=30)[1] for topic_partition in every)
    consumer.assign(every)
    values: list[list[bytes]] = [[] for _ in every]
    while left:
        messages = consumer.consume(min(left, 1000), timeout=WAIT_S)
        assert messages, f"{left} records did not come"
        for message in messages:
            assert message.error() is None, message.error()
            values[message.partition() or 0].append(message.value() or b"")
        left -= len(messages)
    consumer.close()
    return values


def read_all(nodes: BrokerProcesses, topic: str) -> Counter[bytes]:
    return Counter(itertools.chain.from_iterable(in_order(nodes, topic)))


def log_bytes(nodes: BrokerProcesses, node: int, topic: str) -> list[bytes]:
    """Of each partition, all `.log` files of one node."""
    folder = Path(nodes.layout.log_dirs[node])
    return [
        b"".join(path.read_bytes() for path in sorted((folder / f"{topic}-{partition}").glob("*.log")))
        for partition in range(PARTITIONS)
    ]


def has_left(node: int, view: list[View]) -> bool:
    return all(node not in partition.isr and partition.leader not in (node, -1) for partition in view)


def elect_preferred(nodes: BrokerProcesses, topic: str) -> None:
    every = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    results = nodes.admin.elect_leaders(ElectionType.PREFERRED, every).result(30)
    needless = KafkaError.ELECTION_NOT_NEEDED
    assert [error for error in results.values() if error is not None and error.code() != needless] == []


@pytest.mark.timeout(effort(400, 3_600))
def test_any_broker_may_be_killed_under_load(
    nodes: BrokerProcesses, record_property: Callable[[str, object], None]
) -> None:
    record_property("kills", len(KILLED))
    create(nodes, "killed")
    load = Load(nodes.bootstrap, "killed")
    load.goes_on()
    for node in KILLED:
        nodes.kill(node)
        if node != 1:
            # The controller lives: the ISR shrinks, another leads, producing goes on.
            wait_for(nodes, "killed", f"another leads for broker {node}", partial(has_left, node))
            load.goes_on()
        nodes.spawn(node)
        nodes.wait_for(1, 2, 3)
        all_in_sync(nodes, "killed")
        load.goes_on()
    acknowledged = load.stop()

    partitions = in_order(nodes, "killed")
    counts = Counter(itertools.chain.from_iterable(partitions))
    assert acknowledged - counts.keys() == set()
    assert max(counts.values()) == 1, "the idempotent producer's records are doubled"
    assert partitions == [sorted(values) for values in partitions], "records changed their order"
    wait_until("the replicas are equal", lambda: log_bytes(nodes, 1, "killed") == log_bytes(nodes, 2, "killed"))
    wait_until("the replicas are equal", lambda: log_bytes(nodes, 1, "killed") == log_bytes(nodes, 3, "killed"))

    elect_preferred(nodes, "killed")
    wait_for(
        nodes,
        "killed",
        "the preferred replicas lead",
        lambda view: [partition.leader for partition in view] == [1, 2, 3],
    )


def test_producing_and_reading_go_on_while_the_controller_is_away(nodes: BrokerProcesses) -> None:
    create(nodes, "controller", min_insync_replicas="1")
    all_in_sync(nodes, "controller")
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": 1, "log_level": 0})
    producer.list_topics("controller", timeout=30)
    nodes.kill(1)
    failures: list[str] = []
    for number in range(100):
        for partition in (1, 2):
            producer.produce(
                "controller",
                b"value-%d" % number,
                partition=partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    nodes.spawn(1)
    nodes.wait_for(1, 2, 3)
    all_in_sync(nodes, "controller")
    create(nodes, "payments")
    assert sorted(read_all(nodes, "controller").values()) == [2] * 100


def test_a_replica_that_diverged_is_truncated_and_becomes_equal(nodes: BrokerProcesses) -> None:
    """An unclean election lets two histories of the same offsets exist; the new leader's wins everywhere."""
    create(nodes, "diverged", min_insync_replicas="1", unclean_leader_election_enable="true")
    all_in_sync(nodes, "diverged")
    send(nodes, "diverged", b"common", 20)
    nodes.stop(3)
    send(nodes, "diverged", b"only on 2", 30)
    wait_for(nodes, "diverged", "only 1 and 2 are in sync", lambda view: view[1].isr == {1, 2})
    # Broker 1's copy of the partition is taken away, then broker 2 dies: only the short log of 3 is left.
    nodes.kill(2)
    nodes.kill(1)
    folder = Path(nodes.layout.log_dirs[1]) / "diverged-1"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    before = log_bytes(nodes, 2, "diverged")[1]
    nodes.spawn(1)
    nodes.spawn(3)
    nodes.wait_for(1, 3)
    wait_for(nodes, "diverged", "partition 1 has a leader", lambda view: view[1].leader in (1, 3))
    send(nodes, "diverged", b"the new history", 10)
    nodes.spawn(2)
    nodes.wait_for(1, 2, 3)
    all_in_sync(nodes, "diverged")
    wait_until("the replicas are equal", lambda: log_bytes(nodes, 2, "diverged") == log_bytes(nodes, 3, "diverged"))
    after = log_bytes(nodes, 2, "diverged")[1]
    assert b"only on 2" in before
    assert b"only on 2" not in after
    assert b"the new history" in after


def send(nodes: BrokerProcesses, topic: str, value: bytes, count: int) -> None:
    """Into partition 1."""
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "batch.num.messages": 1, "log_level": 0})
    failures: list[str] = []
    for _ in range(count):
        producer.produce(
            topic,
            value,
            partition=1,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def test_a_stop_by_signal_hands_over_and_leaves_a_clean_folder(nodes: BrokerProcesses) -> None:
    create(nodes, "stopped")
    load = Load(nodes.bootstrap, "stopped")
    load.goes_on()
    for node in (3, 1):
        assert nodes.stop(node) == 0
        assert (Path(nodes.layout.log_dirs[node]) / ".kafka_cleanshutdown").exists()
        nodes.spawn(node)
        nodes.wait_for(1, 2, 3)
        all_in_sync(nodes, "stopped")
        load.goes_on()
    assert load.stop() - read_all(nodes, "stopped").keys() == set()
    for node in (1, 2, 3):
        assert "Traceback" not in nodes.log(node)


def test_a_broker_without_a_controller_says_so_and_waits_for_it(tmp_path: Path) -> None:
    nodes = BrokerProcesses(tmp_path, brokers=2, settings=SETTINGS)
    try:
        nodes.spawn(2)
        wait_until("node 2 says what it misses", lambda: "is not registered yet" in nodes.log(2), WAIT_S)
        nodes.spawn(1)
        nodes.wait_for(1, 2)
    finally:
        nodes.__exit__()
