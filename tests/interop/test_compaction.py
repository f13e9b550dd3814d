"""Compacted topics on real brokers: a client writes and reads, Kafka's dump tool reads what is left on disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from backend.tiering.ids import TopicPartition
from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries
from tests.unit.engine.log.cleaner.test_log_cleaner import COMPACT, clean, end, put
from tests.unit.engine.log.logs import NOW_MS, open_test_log

TOPIC: Final = "accounts"
KEYS: Final = 50
ROUNDS: Final = 40
# Segments of 20 index entries.
CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "index.interval.bytes": "1",
    "segment.index.bytes": "240",
    "file.delete.delay.ms": "0",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    settings = {"log.cleaner.backoff.ms": "200", "offsets.topic.segment.bytes": "1048576"}
    with EngineCluster(tmp_path_factory.mktemp("compaction"), brokers=3, settings=settings) as running:
        yield running


def write(cluster: EngineCluster, topic: str) -> dict[bytes, bytes | None]:
    """Every key in every round, in small batches; what is last of each."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "batch.num.messages": 4}
    )
    last: dict[bytes, bytes | None] = {}
    for number in range(ROUNDS):
        for index in range(KEYS):
            key = f"account-{index}".encode()
            value = None if (number + index) % 7 == 0 else f"{number}".encode()
            producer.produce(topic, key=key, value=value)
            last[key] = value
        assert producer.flush(30) == 0
    return last


