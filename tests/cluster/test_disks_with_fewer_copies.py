"""The cost of a lost disk with fewer copies than the default: one replica, or one in sync asked for. As
docs/durability.md says it: nothing while the others have it, and all of what had no other copy.

With one replica in sync asked for, nobody is remembered as eligible (KIP-966): when the broker with the new disk is the
last one that registers, an operator has to say that another may lead, and the best log does.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.engine_cluster import EngineCluster
from tests.waiting import wait_until

NODES: Final = (1, 2, 3)
WAIT_S: Final = 60.0
ONE_IN_SYNC: Final = "one-in-sync"
ONE_REPLICA: Final = "one-replica"
SEGMENT_BYTES: Final = 1 << 20
PADDING: Final = b"." * 20_000
RECORDS: Final = 200
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    # How long a disk that is lost is waited for.
    "unclean.recovery.timeout.ms": "2000",
}
# Partition p of the first prefers broker p + 1, of the second is on it alone.
REPLICAS: Final = {ONE_IN_SYNC: [[1, 2, 3], [2, 3, 1], [3, 1, 2]], ONE_REPLICA: [[1], [2], [3]]}
Read = dict[tuple[str, int], list[bytes]]


def create(cluster: EngineCluster) -> None:
    tier = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": "1"}
    configs = {ONE_IN_SYNC: {"min.insync.replicas": "1"}, ONE_REPLICA: {"min.insync.replicas": "1", **tier}}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [NewTopic(name, 3, replica_assignment=replicas, config=configs[name]) for name, replicas in REPLICAS.items()]
    for made in admin.create_topics(new).values():
        made.result(30)


def produce(cluster: EngineCluster, mark: bytes) -> Read:
    """The records that acks=all has acknowledged, by partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    taken: Read = {(topic, partition): [] for topic in REPLICAS for partition in range(3)}
    for number in range(RECORDS):
        for topic, partition in taken:
            value = b"%s-%06d" % (mark, number)
            taken[topic, partition].append(value)
            producer.produce(topic, value + (PADDING if topic == ONE_REPLICA else b""), partition=partition)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return taken


def read(cluster: EngineCluster) -> Read:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "check", "enable.auto.commit": False,
         "enable.partition.eof": True, "log_level": 0}
    )  # fmt: skip
    values: Read = {(topic, partition): [] for topic in REPLICAS for partition in range(3)}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in values])
    ended: set[tuple[str | None, int | None]] = set()
    deadline_s = time.monotonic() + WAIT_S
    while len(ended) < len(values):
        assert time.monotonic() < deadline_s, f"{len(ended)} partitions were read to their ends"
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is not None:
                ended.add((message.topic(), message.partition()))
            else:
                values[message.topic() or "", message.partition() or 0].append(
                    (message.value() or b"")[: len(b"1-000000")]
                )
    consumer.close()
    return values


def in_sync(cluster: EngineCluster) -> None:
    def whole() -> bool:
        image = cluster.broker(1).services.metadata.image
        partitions = [image.partition(topic, partition) for topic in REPLICAS for partition in range(3)]
        return all(
            registration is not None and sorted(registration.isr) == sorted(registration.replicas)
            for registration in partitions
        )

    cluster.wait_until("all are in sync", whole, WAIT_S)


def elect_where_nobody_may_lead(cluster: EngineCluster) -> None:
    def all_are_back() -> bool:
        brokers = cluster.broker(1).services.metadata.image.brokers
        return len(brokers) == len(NODES) and not any(broker.fenced for broker in brokers.values())

    cluster.wait_until("all brokers are back", all_are_back, WAIT_S)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    every = [TopicPartition(ONE_IN_SYNC, partition) for partition in range(3)]

    def all_are_led() -> bool:
        admin.elect_leaders(ElectionType.UNCLEAN, every).result(30)
        image = cluster.broker(1).services.metadata.image
        partitions = [image.partition(ONE_IN_SYNC, partition) for partition in range(3)]
        return all(registration is not None and registration.leader > 0 for registration in partitions)

    wait_until("somebody leads each", all_are_led, WAIT_S)


def test_what_had_another_copy_is_there_and_what_had_none_is_gone(tmp_path: Path) -> None:
    with EngineCluster(tmp_path, brokers=3, tiering=True, voters=3, settings=SETTINGS) as cluster:
        create(cluster)
        in_sync(cluster)
        expected = produce(cluster, b"1")
        for node in NODES:
            cluster.kill_broker(node)
        cluster.call(cluster.cluster.start())
        in_sync(cluster)
        assert read(cluster) == expected, "a kill of all with their disks whole"

        cluster.wait_until(
            "the tier has segments of the one replica",
            lambda: len([*cluster.remote_folder.rglob(f"{ONE_REPLICA}-1-*/*.log")]) >= 2,
            WAIT_S,
        )
        copied = sorted(path.name for path in cluster.remote_folder.rglob(f"{ONE_REPLICA}-1-*/*.log"))
        cluster.call(cluster.cluster.stop())
        shutil.rmtree(cluster.layout.log_dirs[2])
        cluster.call(cluster.cluster.start())
        elect_where_nobody_may_lead(cluster)
        in_sync(cluster)
        # The log begins again, and what the tier has of the former one is kept and not served.
        expected[ONE_REPLICA, 1] = []
        assert read(cluster) == expected, "one disk after an orderly stop"
        assert copied == sorted(path.name for path in cluster.remote_folder.rglob(f"{ONE_REPLICA}-1-*/*.log"))

        more = produce(cluster, b"2")
        expected = {place: [*values, *more[place]] for place, values in expected.items()}
        for node in NODES:
            cluster.kill_broker(node)
        shutil.rmtree(cluster.layout.log_dirs[3])
        cluster.call(cluster.cluster.start())
        elect_where_nobody_may_lead(cluster)
        in_sync(cluster)
        expected[ONE_REPLICA, 2] = []
        assert read(cluster) == expected, "one disk after a kill of all"
