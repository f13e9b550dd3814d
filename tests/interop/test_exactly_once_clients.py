"""Eight clients that consume, transform and produce in transactions, with aborts, empty aborts and rebalances, on three
brokers: no producer comes to its end, and every record is there once.

The same work is done by librdkafka, Apache Kafka's own clients and franz-go. Only the markers of a transaction that is
replicated take long enough for the next one to begin before they are written.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.cluster.broker_process import BrokerProcesses
from tests.effort import effort
from tests.interop.go_programs import build
from tests.interop.java_tools import libraries

PARTITIONS: Final = 8
CLIENTS: Final = 8
RECORDS: Final = effort(3_000, 100_000)
# A transaction's.
BATCH: Final = effort(20, 100)
ROUNDS: Final = effort(1, 5)
WAIT_S: Final = 120.0
# All of a round's records: 100,000 take one to three minutes on two cores.
ROUND_S: Final = effort(180.0, 900.0)
SETTINGS: Final = {"min.insync.replicas": "2", "transaction.state.log.num.partitions": "5"}
HERE: Final = Path(__file__).parent / "transform_clients"


def librdkafka() -> list[str]:
    return [sys.executable, "-m", "tests.interop.transform_clients.librdkafka"]


def java() -> list[str]:
    jars = libraries()
    if shutil.which("javac") is None:
        pytest.skip("A Java compiler is unavailable: only a runtime is installed")
    source = HERE / "JavaClients.java"
    options = [
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
    ]
    return ["java", *options, "-cp", f"{jars}/*", str(source)]


def go() -> list[str]:
    return [str(build(HERE / "go"))]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("clients"), settings=SETTINGS) as running:
        yield running


def create(nodes: BrokerProcesses, *topics: str) -> None:
    made = nodes.admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in topics])
    for future in made.values():
        future.result(WAIT_S)


def feed(nodes: BrokerProcesses, topic: str) -> Counter[str]:
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return Counter(str(number) for number in range(RECORDS))


def reader(nodes: BrokerProcesses, topic: str) -> Consumer:
    """Of what is committed, from the beginning of every partition."""
    consumer = Consumer(
        {"bootstrap.servers": nodes.bootstrap, "group.id": "readers", "isolation.level": "read_committed",
         "enable.partition.eof": True, "log_level": 0}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    return consumer


def wait_committed(nodes: BrokerProcesses, process: subprocess.Popen[str], topic: str) -> None:
    """Until so many records are committed, or the clients have ended."""
    consumer, committed_count, until = reader(nodes, topic), 0, time.monotonic() + ROUND_S
    while committed_count < RECORDS and process.poll() is None:
        assert time.monotonic() < until, f"{committed_count} of {RECORDS} records after {ROUND_S:.0f} s"
        committed_count += sum(message.error() is None for message in consumer.consume(1_000, 0.5))
    consumer.close()


def committed(nodes: BrokerProcesses, topic: str) -> Counter[str]:
    """How often each value is there, once nobody writes any more."""
    consumer = reader(nodes, topic)
    counts: Counter[str] = Counter()
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1_000, 1.0):
            error = message.error()
            if error is None:
                counts[(message.value() or b"").decode()] += 1
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    consumer.close()
    return counts


def play_round(nodes: BrokerProcesses, program: list[str], name: str) -> Counter[str]:
    """The work of the clients."""
    source, target = f"{name}-source", f"{name}-target"
    create(nodes, source, target)
    expected = feed(nodes, source)
    words = [*program, nodes.bootstrap, source, target, f"{name}-group", str(CLIENTS), str(BATCH)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_committed(nodes, process, target)
            said, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, said
    result = committed(nodes, target)
    assert result == expected, f"lost {expected - result}, doubled {result - expected}"
    return Counter(json.loads(said.splitlines()[-1]))


@pytest.mark.timeout(effort(300, 3_600))
@pytest.mark.parametrize("program", [librdkafka, java, go])
def test_eight_clients_end_without_a_fatal_error_and_every_record_is_there_once(
    nodes: BrokerProcesses, program: Callable[[], list[str]]
) -> None:
    words = program()
    did = Counter[str]()
    for number in range(ROUNDS):
        began = time.monotonic()
        done = play_round(nodes, words, f"{program.__name__}-{number}")
        print(f"{program.__name__}, round {number}: {time.monotonic() - began:.0f} s, {dict(done)}")
        did += done
    assert min(did[what] for what in ("commits", "aborts", "empty aborts")) > 0, did
    assert did["rebalances"] > CLIENTS * ROUNDS, did
