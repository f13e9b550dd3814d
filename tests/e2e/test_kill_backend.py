"""kill -9 of the backend while records are produced with acks=all: nothing acknowledged is lost, no row doubled."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import httpx
import pytest
import sqlalchemy
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from backend.store import tables
from backend.store.connection.database import create_engine, reading
from tests.e2e.ledger_check import differences, finished_segments
from tests.e2e.up_process import UpProcess
from tests.effort import effort
from tests.waiting import wait_until, wait_until_none

TOPIC = "ledger"
PARTITIONS = 2
KILLS = effort(1, 15)
# A JVM that starts again takes minutes on a machine that is far too busy.
CATCH_UP_S = 240
CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": str(1 << 20),
    "min.insync.replicas": "2",
}


class Load:
    """Produces numbered records until stopped and remembers which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 20_000,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is None:
            self.acknowledged.add(int(value[:12]))
        else:
            self.failed.append(error.str())

    def _run(self) -> None:
        number = 0
        filler = b"." * 988
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    TOPIC, b"%012d" % number + filler, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            if number % 500 == 0:
                self._producer.poll(0)
                time.sleep(0.05)
        self._producer.flush(120)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(180)
        assert not self._thread.is_alive()


def _read_all(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30.0)[1] for p in partitions}
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    seen: list[int] = []
    left = sum(ends.values())
    while left:
        batch = consumer.consume(min(5_000, left), timeout=30.0)
        assert batch, f"nothing came for 30 s, {left} records are missing of {ends}"
        for message in batch:
            assert message.error() is None
            value = message.value()
            assert value is not None
            seen.append(int(value[:12]))
        left -= len(batch)
    consumer.close()
    return seen


def _ready(up: UpProcess) -> bool:
    try:
        return httpx.get(f"{up.api_url}/readyz", timeout=2.0, verify=False).status_code == 200
    except httpx.HTTPError:
        return False


def _more_is_acknowledged(load: Load) -> None:
    before = len(load.acknowledged)
    wait_until("4,000 more acknowledged records", lambda: len(load.acknowledged) > before + 4_000, 90)


def _kill_and_wait_for_return(up: UpProcess) -> None:
    pid = up.pid("backend")
    os.kill(pid, signal.SIGKILL)
    wait_until("the backend to return", lambda: up.pid("backend") != pid and _ready(up), 90)


@pytest.mark.timeout(effort(900, 3_600))
def test_nothing_acknowledged_is_lost_and_no_row_is_doubled(
    up: UpProcess, record_property: Callable[[str, object], None]
) -> None:
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3, config=CONFIG)
    admin.create_topics([topic])[TOPIC].result(timeout=30)
    load = Load(up.bootstrap)
    load.start()
    for _ in range(KILLS):
        _more_is_acknowledged(load)
        _kill_and_wait_for_return(up)
    _more_is_acknowledged(load)
    load.stop()

    seen = Counter(_read_all(up.bootstrap))
    missing = load.acknowledged - seen.keys()
    assert not missing, f"{len(missing)} acknowledged records are gone, first {min(missing)}"
    assert max(seen.values()) == 1, "the idempotent producer's records are doubled"
    record_property("kills", KILLS)
    record_property("acknowledged records", len(load.acknowledged))
    _pipeline_caught_up(up)


def _pipeline_caught_up(up: UpProcess) -> None:
    remote = up.data / "remote"
    wait_until_none(
        "the pipeline catches up with the remote folder",
        lambda: differences(up.database_url, remote, TOPIC),
        timeout_s=CATCH_UP_S,
    )
    assert finished_segments(up.database_url, TOPIC) > PARTITIONS
    wait_until(
        "one row for every record of the metadata topic",
        lambda: _event_rows(up.database_url) == _metadata_records(up.bootstrap),
        timeout_s=CATCH_UP_S,
    )


def _event_rows(database_url: str) -> list[tuple[int, int]]:
    """(metadata partition, offset) of every event row, sorted."""
    event = tables.segment_event
    engine = create_engine(database_url)
    query = sqlalchemy.select(event.c.metadata_partition, event.c.metadata_offset)
    with reading(engine) as connection:
        rows = sorted((row[0], row[1]) for row in connection.execute(query))
    engine.dispose()
    return rows


def _metadata_records(bootstrap: str) -> list[tuple[int, int]]:
    """(partition, offset) of every record of ``__remote_log_metadata``, sorted."""
    topic = "__remote_log_metadata"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30.0).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    places: list[tuple[int, int]] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(1_000, timeout=1.0):
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if message.error() is not None:
                ended.add(partition)
            else:
                places.append((partition, offset))
    consumer.close()
    assert places
    return sorted(places)
