"""The pipeline and the command line get past batches that hold no records, which logs of earlier versions may have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from crc32c import crc32c

from backend.cli.remote.topic_reader import METADATA_TOPIC, MetadataTopicReader
from backend.engine.remote.conformance.samples import segment
from backend.protocol.record_batches.compression import Compression
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.protocol.remote_log.metadata_serde import encode
from backend.tiering.ids import TopicPartition
from spark import reading, unreadable
from spark.reading import open_consumer, read
from spark.unreadable import readable_from
from tests.engine_cluster import EngineCluster
from tests.incidents.rigs.cluster_requests import limit_client
from tests.unit.engine.log.broken_batches import broken_batch

GOOD = encode(segment())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("unreadable"), brokers=1, voters=1) as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "STUCK_S", 1.0)
    monkeypatch.setattr(unreadable, "PROBE_S", 0.7)


def fill(cluster: EngineCluster, topic: str, *batches: int) -> int:
    """A topic of batches, with so many good records or, below zero, so many that are none; its end."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(30)
    now_ms = int(time.time() * 1000)

    async def append(batch: bytearray) -> None:
        (broker,) = cluster.cluster.brokers.values()
        replicas = broker.broker_services.replica_manager
        await replicas.append(TopicPartition(topic, 0), memoryview(batch), timeout_ms=9000)

    for count in batches:
        good = build_batch([RecordData(now_ms, None, GOOD)] * max(count, 1))
        cluster.call(append(good if count > 0 else broken_batch(count=-count, now_ms=now_ms)))
    return sum(map(abs, batches))


def read_rows(cluster: EngineCluster, topic: str, end: int) -> list[dict[str, Any]]:
    source = open_consumer(cluster.bootstrap, {})
    try:
        return [row for part in read(source, topic, [(0, 0, end)]) for row in part.to_pylist()]
    finally:
        source.consumer.close()


@pytest.mark.parametrize(
    ("name", "batches", "problems"),
    [
        ("one", (2, -1, 2), [2]),
        ("three", (1, -3, 1), [3]),
        ("last", (1, -2), [2]),
        ("two", (1, -1, 1, -1, 1), [1, 3]),
        # Longer than a search that grows its steps looks one by one.
        ("long", (1, -70, 26), [70]),
    ],
)
def test_the_pipeline_reads_what_stands_behind_and_sets_the_place_aside(
    cluster: EngineCluster, name: str, batches: tuple[int, ...], problems: list[int]
) -> None:
    end = fill(cluster, name, *batches)
    rows = read_rows(cluster, name, end)
    assert [row["metadata_offset"] for row in rows if row["problem"]] == problems
    assert "cannot be read" in next(row["problem"] for row in rows if row["problem"])
    assert len([row for row in rows if row["problem"] is None]) == sum(count for count in batches if count > 0)


def test_a_batch_that_cannot_be_decompressed_is_set_aside_too(cluster: EngineCluster) -> None:
    """Its checksum is right: librdkafka 2.16 ends the process for one that is wrong, whatever asks for the records."""
    end = fill(cluster, "packed", 1, 1, 1)
    (broker,) = cluster.cluster.brokers.values()
    (path,) = Path(cluster.layout.log_dirs[broker.node_id], "packed-0").glob("*.log")
    content = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second + 22] |= Compression.GZIP
    behind = second + 12 + int.from_bytes(content[second + 8 : second + 12], "big")
    content[second + 17 : second + 21] = crc32c(bytes(content[second + 21 : behind])).to_bytes(4, "big")
    path.write_bytes(content)
    rows = read_rows(cluster, "packed", end)
    assert [(row["metadata_offset"], row["problem"] is None) for row in rows] == [(0, True), (1, False), (2, True)]


def test_a_reader_that_a_quota_holds_up_sets_no_record_aside(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker gives nothing for seconds, and the end of the partition at once: as where a batch holds no records."""
    end = fill(cluster, "held", *([1] * 180))
    port = cluster.layout.ports[1]
    limit_client(port, "ebbline-pipeline-source", 2_000.0)
    looks: list[int | None] = []

    def look(*place: Any) -> int | None:
        looks.append(readable_from(*place))
        return looks[-1]

    monkeypatch.setattr(reading, "readable_from", look)
    try:
        rows = read_rows(cluster, "held", end)
    finally:
        limit_client(port, "ebbline-pipeline-source", None)
    assert [row["metadata_offset"] for row in rows] == list(range(end))
    assert [row["problem"] for row in rows] == [None] * end
    assert looks, "the quota held nobody up"
    assert set(looks) == {None}


def test_the_command_line_names_the_place_and_goes_on(cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.cli.remote.topic_reader.STUCK_S", 1.0)
    fill(cluster, METADATA_TOPIC, 1, -2, 1)
    with MetadataTopicReader(cluster.bootstrap) as reader:
        records = list(reader.records([0]))
    assert [(record.offset, record.is_unreadable) for record in records] == [(0, False), (1, True), (3, False)]
    assert "offsets 1 to 2" in records[1].problem
