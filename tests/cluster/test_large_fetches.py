"""Records that leave their files without being read: followers and consumers have them byte for byte.

Also while segments roll and are removed, and when the leader is killed in the midst of a consumer's reading.
"""

from __future__ import annotations

import errno
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.log.local_log import RANGE_BYTES_MIN
from tests.engine_cluster import EngineCluster
from tests.waiting import wait_until

TOPIC: Final = "large"
RECORDS: Final = 1_500
SEGMENT_BYTES: Final = 4 << 20
# Batches end up just below and far above the size from which records stay in their file.
SIZES: Final = (RANGE_BYTES_MIN // 5, RANGE_BYTES_MIN - 100, RANGE_BYTES_MIN + 100, 200_000)
WAIT_S: Final = 60.0


def value(number: int) -> bytes:
    body = os.urandom(SIZES[number % len(SIZES)])
    return zlib.crc32(body).to_bytes(4, "big") + body


def number_of(message: Message) -> int:
    """After a look at whether the value is the one sent."""
    data = message.value() or b""
    assert zlib.crc32(data[4:]) == int.from_bytes(data[:4], "big"), message.offset()
    return int((message.key() or b"").decode())


def produce(cluster: EngineCluster, begin: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(begin, end):
        producer.produce(TOPIC, value(number), key=str(number).encode())
        if number % 100 == 0:
            assert producer.flush(WAIT_S) == 0
    assert producer.flush(WAIT_S) == 0


def consume(cluster: EngineCluster, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "large", "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    numbers: list[int] = []
    while len(numbers) < count:
        messages = consumer.consume(min(500, count - len(numbers)), WAIT_S)
        assert messages, f"{len(numbers)} of {count} came"
        for message in messages:
            assert message.error() is None, message.error()
            numbers.append(number_of(message))
    consumer.close()
    return numbers


def bytes_sent(cluster: EngineCluster, node_id: int) -> int:
    return cluster.ask(lambda: cluster.broker(node_id).services.metrics.all_topics.bytesout)


def log_bytes(cluster: EngineCluster, node_id: int) -> bytes:
    folder = Path(cluster.layout.log_dirs[node_id]) / f"{TOPIC}-0"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


@pytest.fixture
def cluster(tmp_path: Path) -> EngineCluster:
    return EngineCluster(
        tmp_path, brokers=3, settings={"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    )


def create(cluster: EngineCluster, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(TOPIC, 1, replica_assignment=[[2, 1, 3]], config={"segment.bytes": str(SEGMENT_BYTES)} | config)
    admin.create_topics([topic])[TOPIC].result(WAIT_S)


def test_replicas_are_byte_for_byte_alike_and_consumers_have_all_after_a_kill(cluster: EngineCluster) -> None:
    with cluster:
        create(cluster, **{"min.insync.replicas": "2"})
        produce(cluster, 0, RECORDS // 2)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(consume, cluster, RECORDS)
            wait_until("the leader has sent something", lambda: bytes_sent(cluster, 2) > 0, WAIT_S)
            cluster.kill_broker(2)
            produce(cluster, RECORDS // 2, RECORDS)
            assert reading.result(2 * WAIT_S) == list(range(RECORDS))
        cluster.start_broker(2)
        wait_until("broker 2 has what broker 1 has", lambda: log_bytes(cluster, 2) == log_bytes(cluster, 1), WAIT_S)
        assert log_bytes(cluster, 3) == log_bytes(cluster, 1)
        assert len(log_bytes(cluster, 1)) > sum(SIZES) * RECORDS / len(SIZES)


def test_segments_that_are_removed_while_they_are_read_take_nobody_with_them(cluster: EngineCluster) -> None:
    with cluster:
        create(cluster, **{"retention.bytes": str(2 * SEGMENT_BYTES), "file.delete.delay.ms": "1"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "slow", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        seen: list[int] = []
        for number in range(RECORDS):
            producer.produce(TOPIC, value(number), key=str(number).encode())
            if number % 20 == 0:
                assert producer.flush(WAIT_S) == 0
                seen += [number_of(message) for message in consumer.consume(5, 1.0)]
        assert producer.flush(WAIT_S) == 0

        def last_came() -> bool:
            seen.extend(map(number_of, consumer.consume(100, 0.5)))
            return RECORDS - 1 in seen[-500:]

        wait_until("the last record came", last_came, WAIT_S)
        consumer.close()
        assert seen == sorted(set(seen))
        assert not (Path(cluster.layout.log_dirs[2]) / f"{TOPIC}-0" / f"{0:020d}.log").exists()


def test_a_leader_whose_disk_fails_while_it_sends_is_followed_by_another(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sendfile = os.sendfile

    def fails_on_broker_2(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        if os.readlink(f"/proc/self/fd/{in_fd}").startswith(cluster.layout.log_dirs[2]):
            raise OSError(errno.EIO, "Input/output error")
        return sendfile(out_fd, in_fd, offset, count)

    with cluster:
        create(cluster, **{"min.insync.replicas": "2"})
        produce(cluster, 0, RECORDS // 2)
        monkeypatch.setattr(os, "sendfile", fails_on_broker_2)
        assert consume(cluster, RECORDS // 2) == list(range(RECORDS // 2))
        assert ".log could not be read to be sent: Input/output error" in caplog.text
        assert f"Partition {TOPIC}-0 is offline: could not read" in caplog.text
