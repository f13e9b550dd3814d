"""Apache Kafka's own admin tools against three brokers; what they print here a real Kafka 4.3.1 prints for the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tests.engine_cluster import CLUSTER_ID, EngineCluster
from tests.interop.java_tools import JavaTools, libraries
from tests.waiting import wait_until

TOPIC: Final = "tended"
RECORDS: Final = 2000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    libraries()
    with EngineCluster(tmp_path_factory.mktemp("java-admin"), brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def tools(cluster: EngineCluster) -> JavaTools:
    made = JavaTools(libraries(), cluster.bootstrap)
    made.run("kafka-topics", "--create", "--topic", TOPIC, "--replica-assignment", "1:2,2:3,3:1")
    return made


def configs(tools: JavaTools, *words: str, fails: bool = False) -> str:
    return tools.run("kafka-configs", *words, fails=fails)


def plan(path: Path, *moves: tuple[int, list[int]]) -> str:
    partitions = [{"topic": TOPIC, "partition": partition, "replicas": replicas} for partition, replicas in moves]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


# Clusters and their parts


def test_what_brokers_serve_is_understood(tools: JavaTools) -> None:
    text = tools.run("kafka-broker-api-versions")
    assert len(re.findall(r"^\S+ \(id: [123] rack: null isFenced: false\) -> \($", text, re.MULTILINE)) == 3
    assert "Produce(0): 0 to 13 [usable: 13]" in text
    assert "DescribeDelegationToken(41): UNSUPPORTED" in text


def test_the_cluster_and_its_quorum_are_described(tools: JavaTools) -> None:
    assert tools.run("kafka-cluster", "cluster-id").strip() == f"Cluster ID: {CLUSTER_ID}"
    status = tools.run("kafka-metadata-quorum", "describe", "--status")
    assert re.search(r"^LeaderId:\s+1$", status, re.MULTILINE)
    assert re.search(r"^MaxFollowerLag:\s+0$", status, re.MULTILINE)
    rows = [line.split() for line in tools.run("kafka-metadata-quorum", "describe", "--replication").splitlines()[1:]]
    assert {(row[0], row[-1]) for row in rows if row} == {("1", "Leader"), ("2", "Observer"), ("3", "Observer")}


def test_voters_that_stand_in_the_settings_are_neither_added_nor_removed(tools: JavaTools, tmp_path: Path) -> None:
    """Apache Kafka with `controller.quorum.voters` prints the same."""
    gone = ["--controller-id", "7", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAABw"]
    refused = tools.run("kafka-metadata-quorum", "remove-controller", *gone, fails=True)
    assert "Cluster doesn't support removing voter because the kraft.version feature is 0" in refused
    (tmp_path / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=7\ndirectory.id=AAAAAAAAAAAAAAAAAAAABw\n"
    )
    settings = {
        "process.roles": "controller",
        "node.id": "7",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9",
        "log.dirs": str(tmp_path),
    }
    config = tmp_path / "controller.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    refused = tools.run("kafka-metadata-quorum", "--command-config", str(config), "add-controller", fails=True)
    assert "Cluster doesn't support adding voter because the kraft.version feature is 0" in refused
    refused = tools.run("kafka-features", "upgrade", "--feature", "kraft.version=1", fails=True)
    assert "Local controller 1 does not support this feature." in refused


def test_endpoints_tell_a_fenced_broker_from_the_others(tools: JavaTools, cluster: EngineCluster) -> None:
    cluster.stop_broker(3)
    try:
        words = ["list-endpoints", "--include-fenced-brokers"]
        rows = [line.split() for line in tools.run("kafka-cluster", *words).splitlines()[1:] if line.strip()]
        assert {row[0]: row[4] for row in rows} == {"1": "unfenced", "2": "unfenced", "3": "fenced"}
        alive = [line.split()[0] for line in tools.run("kafka-cluster", "list-endpoints").splitlines()[1:] if line]
        assert alive == ["1", "2"]
    finally:
        cluster.start_broker(3)


def test_features_are_described_and_a_downgrade_of_the_metadata_is_refused(tools: JavaTools) -> None:
    text = tools.run("kafka-features", "describe")
    row = next(line.split() for line in text.splitlines() if "metadata.version" in line)
    assert (row[5], row[7]) == ("4.3-IV0", "4.3-IV0")
    refused = tools.run("kafka-features", "downgrade", "--feature", "metadata.version=29", fails=True)
    assert "Unsupported metadata.version downgrade from 30 to 29." in refused
    refused = tools.run("kafka-features", "upgrade", "--feature", "group.version=5", fails=True)
    assert "Invalid update version 5 for feature group.version. Local controller 1 only supports versions" in refused


# Settings


def test_topics_and_brokers_settings_are_changed_and_described(tools: JavaTools) -> None:
    topic = ["--entity-type", "topics", "--entity-name", TOPIC]
    everybody = ["--entity-type", "brokers", "--entity-default"]
    configs(tools, "--alter", *topic, "--add-config", "retention.ms=100000")
    configs(tools, "--alter", *everybody, "--add-config", "log.retention.ms=200000")
    assert (
        "retention.ms=100000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=100000,"
        " DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=200000, DEFAULT_CONFIG:log.retention.hours=168}"
    ) in configs(tools, "--describe", *topic)
    refused = configs(tools, "--alter", *topic, "--add-config", "retention.ms=-5", fails=True)
    assert "Invalid value -5 for configuration retention.ms: Value must be at least -1" in refused
    own = ["--entity-type", "brokers", "--entity-name", "1"]
    refused = configs(tools, "--alter", *own, "--add-config", "node.id=5", fails=True)
    assert "Cannot update these configs dynamically: [node.id]" in refused
    configs(tools, "--alter", *topic, "--delete-config", "retention.ms")
    assert configs(tools, "--describe", *topic).strip() == f"Dynamic configs for topic {TOPIC} are:"
    configs(tools, "--alter", *everybody, "--delete-config", "log.retention.ms")


def test_quotas_are_changed_and_described(tools: JavaTools) -> None:
    both = ["--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app"]
    rates = "producer_byte_rate=1024,request_percentage=50"
    configs(tools, "--alter", *both, "--add-config", rates)
    result = configs(tools, "--describe", "--entity-type", "users", "--entity-type", "clients")
    expected = "Quota configs for user-principal 'alice', client-id 'app' are"
    assert result.strip() == f"{expected} producer_byte_rate=1024.0, request_percentage=50.0"
    configs(tools, "--alter", *both, "--delete-config", "producer_byte_rate")
    address = ["--entity-type", "ips", "--entity-name", "127.0.0.9"]
    configs(tools, "--alter", *address, "--add-config", "connection_creation_rate=5")
    result = configs(tools, "--describe", *address)
    assert result.strip() == "Quota configs for ip '127.0.0.9' are connection_creation_rate=5.0"
    refused = configs(tools, "--alter", *address, "--add-config", "connection_creation_rate=-1", fails=True)
    assert "Quota connection_creation_rate must be greater than 0" in refused


def test_log_levels_of_a_broker_are_changed_and_described(tools: JavaTools) -> None:
    logger = "backend.engine.apis.produce.produce_rows"
    broker = ["--entity-type", "broker-loggers", "--entity-name", "2"]
    assert f"{logger}=DEBUG" not in configs(tools, "--describe", *broker)
    configs(tools, "--alter", *broker, "--add-config", f"{logger}=DEBUG")
    assert f"  {logger}=DEBUG sensitive=false synonyms={{}}" in configs(tools, "--describe", *broker)
    configs(tools, "--alter", *broker, "--delete-config", logger)
    assert f"{logger}=DEBUG" not in configs(tools, "--describe", *broker)


# Data


def test_performance_and_verifiable_tools_run_and_offsets_add_up(tools: JavaTools, tmp_path: Path) -> None:
    size = ["--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
    assert f"{RECORDS} records sent" in tools.run("kafka-producer-perf-test", "--topic", TOPIC, *size)
    lines = tools.run("kafka-verifiable-producer", "--topic", TOPIC, "--max-messages", "50").splitlines()
    names = [json.loads(line)["name"] for line in lines]
    assert names.count("producer_send_success") == 50
    count = RECORDS + 50
    output = tools.run("kafka-consumer-perf-test", "--topic", TOPIC, "--num-records", str(count))
    assert int(output.splitlines()[1].split(", ")[4]) >= count
    words = ["--topic", TOPIC, "--group-id", "verifiable", "--max-messages", "50"]
    events = [json.loads(line) for line in tools.run("kafka-verifiable-consumer", *words).splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= 50
    assert any(event.get("success") for event in events if event["name"] == "offsets_committed")
    ends = [int(line.split(":")[2]) for line in tools.run("kafka-get-offsets", "--topic", TOPIC).split()]
    assert sum(ends) == count
    partition = ends.index(max(ends))
    path = tmp_path / "delete.json"
    path.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": partition, "offset": 5}], "version": 1}))
    deleted = tools.run("kafka-delete-records", "--offset-json-file", str(path))
    assert f"partition: {TOPIC}-{partition}\tlow_watermark: 5" in deleted
    starts = tools.run("kafka-get-offsets", "--topic", TOPIC, "--time", "earliest").split()
    assert starts[partition] == f"{TOPIC}:{partition}:5"
    text = tools.run("kafka-log-dirs", "--describe", "--topic-list", TOPIC).splitlines()[-1]
    dirs = [log_dir for broker in json.loads(text)["brokers"] for log_dir in broker["logDirs"]]
    assert sum(len(log_dir["partitions"]) for log_dir in dirs) == 6
    assert all(log_dir["error"] is None for log_dir in dirs)


# Leaders and replicas


def leader(cluster: EngineCluster) -> int:
    """Of partition 1, whose preferred replica is broker 2."""

    def leader_of_image() -> int:
        partition = cluster.broker(1).services.metadata.image.partition(TOPIC, 1)
        assert partition is not None
        return partition.leader

    return cluster.ask(leader_of_image)


def test_leadership_goes_back_to_the_preferred_replica(tools: JavaTools, cluster: EngineCluster) -> None:
    cluster.stop_broker(2)
    try:
        assert leader(cluster) == 3
    finally:
        cluster.start_broker(2)

    def in_sync() -> bool:
        partition = cluster.broker(1).services.metadata.image.partition(TOPIC, 1)
        return partition is not None and 2 in partition.isr

    wait_until("broker 2 is in sync", lambda: cluster.ask(in_sync))
    election = ["--election-type", "preferred", "--topic", TOPIC, "--partition", "1"]
    said = tools.run("kafka-leader-election", *election)
    assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-1" in said
    assert leader(cluster) == 2
    again = tools.run("kafka-leader-election", *election)
    assert f"Valid replica already elected for partitions {TOPIC}-1" in again
    unclean = ["--election-type", "unclean", "--topic", TOPIC, "--partition", "1"]
    assert "Valid replica already elected" in tools.run("kafka-leader-election", *unclean)


def test_a_throttled_reassignment_is_executed_cancelled_and_verified(
    tools: JavaTools, cluster: EngineCluster, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    # Into both, 6 MB each: a follower's quota lets one fetch of 1 MB through in each of its windows of 11 s, and four
    # tools look meanwhile.
    for number in range(12_000):
        producer.produce(TOPIC, b"." * 1000, partition=number % 2)
    assert producer.flush(60) == 0
    there = ["--reassignment-json-file", plan(tmp_path / "there.json", (0, [2, 3]), (1, [3, 1]))]

    def resource(kind: int, name: str) -> dict[str, Any]:
        return cluster.ask(lambda: dict(cluster.broker(1).services.metadata.image.config(kind, name)))

    started = tools.run("kafka-reassign-partitions", *there, "--execute", "--throttle", "1000")
    assert "The inter-broker throttle limit was set to 1000 B/s" in started
    assert f"Successfully started partition reassignments for {TOPIC}-0,{TOPIC}-1" in started
    assert resource(4, "3")["follower.replication.throttled.rate"] == "1000"
    assert set(resource(2, TOPIC)["leader.replication.throttled.replicas"].split(",")) == {"0:1", "0:2", "1:2", "1:3"}
    # It is still under way.
    listed = tools.run("kafka-reassign-partitions", "--list")
    assert f"{TOPIC}-0: replicas: 2,3,1. adding: 3. removing: 1." in listed
    verified = tools.run("kafka-reassign-partitions", *there, "--verify", "--preserve-throttles")
    assert f"Reassignment of partition {TOPIC}-0 is still in progress." in verified
    cancelled = tools.run("kafka-reassign-partitions", *there, "--cancel")
    assert f"Successfully cancelled partition reassignments for: {TOPIC}-0,{TOPIC}-1" in cancelled
    assert resource(2, TOPIC) == resource(4, "3") == {}
    assert "No partition reassignments found." in tools.run("kafka-reassign-partitions", "--list")
    tools.run("kafka-reassign-partitions", *there, "--execute", "--throttle", "100000000")

    def done() -> bool:
        output = tools.run("kafka-reassign-partitions", *there, "--verify")
        return all(f"Reassignment of partition {TOPIC}-{index} is completed." in output for index in (0, 1))

    wait_until("the replicas have moved", done)
    assert resource(2, TOPIC) == resource(4, "3") == {}
