"""Brokers whose disk takes no more: they say so, serve reads, lose nothing, and take records again by themselves.

The operating system refuses for real: the processes may write no file beyond a size, which ends a write half-way just
as a full disk does, and which can be lifted again.
"""

from __future__ import annotations

import re
import resource
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.cluster.broker_process import BrokerProcesses
from tests.waiting import wait_until

TOPIC: Final = "orders"
# Logs of the processes and all other files stay below it.
FILE_BYTES_MAX: Final = 1_500_000
VALUE: Final = b"." * 10_000
SETTINGS: Final = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "4000"}


def limit_files(nodes: BrokerProcesses, size_bytes: int, *, of: Iterable[int] = (1, 2, 3)) -> None:
    for node in of:
        resource.prlimit(nodes.pid(node), resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def produce(nodes: BrokerProcesses, count: int, *, timeout_ms: int) -> tuple[Counter[bytes], list[str]]:
    """Numbered records; what was acknowledged, and the errors of the others."""
    acknowledged: Counter[bytes] = Counter()
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged[message.value()] += 1
        else:
            failed.append(error.str())

    producer = Producer(
        {"bootstrap.servers": nodes.bootstrap, "acks": "all", "delivery.timeout.ms": timeout_ms, "log_level": 0}
    )
    for number in range(count):
        producer.produce(TOPIC, b"%08d" % number + VALUE, on_delivery=delivered)
        producer.poll(0.001)
    assert producer.flush(120) == 0
    return acknowledged, failed


def read_all(nodes: BrokerProcesses) -> Counter[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": nodes.bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    )
    partition = TopicPartition(TOPIC, 0, 0)
    left = consumer.get_watermark_offsets(partition, timeout=30)[1]
    consumer.assign([partition])
    counts: Counter[bytes] = Counter()
    while left:
        messages = consumer.consume(min(left, 100), timeout=60)
        assert messages, f"{left} records did not come"
        for message in messages:
            assert message.error() is None, message.error()
            counts[message.value() or b""] += 1
        left -= len(messages)
    consumer.close()
    return counts


def log_bytes(nodes: BrokerProcesses, node: int) -> bytes:
    folder = Path(nodes.layout.log_dirs[node]) / f"{TOPIC}-0"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def same_log(nodes: BrokerProcesses, node: int, other: int) -> bool:
    return log_bytes(nodes, node) == log_bytes(nodes, other)


def isr(nodes: BrokerProcesses) -> set[int]:
    return set(nodes.admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].isrs)


def isr_is(nodes: BrokerProcesses, *members: int) -> bool:
    return isr(nodes) == set(members)


def test_full_disks_harm_nothing_and_pass(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, settings=SETTINGS) as nodes:
        nodes.admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])])[TOPIC].result(30)
        produced, _ = produce(nodes, 10, timeout_ms=20_000)

        # A follower's: it leaves the ISR, the others go on, and it catches up once it can.
        limit_files(nodes, FILE_BYTES_MAX // 2, of=[2])
        more, failed = produce(nodes, 90, timeout_ms=60_000)
        produced += more
        assert failed == []
        wait_until("node 2 is out of the ISR", partial(isr_is, nodes, 1, 3))
        assert "takes no records" in nodes.log(2)
        limit_files(nodes, resource.RLIM_INFINITY, of=[2])
        wait_until("node 2 is back in the ISR", partial(isr_is, nodes, 1, 2, 3))

        # The leader's: producers get an error, readers are served.
        limit_files(nodes, FILE_BYTES_MAX)
        more, failed = produce(nodes, 100, timeout_ms=8_000)
        produced += more
        assert failed, "the last ones do not fit"
        assert "takes no records" in nodes.log(1)
        assert nodes.layout.log_dirs[1] in nodes.log(1)
        assert produced - read_all(nodes) == Counter()
        limit_files(nodes, resource.RLIM_INFINITY)
        more, failed = produce(nodes, 50, timeout_ms=60_000)
        produced += more
        assert failed == []
        assert produced - read_all(nodes) == Counter()
        for node in (2, 3):
            wait_until("the replicas are equal", partial(same_log, nodes, node, 1))
        for node in (1, 2):
            assert "takes records again" in nodes.log(node)

        # Leftovers of full disks are no damage for the next start either.
        for node in (1, 2, 3):
            nodes.kill(node)
        for node in (1, 2, 3):
            nodes.spawn(node)
        nodes.wait_for(1, 2, 3)
        more, failed = produce(nodes, 10, timeout_ms=60_000)
        produced += more
        assert failed == []
        assert produced - read_all(nodes) == Counter()
        for node in (1, 2, 3):
            assert not re.search(rf"{TOPIC}-0 is offline", nodes.log(node))
            assert "Traceback" not in nodes.log(node)