def read(cluster: EngineCluster, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    records: list[tuple[int, bytes, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return records
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert key is not None
            records.append((offset, key, message.value()))
    finally:
        consumer.close()


def cleaned(cluster: EngineCluster, node: int, topic: str) -> bool:
    """Whether all but the active segment of a replica have been compacted."""
    log = cluster.broker(node).services.log_manager.get(TopicPartition(topic, 0))
    assert log is not None
    return log.cleaning.checkpoint == log.active_segment.base_offset and len(log.segments) > 1


@pytest.fixture(scope="module")
def expected(cluster: EngineCluster) -> dict[bytes, bytes | None]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 3, config=CONFIG)])[TOPIC].result(30)
    last = write(cluster, TOPIC)
    # A small dirty rest behind the ratio is cleaned, too, once the ratio is 0.
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        TOPIC,
        incremental_configs=[
            ConfigEntry("min.cleanable.dirty.ratio", "0.0", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(30)
    for node in (1, 2, 3):
        cluster.wait_until(f"broker {node} has compacted", partial(cleaned, cluster, node, TOPIC), 60)
    return last


def test_a_client_reads_the_last_value_of_every_key_in_the_order_of_the_log(
    cluster: EngineCluster, expected: dict[bytes, bytes | None]
) -> None:
    rows = read(cluster, TOPIC)
    assert {key: value for _, key, value in rows} == expected
    offsets = [offset for offset, _, _ in rows]
    assert offsets == sorted(set(offsets))
    # The records that are left: one of each key and the active segment.
    assert KEYS <= len(rows) < KEYS * 4
    assert offsets[-1] == ROUNDS * KEYS - 1


def test_every_replica_serves_the_same_after_a_change_of_leaders(
    cluster: EngineCluster, expected: dict[bytes, bytes | None]
) -> None:
    for node in (1, 2):
        cluster.stop_broker(node)
        cluster.start_broker(node)
        assert {key: value for _, key, value in read(cluster, TOPIC)} == expected


def test_kafka_s_dump_tool_finds_every_compacted_segment_sane(
    cluster: EngineCluster, expected: dict[bytes, bytes | None]
) -> None:
    tools = JavaTools(libraries(), cluster.bootstrap)
    folder = cluster.folder / "brokers" / "3" / "log" / f"{TOPIC}-0"
    cluster.stop_broker(3)
    try:
        for suffix, words in ((".log", ("--deep-iteration",)), (".index", ()), (".timeindex", ())):
            files = ",".join(str(path) for path in sorted(folder.glob(f"*{suffix}")))
            dumped = tools.run("kafka-dump-log", "--files", files, *words, errors=True)
            for problem in ("Mismatches in", "isvalid: false", "Found timestamp mismatch", "Found out of order",
                            "non-consecutive", "Exception"):  # fmt: skip
                assert problem not in dumped, dumped[:2000]
        logs = ",".join(str(path) for path in sorted(folder.glob("*.log")))
        dumped = tools.run("kafka-dump-log", "--files", logs, "--deep-iteration", "--print-data-log")
        keys = {
            line.split(" key: ")[1].split(" payload:")[0] for line in dumped.splitlines() if " key: account" in line
        }
        assert keys == {key.decode() for key in expected}
    finally:
        cluster.start_broker(3)


def test_kafka_s_dump_tool_reads_what_is_left_of_transactions(cluster: EngineCluster, tmp_path: Path) -> None:
    tools = JavaTools(libraries(), cluster.bootstrap)
    log = open_test_log(tmp_path, COMPACT)
    transactional = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put(log, ("a", "1"), ("b", "1"), ("c", None), compression=4)
    put(log, ("a", "aborted"), base_sequence=0, **transactional)
    end(log, 7, commit=False)
    put(log, ("b", "2"), base_sequence=1, **transactional)
    end(log, 7, commit=True)
    put(log, ("b", "3"), producer_id=8, producer_epoch=0, base_sequence=0)
    put(log, ("b", "4"))
    log.roll()
    clean(log)
    log.close()
    folder = tmp_path / "orders-0"
    first = f"{folder}/{0:020d}"
    dumped = tools.run("kafka-dump-log", "--files", f"{first}.log", "--deep-iteration", "--print-data-log")
    assert dumped.count("isvalid: true") == 6
    assert "isvalid: false" not in dumped
    # The tombstone's batch tells from when on it may go; the last batch of producer 8 is kept without its record.
    assert f"deleteHorizonMs: OptionalLong[{NOW_MS + COMPACT.delete_retention_ms}]" in dumped
    empty = next(line for line in dumped.splitlines() if "producerId: 8" in line)
    assert "count: 0" in empty
    assert "lastSequence: 0" in empty
    assert [line.split("endTxnMarker: ")[1].split()[0] for line in dumped.splitlines() if "endTxnMarker" in line] == [
        "ABORT",
        "COMMIT",
    ]
    aborted = tools.run("kafka-dump-log", "--files", f"{first}.txnindex")
    assert "firstOffset: 3 lastOffset: 4" in aborted
    for suffix in (".index", ".timeindex"):
        assert "Mismatches" not in tools.run("kafka-dump-log", "--files", f"{first}{suffix}", errors=True)


def test_committed_offsets_are_compacted_and_still_known(cluster: EngineCluster) -> None:
    def commit(group: str, times: int) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
        for offset in range(1, times + 1):
            consumer.commit(
                offsets=[confluent_kafka.TopicPartition(TOPIC, 0, offset, metadata="x" * 4000)], asynchronous=False
            )
        consumer.close()

    commit("busy", 600)
    logs = [
        log
        for node in (1, 2, 3)
        for log in cluster.broker(node).services.log_manager.all_logs
        if log.topic_id_partition.topic == "__consumer_offsets"
    ]
    cluster.wait_until("offsets are compacted", lambda: any((log.cleaning.checkpoint or 0) > 100 for log in logs), 60)
    assert any(log.segments[0].size_bytes < 100_000 for log in logs if (log.cleaning.checkpoint or 0) > 100)
    for node in (1, 2, 3):
        cluster.stop_broker(node)
        cluster.start_broker(node)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "busy"})
    try:
        committed = consumer.committed([confluent_kafka.TopicPartition(TOPIC, 0)], timeout=30)
        assert committed[0].offset == 600
    finally:
        consumer.close()


def test_the_gauges_of_the_cleaner_have_kafka_s_names(cluster: EngineCluster) -> None:
    gauges = {gauge.name: gauge for gauge in cluster.broker(1).services.metrics.gauges}
    names = ("LogCleaner,name=DeadThreadCount", "LogCleaner,name=cleaner-recopy-percent",
             "LogCleaner,name=max-buffer-utilization-percent", "LogCleaner,name=max-clean-time-secs",
             "LogCleaner,name=max-compaction-delay-secs", "LogCleanerManager,name=max-dirty-percent",
             "LogCleanerManager,name=time-since-last-run-ms", "LogCleanerManager,name=uncleanable-bytes",
             "LogCleanerManager,name=uncleanable-partitions-count")  # fmt: skip
    for name in names:
        kind, _, own = name.partition(",name=")
        exported = f"kafka_log_{kind}_{own}".lower().replace("-", "_")
        reading = gauges[exported].read()
        values = [reading] if isinstance(reading, float) else [value for _, value in reading]
        assert values
        assert all(value >= 0 for value in values)
    assert gauges["kafka_log_logcleaner_deadthreadcount"].read() == 0.0
