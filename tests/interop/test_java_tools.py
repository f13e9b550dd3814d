"""Apache Kafka's own tools against three brokers: topics, console producer and consumer, groups, the log on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries, table

LINES: Final = [f"line {number}" for number in range(30)]
WAIT_S: Final = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    libraries()
    with EngineCluster(tmp_path_factory.mktemp("java"), brokers=3, voters=3) as running:
        yield running


@pytest.fixture(scope="module")
def tools(cluster: EngineCluster) -> JavaTools:
    return JavaTools(libraries(), cluster.bootstrap)


def fill(tools: JavaTools, topic: str) -> None:
    tools.run("kafka-topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3")
    # Keys spread the lines: without them the producer may fill one partition only.
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tools.run("kafka-console-producer", "--topic", topic, *keyed, given="".join(f"{line}:{line}\n" for line in LINES))


def read(tools: JavaTools, topic: str, group: str, count: int) -> list[str]:
    words = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(count)]
    return sorted(tools.run("kafka-console-consumer", *words, "--timeout-ms", "30000").splitlines())


def test_topics_are_created_described_and_deleted(tools: JavaTools) -> None:
    words = ["--create", "--topic", "made", "--partitions", "4", "--replication-factor", "3"]
    assert "Created topic made." in tools.run("kafka-topics", *words, "--config", "retention.ms=1000000")
    described = tools.run("kafka-topics", "--describe", "--topic", "made").splitlines()
    assert "PartitionCount: 4" in described[0]
    assert "ReplicationFactor: 3" in described[0]
    assert "retention.ms=1000000" in described[0]
    assert len(described) == 5
    assert "made" in tools.run("kafka-topics", "--list").split()
    assert "already exists" in tools.run("kafka-topics", *words, fails=True)
    tools.run("kafka-topics", "--delete", "--topic", "made")
    assert "made" not in tools.run("kafka-topics", "--list").split()


def test_the_console_consumer_reads_what_the_console_producer_wrote_and_resumes(tools: JavaTools) -> None:
    fill(tools, "lines")
    first = read(tools, "lines", "console", 20)
    rest = read(tools, "lines", "console", 10)
    assert sorted(first + rest) == sorted(LINES)
    offsets = [line.split(":") for line in tools.run("kafka-get-offsets", "--topic", "lines").split()]
    assert sum(int(offset) for _, _, offset in offsets) == len(LINES)


def test_groups_are_listed_described_reset_and_deleted(tools: JavaTools) -> None:
    fill(tools, "grouped")
    assert read(tools, "grouped", "readers", len(LINES)) == sorted(LINES)
    assert "readers" in tools.run("kafka-consumer-groups", "--list").split()
    rows = table(tools.run("kafka-consumer-groups", "--describe", "--group", "readers"))
    assert {row["PARTITION"] for row in rows} == {"0", "1", "2"}
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == len(LINES)
    assert {row["LAG"] for row in rows} == {"0"}
    states = table(tools.run("kafka-consumer-groups", "--describe", "--group", "readers", "--state"))
    assert "Empty" in states[0].values()
    reset = ["--reset-offsets", "--to-earliest", "--topic", "grouped", "--execute"]
    tools.run("kafka-consumer-groups", "--group", "readers", *reset)
    assert read(tools, "grouped", "readers", len(LINES)) == sorted(LINES)
    tools.run("kafka-consumer-groups", "--delete-offsets", "--group", "readers", "--topic", "grouped:1")
    rows = table(tools.run("kafka-consumer-groups", "--describe", "--group", "readers"))
    assert {row["PARTITION"] for row in rows} == {"0", "2"}
    tools.run("kafka-consumer-groups", "--delete", "--group", "readers")
    assert "readers" not in tools.run("kafka-consumer-groups", "--list").split()


def test_members_of_a_living_group_are_shown(tools: JavaTools) -> None:
    fill(tools, "living")
    words = ["--topic", "living", "--group", "alive", "--from-beginning"]
    with tools.running("kafka-console-consumer", *words) as consumer:
        assert consumer.stdout is not None
        assert sorted(consumer.stdout.readline().rstrip("\n") for _ in LINES) == sorted(LINES)
        deadline = time.monotonic() + WAIT_S
        while True:
            rows = table(tools.run("kafka-consumer-groups", "--describe", "--group", "alive", "--members", "--verbose"))
            if rows and rows[0].get("#PARTITIONS") == "3":
                break
            assert time.monotonic() < deadline, rows
        assert (rows[0]["CLIENT-ID"], rows[0]["HOST"]) == ("console-consumer", "/127.0.0.1")
        refused = tools.run("kafka-consumer-groups", "--delete", "--group", "alive", fails=False)
        assert "NonEmptyGroupException" in refused or "not empty" in refused


def test_kafka_reads_our_records_of_groups_and_offsets(tools: JavaTools, cluster: EngineCluster) -> None:
    fill(tools, "recorded")
    assert read(tools, "recorded", "recorder", len(LINES)) == sorted(LINES)
    index = coordinator_partition("recorder", 5)
    folder = cluster.folder / "brokers" / "1" / "log" / f"{OFFSETS_TOPIC}-{index}"
    logs = ",".join(str(log) for log in sorted(folder.glob("*.log")))
    dumped = tools.run("kafka-dump-log", "--files", logs, "--offsets-decoder", "--deep-iteration")
    mine = [line for line in dumped.splitlines() if "recorder" in line]
    offsets = [line for line in mine if '"topic":"recorded"' in line]
    assert {f'"partition":{number}' for number in range(3)} == {
        part for line in offsets for part in (f'"partition":{n}' for n in range(3)) if part in line
    }
    groups = [line for line in mine if '"protocolType":"consumer"' in line]
    assert '"generation":1' in groups[0]
    # The member left in order: the last record of the group has none.
    assert '"members":[]' in groups[-1]
    assert "isvalid: true" in dumped


def test_the_metadata_log_and_its_snapshot_are_dumped(cluster: EngineCluster, tools: JavaTools) -> None:
    tools.run("kafka-topics", "--create", "--topic", "dumped", "--partitions", "2", "--replication-factor", "3")
    controller = cluster.broker(1).services.controller
    assert controller is not None
    cluster.call(controller.snapshotter.write_snapshot())
    folder = cluster.folder / "brokers" / "1" / "log" / "__cluster_metadata-0"
    for pattern in ("*.log", "*.checkpoint"):
        [file] = folder.glob(pattern)
        dumped = tools.run(
            "kafka-dump-log", "--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(file)
        )
        assert '"type":"FEATURE_LEVEL_RECORD"' in dumped
        assert '"type":"REGISTER_BROKER_RECORD"' in dumped
        assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"dumped"' in dumped
        assert "isvalid: false" not in dumped
        assert "Could not read" not in dumped
    # The header, the voters and the footer.
    assert dumped.count("isControl: true") == 3


def test_the_quorum_is_described_as_kafka_describes_its_own(tools: JavaTools) -> None:
    status = dict(
        line.split(":", 1) for line in tools.run("kafka-metadata-quorum", "describe", "--status").splitlines() if line
    )
    assert int(status["LeaderId"]) in (1, 2, 3)
    assert int(status["HighWatermark"]) > 0
    assert all(str(voter) in status["CurrentVoters"] for voter in (1, 2, 3))
    rows = [
        [cell.strip() for cell in line.split("\t")]
        for line in tools.run("kafka-metadata-quorum", "describe", "--replication").splitlines()[1:]
    ]
    assert {row[0] for row in rows} == {"1", "2", "3"}
    assert sorted(row[6] for row in rows) == ["Follower", "Follower", "Leader"]
