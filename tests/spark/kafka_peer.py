"""The Kafka of these tests: one embedded broker, or the cluster that EBBLINE_TEST_KAFKA names."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark.decode import RawRecord
from tests.ports import free_ports

START_TIMEOUT_S = 60


class NoKafka(Exception):
    """No Kafka can be had here; the message says why."""


@contextmanager
def running_broker(folder: Path, port: int = 0) -> Iterator[str]:
    """``host:port`` of a broker that runs during the block, on a free port unless one is given."""
    given = os.environ.get("EBBLINE_TEST_KAFKA")
    if given:
        yield given
        return
    try:
        from backend.engine.cluster import Cluster, ClusterLayout
    except ImportError as error:
        raise NoKafka(f"the embedded engine cannot be imported: {error}") from error
    controller_port, free = free_ports(2)
    port = port or free
    layout = ClusterLayout(
        cluster_id="pipeline-tests-cluster",
        log_dirs={1: str(folder / "log")},
        ports={1: port},
        controller_port=controller_port,
    )
    ready, end = threading.Event(), threading.Event()
    failure: list[BaseException] = []

    async def serve() -> None:
        cluster = Cluster(layout)
        try:
            await cluster.start()
            ready.set()
            while not end.is_set():
                await asyncio.sleep(0.1)
            await cluster.stop()
        except BaseException as error:
            failure.append(error)
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="embedded broker", daemon=True)
    thread.start()
    try:
        if not ready.wait(START_TIMEOUT_S) or failure:
            raise RuntimeError("the embedded broker did not start") from (failure[0] if failure else None)
        yield f"127.0.0.1:{port}"
    finally:
        end.set()
        thread.join(START_TIMEOUT_S)


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(bootstrap: str, topic: str, partitions: int = 5) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config={"retention.ms": "-1"})
    client = admin(bootstrap)  # must live until the answer is there
    client.create_topics([new], operation_timeout=30)[topic].result(timeout=30)


def produce(bootstrap: str, topic: str, records: Iterable[RawRecord]) -> None:
    """Write records; each must get the offset it says, so a topic is written from its beginning and in order."""
    delivered: list[tuple[object, tuple[int | None, int | None]]] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 20})

    def on_delivery(error: object, message: Message) -> None:
        delivered.append((error, (message.partition(), message.offset())))

    expected = []
    for partition, offset, timestamp, key, value in records:
        expected.append((partition, offset))
        while True:
            try:
                producer.produce(
                    topic, value=value, key=key, partition=partition, timestamp=timestamp, on_delivery=on_delivery
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)
    assert [error for error, _ in delivered if error is not None] == []
    assert sorted(place for _, place in delivered) == sorted(expected)
