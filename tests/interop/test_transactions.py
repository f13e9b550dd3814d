"""Transactions of unmodified clients on three brokers: all of it or nothing, by one producer at a time.

All of it is run on tiered topics of one batch a segment, of which only the active segment stays local (Kafka's
`TransactionsWithTieredStoreTest`), and in the long form on plain topics of brokers without the tier as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.engine.coordinator.group.group_records import coordinator_partition
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition as LogName
from tests.effort import effort
from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries
from tests.waiting import wait_until
from tests.wire import ask

PARTITIONS: Final = 3
WAIT_S: Final = 60.0
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "5",
    # Kafka looks every 10 s for transactions that were left open.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}


TIERED: Final = {
    "remote.storage.enable": "true",
    "index.interval.bytes": "1",
    "segment.index.bytes": "12",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}


@pytest.fixture(
    scope="module", params=effort([True], [True, False]), ids=lambda tiered: "tiered" if tiered else "plain"
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    folder = tmp_path_factory.mktemp("transactions")
    with EngineCluster(folder, brokers=3, tiering=request.param, settings=SETTINGS) as running:
        yield running


def is_tiered(cluster: EngineCluster) -> bool:
    return cluster.broker(1).services.remote_log_manager is not None


def create(cluster: EngineCluster, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    requested = NewTopic(topic, PARTITIONS, 3, config=TIERED if is_tiered(cluster) else {})
    admin.create_topics([requested])[topic].result(WAIT_S)
    return topic


def wait_remote(cluster: EngineCluster, topic: str) -> None:
    """No replica has the beginning of a partition locally any more."""

    def starts() -> list[int]:
        managers = [cluster.broker(node).services.log_manager for node in cluster.cluster.brokers]
        logs = [manager.get(LogName(topic, index)) for manager in managers for index in range(PARTITIONS)]
        return [log.local_log_start_offset for log in logs if log is not None]

    def are_remote() -> bool:
        result = cluster.ask(starts)
        return len(result) == 3 * PARTITIONS and min(result) > 0

    wait_until(f"the beginning of {topic} is only remote", are_remote, WAIT_S)


def transactional(cluster: EngineCluster, name: str, **settings: Any) -> Producer:
    """A producer that has introduced itself."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    made = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0, **named})
    made.init_transactions(WAIT_S)
    return made


