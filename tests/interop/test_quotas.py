"""Quotas with unmodified clients: they wait when throttled, and everything arrives all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.engine_cluster import EngineCluster
from tests.waiting import wait_until
from tests.wire import ask

VALUE: Final = b"v" * 1000
WAIT_S: Final = 60.0
RECORDS: Final = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("quotas"), brokers=1) as running:
        yield running


def alter(cluster: EngineCluster, client_id: str, **values: float | None) -> None:
    """Sets or (None) removes quotas of a client id."""
    entry = m.AlterClientQuotasRequest.Entries
    request = m.AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.Entity(entity_type="client-id", entity_name=client_id)],
                ops=[entry.Ops(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
            )
        ]
    )
    response = ask(cluster.layout.ports[1], request, 1, m.AlterClientQuotasResponse)
    assert [altered.error_code for altered in response.entries] == [0], response


def create(cluster: EngineCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)


def fill(cluster: EngineCluster, topic: str, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **settings})
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, partition=0)
    assert producer.flush(WAIT_S) == 0


def labels(cluster: EngineCluster, name: str) -> list[Any]:
    """Of the series of a metric."""

    def read() -> list[Any]:
        (gauge,) = (metric for metric in cluster.broker(1).services.metrics.gauges if metric.name == name)
        reading: Any = gauge.read()
        return [labels for labels, _ in reading]

    return cluster.ask(read)


def test_confluent_kafka_is_told_to_wait_and_loses_nothing(cluster: EngineCluster) -> None:
    create(cluster, "throttled")
    # 100 kB at 9 kB/s over ten windows: one or two seconds too early.
    alter(cluster, "slow", producer_byte_rate=9_000.0, consumer_byte_rate=9_000.0)
    throttle_times: list[float] = []

    def on_throttle(event: ThrottleEvent) -> None:
        throttle_times.append(event.throttle_time)

    batches = {"batch.num.messages": 10, "client.id": "slow", "throttle_cb": on_throttle}
    fill(cluster, "throttled", **batches)
    assert any(throttle_times)
    throttle_times.clear()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "slow",
            "client.id": "slow",
            "enable.auto.commit": False,
            "throttle_cb": on_throttle,
        }
    )
    consumer.assign([TopicPartition("throttled", 0, 0)])
    values: list[bytes | None] = []

    def all_read() -> bool:
        values.extend(message.value() for message in consumer.consume(100, 0.5) if message.error() is None)
        return len(values) >= RECORDS

    wait_until("every record is read", all_read, WAIT_S)
    consumer.close()
    assert values == [VALUE] * RECORDS
    assert any(throttle_times)
    for kind in ("produce", "fetch"):
        for name in ("byte_rate", "throttle_time"):
            assert {"user": "", "client_id": "slow"} in labels(cluster, f"kafka_server_{kind}_{name}")


def test_kafka_python_is_told_to_wait_and_loses_nothing(cluster: EngineCluster) -> None:
    create(cluster, "python")
    alter(cluster, "slow-python", producer_byte_rate=9_000.0)
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap, client_id="slow-python", acks="all", batch_size=10_000
    )
    sent = [producer.send("python", VALUE, partition=0) for _ in range(RECORDS)]
    assert sorted(future.get(WAIT_S).offset for future in sent) == list(range(RECORDS))
    metrics = producer.metrics()
    producer.close()
    throttle_times = [
        value for group in metrics.values() for name, value in group.items() if name == "throttle-time-max"
    ]
    assert max(throttle_times) > 0


def test_a_client_whose_quota_is_removed_is_told_nothing_any_more(cluster: EngineCluster) -> None:
    create(cluster, "freed")
    alter(cluster, "freed", producer_byte_rate=1.0)
    alter(cluster, "freed", producer_byte_rate=None)
    throttle_times: list[float] = []
    fill(
        cluster,
        "freed",
        **{"client.id": "freed", "throttle_cb": lambda event: throttle_times.append(event.throttle_time)},
    )
    assert not any(throttle_times)


def test_too_many_new_partitions_are_refused_until_there_are_permits_again(cluster: EngineCluster) -> None:
    request = m.CreateTopicsRequest(
        timeout_ms=30_000,
        topics=[
            m.CreateTopicsRequest.Topics(name=f"made-{number}", num_partitions=8, replication_factor=1)
            for number in range(3)
        ],
    )
    alter(cluster, "test", controller_mutation_rate=0.5)
    answer = ask(cluster.layout.ports[1], request, 7, m.CreateTopicsResponse)
    # Five permits and a half: the first topic overdraws them, the others are refused, in one answer.
    codes = {topic.name: topic.error_code for topic in answer.topics}
    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert codes == {"made-0": 0, "made-1": exceeded, "made-2": exceeded}
    assert [topic.error_message for topic in answer.topics] == [None] * 3
    assert answer.throttle_time_ms > 0
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=WAIT_S).topics
    assert {name for name in topics if name.startswith("made-")} == {"made-0"}
    alter(cluster, "test", controller_mutation_rate=None)


def test_a_client_before_the_error_was_known_goes_on_and_waits(cluster: EngineCluster) -> None:
    alter(cluster, "test", controller_mutation_rate=0.5)
    request = m.CreateTopicsRequest(
        timeout_ms=30_000,
        topics=[
            m.CreateTopicsRequest.Topics(name=f"old-{number}", num_partitions=8, replication_factor=1)
            for number in range(2)
        ],
    )
    answer = ask(cluster.layout.ports[1], request, 5, m.CreateTopicsResponse)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"old-0": 0, "old-1": 0}
    assert answer.throttle_time_ms > 0
    alter(cluster, "test", controller_mutation_rate=None)
