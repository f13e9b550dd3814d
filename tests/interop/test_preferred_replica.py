"""Consumers in a rack read from the replica there (KIP-392): unmodified clients, and the answer itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.remote.storage.object_store_manager import EventType, ObjectStoreRemoteStorageManager
from backend.protocol import messages as m
from tests.engine_cluster import EngineCluster
from tests.waiting import wait_until
from tests.wire import ask

RACKS: Final = {1: "rack-1", 2: "rack-2", 3: "rack-3"}
SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TOPIC: Final = "near"
RECORDS: Final = 500
VALUE: Final = b"v" * 1000
WAIT_S: Final = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    folder = tmp_path_factory.mktemp("racks")
    with EngineCluster(folder, brokers=3, racks=RACKS, settings={"replica.selector.class": SELECTOR}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])])[TOPIC].result(WAIT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all"})
        for _ in range(RECORDS):
            producer.produce(TOPIC, VALUE, partition=0)
        assert producer.flush(WAIT_S) == 0
        yield running


COLD: Final = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}


def fetched_segments(cluster: EngineCluster) -> Counter[int]:
    """Reads of remote segments by each broker."""
    counts: Counter[int] = Counter()
    for node in RACKS:
        manager = cluster.broker(node).services.remote_log_manager
        assert manager is not None
        storage = manager.storage
        assert isinstance(storage, ObjectStoreRemoteStorageManager)
        counts[node] = sum(event.type is EventType.FETCH_SEGMENT for event in storage.history)
    return counts


def test_records_that_are_only_remote_are_read_from_the_tier_by_the_replica_in_the_consumers_rack(
    tmp_path: Path,
) -> None:
    settings = {"replica.selector.class": SELECTOR}
    with EngineCluster(tmp_path, brokers=3, racks=RACKS, tiering=True, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("cold", 1, replica_assignment=[[1, 2, 3]], config=COLD)])["cold"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(4000):
            producer.produce("cold", b"%d-" % number + VALUE, partition=0)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        logs = [cluster.broker(node).broker_services.replica_manager.partition("cold", 0).log for node in RACKS]
        wait_until("the old segments are only remote", lambda: all(log.local_log_start_offset for log in logs), WAIT_S)
        only_remote = min(log.local_log_start_offset for log in logs)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "cold",
                "client.rack": RACKS[2],
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition("cold", 0, 0)])
        values: list[bytes | None] = []

        def all_read() -> bool:
            values.extend(message.value() for message in consumer.consume(500, 0.5) if message.error() is None)
            return len(values) >= only_remote

        wait_until("what is only remote is read", all_read, WAIT_S)
        consumer.close()
        assert values[:only_remote] == [b"%d-" % number + VALUE for number in range(only_remote)]
        fetched = fetched_segments(cluster)
        assert fetched[2] > 0
        # The leader, asked first, has read nothing before it named the replica.
        assert (fetched[1], fetched[3]) == (0, 0)


def sent_to_consumers(cluster: EngineCluster) -> dict[int, int]:
    return cluster.ask(lambda: {node: cluster.broker(node).services.metrics.all_topics.bytesout for node in RACKS})


@pytest.mark.parametrize("node", RACKS)
def test_a_consumer_reads_everything_from_the_replica_in_its_rack(cluster: EngineCluster, node: int) -> None:
    before = sent_to_consumers(cluster)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"near-{node}",
            "client.rack": RACKS[node],
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes | None] = []

    def all_read() -> bool:
        values.extend(message.value() for message in consumer.consume(100, 0.5) if message.error() is None)
        return len(values) >= RECORDS

    wait_until("every record is read", all_read, WAIT_S)
    consumer.close()
    assert values == [VALUE] * RECORDS
    after = sent_to_consumers(cluster)
    served = {broker for broker in RACKS if after[broker] - before[broker] > RECORDS * len(VALUE) // 2}
    assert served == {node}


def fetch(cluster: EngineCluster, rack: str, version: int, offset: int = 0) -> m.FetchResponse.Responses.Partitions:
    topics = m.FetchRequest.Topics
    part = topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = m.FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, rack_id=rack, topics=[topics(topic=TOPIC, partitions=[part])]
    )
    response = ask(cluster.layout.ports[1], request, version, m.FetchResponse)
    return response.responses[0].partitions[0]


def test_the_leader_names_the_replica_at_once_and_sends_no_records(cluster: EngineCluster) -> None:
    row = fetch(cluster, "rack-2", 12)
    assert (row.error_code, row.preferred_read_replica, row.high_watermark) == (0, 2, RECORDS)
    assert not row.records


@pytest.mark.parametrize(("rack", "version"), [("rack-1", 12), ("rack-9", 12), ("", 12), ("rack-2", 10)])
def test_the_leader_serves_its_own_rack_unknown_racks_and_old_clients_itself(
    cluster: EngineCluster, rack: str, version: int
) -> None:
    row = fetch(cluster, rack, version)
    assert (row.error_code, row.preferred_read_replica) == (0, -1)
    assert row.records


def test_an_offset_that_no_follower_has_is_the_leaders_to_answer(cluster: EngineCluster) -> None:
    row = fetch(cluster, "rack-2", 12, offset=RECORDS + 5)
    assert (row.error_code, row.preferred_read_replica) == (1, -1)