def send(producer: Producer, topic: str, *values: str) -> None:
    """The records have reached the brokers when this returns."""
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def read(cluster: EngineCluster, topic: str, *, committed: bool = True) -> list[str]:
    """Everything up to the end that this isolation shows."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "enable.partition.eof": True,
         "isolation.level": "read_committed" if committed else "read_uncommitted"}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[str] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"the end of {topic} was not reached"
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def read_when_ended(cluster: EngineCluster, topic: str, count: int) -> list[str]:
    """Returns the committed values, once there are enough: markers are written after the producer has been answered."""
    wait_until(f"{topic} has {count} committed records", lambda: len(read(cluster, topic)) >= count, WAIT_S)
    return read(cluster, topic)


def test_what_is_committed_is_seen_and_what_is_aborted_only_by_those_who_want_to(cluster: EngineCluster) -> None:
    topic = create(cluster, "commit-abort")
    producer = transactional(cluster, "commit-abort")
    for number in range(6):
        producer.begin_transaction()
        send(producer, topic, *(f"{number}-{part}" for part in "abc"))
        if number % 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
    kept = sorted(f"{number}-{part}" for number in (0, 2, 4) for part in "abc")
    assert read_when_ended(cluster, topic, len(kept)) == kept
    everything = sorted(f"{number}-{part}" for number in range(6) for part in "abc")
    assert read(cluster, topic, committed=False) == everything
    if is_tiered(cluster):
        wait_remote(cluster, topic)
        assert read(cluster, topic) == kept
        assert read(cluster, topic, committed=False) == everything


def test_records_of_an_open_transaction_hold_back_all_behind_them(cluster: EngineCluster) -> None:
    topic = create(cluster, "held-back")
    producer = transactional(cluster, "held-back")
    producer.begin_transaction()
    send(producer, topic, "open-a", "open-b", "open-c")
    plain = Producer({"bootstrap.servers": cluster.bootstrap})
    send(plain, topic, "plain-a", "plain-b", "plain-c")
    assert read(cluster, topic) == []
    assert len(read(cluster, topic, committed=False)) == 6
    producer.commit_transaction(WAIT_S)
    assert len(read_when_ended(cluster, topic, 6)) == 6


def test_a_second_producer_fences_the_first_and_its_open_transaction_is_aborted(cluster: EngineCluster) -> None:
    topic = create(cluster, "fencing")
    first = transactional(cluster, "fencing")
    first.begin_transaction()
    send(first, topic, "of the first", "of the first", "of the first")
    second = transactional(cluster, "fencing")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WAIT_S)
    assert refused.value.args[0].fatal()
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.begin_transaction()
    send(second, topic, "of the second")
    second.commit_transaction(WAIT_S)
    assert read_when_ended(cluster, topic, 1) == ["of the second"]


def test_a_transaction_that_is_left_open_is_aborted_after_its_time(cluster: EngineCluster) -> None:
    topic = create(cluster, "time-out")
    producer = transactional(cluster, "time-out", transaction_timeout_ms=1500, message_timeout_ms=1500)
    producer.begin_transaction()
    send(producer, topic, "late")
    plain = Producer({"bootstrap.servers": cluster.bootstrap})
    send(plain, topic, "plain")
    assert read_when_ended(cluster, topic, 1) == ["plain"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    assert read(cluster, topic) == ["plain"]


def test_consume_transform_produce_moves_offsets_and_records_together(cluster: EngineCluster) -> None:
    source, target = create(cluster, "source"), create(cluster, "target")
    plain = Producer({"bootstrap.servers": cluster.bootstrap})
    numbers = [str(number) for number in range(30)]
    send(plain, source, *numbers)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "transform", "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "isolation.level": "read_committed"}
    )  # fmt: skip
    consumer.subscribe([source])
    producer = transactional(cluster, "transform")
    done, tries = 0, 0
    while done < len(numbers):
        batch = [
            message for message in consumer.consume(min(7, len(numbers) - done), WAIT_S) if message.error() is None
        ]
        tries += 1
        producer.begin_transaction()
        for message in batch:
            producer.produce(target, f"did {(message.value() or b'').decode()}", partition=message.partition() or 0)
        assert producer.flush(WAIT_S) == 0
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        if tries % 2:
            producer.abort_transaction(WAIT_S)
            kept = consumer.committed(consumer.assignment(), WAIT_S)
            assert sum(max(topic_partition.offset, 0) for topic_partition in kept) == done
            for topic_partition in kept:
                consumer.seek(
                    TopicPartition(topic_partition.topic, topic_partition.partition, max(topic_partition.offset, 0))
                )
        else:
            producer.commit_transaction(WAIT_S)
            done += len(batch)
    committed = consumer.committed([TopicPartition(source, index) for index in range(PARTITIONS)], WAIT_S)
    assert [topic_partition.offset for topic_partition in committed] == [10, 10, 10]
    consumer.close()
    assert read_when_ended(cluster, target, len(numbers)) == sorted(f"did {number}" for number in numbers)
    assert len(read(cluster, target, committed=False)) > len(numbers), "nothing was aborted after it was written"


def test_offsets_enter_a_transaction_before_any_group_has_been_looked_for(tmp_path: Path) -> None:
    """Of a consumer that assigned its partitions itself. Every client asks this before it looks for the group."""
    with EngineCluster(tmp_path, brokers=1) as fresh:
        port = fresh.layout.ports[1]
        result = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["first"])
        introduced = m.InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=60_000)

        def producer() -> m.InitProducerIdResponse:
            ask(port, result, 4, m.FindCoordinatorResponse)
            return ask(port, introduced, 4, m.InitProducerIdResponse)

        wait_until("the producer has an id", lambda: producer().error_code == ErrorCode.NONE, WAIT_S)
        me = producer()
        request = m.AddOffsetsToTxnRequest(
            transactional_id="first", producer_id=me.producer_id, producer_epoch=me.producer_epoch, group_id="nobody"
        )
        assert ask(port, request, 3, m.AddOffsetsToTxnResponse).error_code == ErrorCode.NONE


def test_offsets_of_an_open_transaction_are_not_there_yet(cluster: EngineCluster) -> None:
    topic = create(cluster, "pending")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "pending", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = transactional(cluster, "pending")
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], metadata, WAIT_S)
    # It waits for offsets to be stable, and gives up in the end (KIP-447).
    with pytest.raises(KafkaException):
        consumer.committed([TopicPartition(topic, 0)], 2)
    producer.commit_transaction(WAIT_S)
    [topic_partition] = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
    assert topic_partition.offset == 5
    consumer.close()


def test_kafkas_own_producer_and_tool(cluster: EngineCluster) -> None:
    java = JavaTools(libraries(), cluster.bootstrap)
    topic = create(cluster, "java")
    said = java.run(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", "3000", "--throughput", "-1",
        "--record-size", "100", "--transactional-id", "java-perf", "--transaction-duration-ms", "100",
        "--producer-props", "acks=all",
    )  # fmt: skip
    assert "3000 records sent" in said
    assert len(read_when_ended(cluster, topic, 3000)) == 3000
    producer = transactional(cluster, "described", transaction_timeout_ms=600_000)
    producer.begin_transaction()
    send(producer, topic, "open")
    listed = [line.split() for line in java.run("kafka-transactions", "list").splitlines()]
    states = {line[0]: line[3] for line in listed[1:] if len(line) > 3}
    assert states["described"] == "Ongoing"
    assert states["java-perf"] == "CompleteCommit"
    described = java.run("kafka-transactions", "describe", "--transactional-id", "described")
    assert f"{topic}-0" in described
    assert "Ongoing" in described
    active = java.run("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0")
    [open_row] = [row for row in map(str.split, active.splitlines()[1:]) if row[-1] != "None"]
    start_offset = open_row[-1]
    producer_id = next(line[2] for line in listed if line[0] == "described")
    assert producer_id == open_row[0]
    java.run("kafka-transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", start_offset)
    wait_until("the tool's marker ends the transaction", lambda: "open" not in read(cluster, topic), WAIT_S)
    producer.abort_transaction(WAIT_S)


def test_kafkas_own_tool_reads_the_log_of_transactions(cluster: EngineCluster) -> None:
    java = JavaTools(libraries(), cluster.bootstrap)
    transactional(cluster, "dumped")
    index = coordinator_partition("dumped", int(SETTINGS["transaction.state.log.num.partitions"]))
    folder = Path(cluster.layout.log_dirs[1]) / f"{TRANSACTIONS_TOPIC}-{index}"
    text = java.run("kafka-dump-log", "--transaction-log-decoder", "--files", str(folder / f"{0:020}.log"))
    assert "transactionalId" in text
    assert "dumped" in text
    assert "Empty" in text or "transactionStatus" in text
