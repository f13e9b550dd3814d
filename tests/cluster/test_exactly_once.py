"""Transactions across kill -9 of brokers and clients: every input is seen once, and an open transaction survives its
coordinator.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from backend.engine.coordinator.group.group_records import coordinator_partition
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from tests.cluster.broker_process import BrokerProcesses
from tests.effort import effort
from tests.waiting import wait_until

PARTITIONS: Final = 3
STATE_PARTITIONS: Final = 5
WAIT_S: Final = 120.0
WORKERS: Final = 2
KILLS: Final = 4
RECORDS: Final = 1000
SEED: Final = 20_261
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    """One cluster for all tests: each leaves every node running, and uses other topics."""
    with BrokerProcesses(tmp_path_factory.mktemp("exactly-once"), settings=SETTINGS) as running:
        yield running


def create(nodes: BrokerProcesses, topic: str) -> str:
    nodes.admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(WAIT_S)
    return topic


def read(nodes: BrokerProcesses, topic: str, *, committed: bool) -> Counter[str]:
    """How often each value is in the topic; empty when its end cannot be reached now."""
    consumer = Consumer(
        {"bootstrap.servers": nodes.bootstrap, "group.id": "readers", "enable.partition.eof": True, "log_level": 0,
         "isolation.level": "read_committed" if committed else "read_uncommitted"}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    counts: Counter[str] = Counter()
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(30)
        if message is None:
            counts.clear()
            break
        error = message.error()
        if error is None:
            counts[(message.value() or b"").decode()] += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return counts


def whole(nodes: BrokerProcesses, topic: str) -> bool:
    """All nodes are in every ISR."""
    everyone = frozenset(nodes.layout.ports)
    views = nodes.views(topic)
    return len(views) == len(everyone) and all(rows and all(row.isr == everyone for row in rows) for rows in views)


def name_coordinated_away_from_the_controller(nodes: BrokerProcesses) -> tuple[str, int]:
    """A transactional id and the node that coordinates it, which is not the first."""
    [leaders] = [[row.leader for row in nodes.views(TRANSACTIONS_TOPIC)[0]]]
    names = (f"survivor-{number}" for number in range(1000))
    candidates = ((name, leaders[coordinator_partition(name, STATE_PARTITIONS)]) for name in names)
    return next((name, leader) for name, leader in candidates if leader > 1)


def test_a_transaction_outlives_its_coordinator(nodes: BrokerProcesses) -> None:
    topic = create(nodes, "outlives")
    Producer({"bootstrap.servers": nodes.bootstrap, "transactional.id": "first", "log_level": 0}).init_transactions(60)
    name, coordinator = name_coordinated_away_from_the_controller(nodes)
    settings = {"bootstrap.servers": nodes.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce(topic, f"before {number}", partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    nodes.kill(coordinator)
    for number in range(30):
        producer.produce(topic, f"after {number}", partition=number % PARTITIONS)
    producer.commit_transaction(WAIT_S)
    expected = Counter(f"{when} {number}" for when in ("before", "after") for number in range(30))
    wait_until("it is committed everywhere", lambda: read(nodes, topic, committed=True) == expected, WAIT_S)
    nodes.spawn(coordinator)
    wait_until("the killed node is in sync again", lambda: whole(nodes, topic), WAIT_S)
    # The broker that came back, or the new leader, knows the producer: a second one fences it.
    second = Producer(settings)
    second.init_transactions(60)
    second.begin_transaction()
    second.produce(topic, "of the second", partition=0)
    second.commit_transaction(WAIT_S)
    expected["of the second"] = 1
    wait_until("the second one's too", lambda: read(nodes, topic, committed=True) == expected, WAIT_S)


class Workers:
    """Processes of `transform_worker`; a context manager."""

    def __init__(self, nodes: BrokerProcesses, folder: Path, source: str, target: str) -> None:
        self._arguments = [nodes.bootstrap, source, target, f"group-{source}"]
        self._name = source
        self._folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Workers:
        for number in range(WORKERS):
            self._spawn(number)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def _spawn(self, number: int) -> None:
        with (self._folder / f"{self._name}-{number}.log").open("ab") as log:
            self._running[number] = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.transform_worker", *self._arguments, f"{self._name}-{number}"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def keep_running(self) -> None:
        """Processes that gave up are started again, as by a supervisor."""
        for number, process in list(self._running.items()):
            if process.poll() is not None:
                self._spawn(number)

    def kill_one(self, chance: random.Random) -> None:
        """kill -9; its successor has the same transactional id."""
        number = chance.randrange(WORKERS)
        self._running[number].kill()
        self._running[number].wait()
        self._spawn(number)


def feed(nodes: BrokerProcesses, topic: str) -> Counter[str]:
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, f"{topic}-{number}", partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return Counter(f"{topic}-{number}" for number in range(RECORDS))


def written(nodes: BrokerProcesses, topic: str) -> int:
    """Records of the topic, whatever becomes of them; 0 when a leader does not tell now."""
    isolation = {"isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": nodes.bootstrap, "group.id": "watchers", "log_level": 0} | isolation)
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(PARTITIONS))
    except KafkaException:
        return 0
    finally:
        consumer.close()


def until_written(nodes: BrokerProcesses, workers: Workers, topic: str, more: int) -> None:
    """The workers are in the middle of their work: they have written that many more."""
    expected = written(nodes, topic) + more

    def under_way() -> bool:
        workers.keep_running()
        return written(nodes, topic) >= expected

    wait_until(f"{more} more records are written", under_way, WAIT_S)


def play_round(nodes: BrokerProcesses, folder: Path, number: int, chance: random.Random) -> int:
    """How many records the kills have had aborted."""
    source, target = create(nodes, f"source-{number}"), create(nodes, f"target-{number}")
    expected = feed(nodes, source)
    with Workers(nodes, folder, source, target) as workers:
        for kill in range(KILLS):
            until_written(nodes, workers, target, chance.randrange(20, 150))
            if kill % 2:
                node_id = chance.choice(list(nodes.layout.ports))
                nodes.kill(node_id)
                nodes.spawn(node_id)
                wait_until(f"node {node_id} is in sync again", lambda: whole(nodes, target), WAIT_S)
            else:
                workers.kill_one(chance)
            workers.keep_running()

        def done() -> bool:
            workers.keep_running()
            return len(read(nodes, target, committed=True)) >= len(expected)

        wait_until("every input has been worked off", done, WAIT_S * 2)
    seen = read(nodes, target, committed=True)
    assert seen == expected, f"lost {expected - seen}, doubled {seen - expected}"
    everything = read(nodes, target, committed=False)
    assert not expected - everything
    return everything.total() - seen.total()


@pytest.mark.timeout(effort(300, 3_600))
def test_every_input_is_seen_once_however_often_brokers_and_clients_are_killed(
    nodes: BrokerProcesses, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    aborted = sum(play_round(nodes, tmp_path, number, chance) for number in range(effort(2, 20)))
    assert aborted > 0, "no kill hit an open transaction"
