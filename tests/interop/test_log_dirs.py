"""Several log directories: replicas moved between them by Kafka's tool, and the reports of a damaged one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from backend.tiering.ids import TopicPartition
from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries
from tests.waiting import wait_until

PARTITIONS: Final = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dirs")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[EngineCluster]:
    with EngineCluster(folder, brokers=1, settings={"log.dirs": f"{folder}/a,{folder}/b"}) as running:
        yield running


@pytest.fixture(scope="module")
def tools(cluster: EngineCluster) -> JavaTools:
    return JavaTools(libraries(), cluster.bootstrap)


def described(tools: JavaTools, topic: str) -> dict[str, list[dict[str, Any]]]:
    """Directory → rows of the topic's partitions."""
    text = tools.run("kafka-log-dirs", "--describe", "--topic-list", topic)
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    (broker,) = json.loads(line)["brokers"]
    return {entry["logDir"]: entry["partitions"] for entry in broker["logDirs"]}


def test_kafka_s_tool_moves_replicas_while_a_producer_writes(
    cluster: EngineCluster, tools: JavaTools, folder: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moved", PARTITIONS, 1)])["moved"].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    written = 0
    stop = threading.Event()
    failures: list[str] = []

    def write() -> None:
        nonlocal written
        while not stop.wait(0.002):
            producer.produce(
                "moved", b"%d" % written, partition=written % PARTITIONS,
                on_delivery=lambda error, _: failures.append(str(error)) if error is not None else None,
            )  # fmt: skip
            written += 1
            producer.poll(0)

    before = described(tools, "moved")
    assert {path: len(rows) for path, rows in before.items()} == {f"{folder}/a": 2, f"{folder}/b": 2}
    plan = {
        "version": 1,
        "partitions": [
            {"topic": "moved", "partition": number, "replicas": [1], "log_dirs": [f"{folder}/b"]}
            for number in range(PARTITIONS)
        ],
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        words = ["--reassignment-json-file", str(folder / "plan.json")]
        assert "Successfully started" in tools.run("kafka-reassign-partitions", *words, "--execute")
        wait_until("all replicas are in one directory", lambda: not described(tools, "moved")[f"{folder}/a"], 60)
        verified = tools.run("kafka-reassign-partitions", *words, "--verify")
        assert verified.count("is completed") == PARTITIONS
        assert verified.count("completed successfully") == PARTITIONS, verified
    finally:
        stop.set()
        writer.join()
    assert producer.flush(30) == 0
    assert not failures
    rows = described(tools, "moved")[f"{folder}/b"]
    assert sorted(row["partition"] for row in rows) == [f"moved-{number}" for number in range(PARTITIONS)]
    assert not any(row["isFuture"] for row in rows)
    cluster.stop_broker(1)
    cluster.start_broker(1)
    assert sorted(values(cluster, "moved")) == sorted(range(written))


def values(cluster: EngineCluster, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, n, confluent_kafka.OFFSET_BEGINNING) for n in range(PARTITIONS)]
    )
    numbers: list[int] = []
    ended = 0
    try:
        while ended < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                ended += 1
            else:
                numbers.append(int(message.value() or b""))
        return numbers
    finally:
        consumer.close()


def test_an_offline_partition_is_listed_with_what_it_takes_of_the_disk(
    cluster: EngineCluster, tools: JavaTools
) -> None:
    manager = cluster.broker(1).services.log_manager
    log = manager.get(TopicPartition("moved", 0))
    assert log is not None
    size = log.size_bytes
    assert size > 0
    cluster.ask(lambda: log.mark_offline("made so by a test"))
    cluster.wait_until("it is offline", lambda: manager.get(TopicPartition("moved", 0)) is None)
    rows = [row for rows in described(tools, "moved").values() for row in rows]
    assert len(rows) == PARTITIONS
    (row,) = [row for row in rows if row["partition"] == "moved-0"]
    assert (row["size"], row["offsetLag"]) == (size, -1)


def test_an_unknown_directory_is_refused(cluster: EngineCluster, tools: JavaTools, folder: Path) -> None:
    plan = {
        "version": 1,
        "partitions": [{"topic": "moved", "partition": 1, "replicas": [1], "log_dirs": [f"{folder}/none"]}],
    }
    (folder / "wrong.json").write_text(json.dumps(plan))
    said = tools.run(
        "kafka-reassign-partitions", "--reassignment-json-file", str(folder / "wrong.json"), "--execute", fails=True
    )
    assert "LogDirNotFound" in said or "log directory was not found" in said
