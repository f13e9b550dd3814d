"""The admin clients of kafka-python and confluent-kafka against three brokers: each call answers and is carried out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import ElectionType, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigSource, OffsetSpec
from confluent_kafka.admin import ConfigResource as ConfluentResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource, ConfigResourceType, UpdateFeatureType
from kafka.admin import NewPartitions as PythonNewPartitions
from kafka.admin import NewTopic as PythonNewTopic
from kafka.admin import OffsetSpec as PythonOffsetSpec

from backend.protocol.errors import ErrorCode
from tests.engine_cluster import CLUSTER_ID, EngineCluster
from tests.waiting import wait_until

WAIT_S: Final = 60.0
TOPIC: Final = ConfigResourceType.TOPIC


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("admin"), brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def python(cluster: EngineCluster) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([PythonNewTopic("py", 2, 2)])
    yield admin
    admin.close()


@pytest.fixture(scope="module")
def confluent(cluster: EngineCluster) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("cf", 2, 2)])["cf"].result(WAIT_S)
    return admin


# kafka-python


def test_kafka_python_describes_the_cluster_its_quorum_and_features(python: Any) -> None:
    described = python.describe_cluster()
    assert described["cluster_id"] == CLUSTER_ID
    assert {broker["broker_id"] for broker in described["brokers"]} == {1, 2, 3}
    assert not any(broker["is_fenced"] for broker in described["brokers"])
    (partition,) = python.describe_metadata_quorum()["topics"][0]["partitions"]
    assert (partition["leader_id"], len(partition["current_voters"]), len(partition["observers"])) == (1, 1, 2)
    features = python.describe_features()
    assert features["metadata.version"]["finalized"] == (30, 30)
    assert python.update_features({"group.version": (1, UpdateFeatureType.UPGRADE)}) == {"group.version": "OK"}
    assert python.describe_features()["group.version"]["finalized"] == (1, 1)
    resources = python.list_config_resources()
    assert resources["broker"] == resources["broker_logger"] == ["1", "2", "3"]
    assert "py" in resources["topic"]


def test_kafka_python_pages_through_topics_with_a_cursor(python: Any) -> None:
    first = python.describe_topic_partitions(["py"], response_partition_limit=1)
    assert [partition["partition_index"] for partition in first["topics"][0]["partitions"]] == [0]
    rest = python.describe_topic_partitions(["py"], response_partition_limit=5, cursor=first["next_cursor"])
    assert [partition["partition_index"] for partition in rest["topics"][0]["partitions"]][:1] == [1]
    assert rest["next_cursor"] is None


def test_kafka_python_changes_and_resets_settings(python: Any) -> None:
    def alter(**settings: str | None) -> str:
        values = {name.replace("_", "."): value for name, value in settings.items()}
        answer: str = python.alter_configs([ConfigResource(TOPIC, "py", values)])["topic"]["py"]
        return answer

    def modified() -> dict[str, str]:
        entries = python.describe_configs([ConfigResource(TOPIC, "py")])["topic"]["py"]
        return {name: entry["value"] for name, entry in entries.items()}

    # The controller has answered; the broker that is asked may not have heard of it yet, as in Kafka.
    both, remaining = {"retention.ms": "1000", "retention.bytes": "2000"}, {"retention.bytes": "2000"}
    assert alter(retention_ms="1000", retention_bytes="2000") == "OK"
    wait_until("the new settings are described", lambda: modified() == both)
    assert alter(retention_ms="x").startswith("[Error 40] InvalidConfigurationError: Invalid value x")
    reset = [ConfigResource(TOPIC, "py", {"retention.ms": None})]
    assert python.reset_configs(reset) == {"topic": {"py": "OK"}}
    wait_until("the reset setting is described no more", lambda: modified() == remaining)


def test_kafka_python_adds_and_moves_partitions(python: Any) -> None:
    def partitions() -> Any:
        return python.describe_topic_partitions(["py"])["topics"][0]["partitions"]

    python.create_partitions({"py": PythonNewPartitions(4)})
    # The broker that is asked may not have heard of them yet.
    wait_until("the new partitions are described", lambda: len(partitions()) == 4)
    replicas = partitions()[3]["replica_nodes"]
    (outside,) = {1, 2, 3} - set(replicas)
    target = [outside, replicas[0]]
    moved = PythonPartition("py", 3)
    assert python.alter_partition_reassignments({moved: target}) == {moved: None}
    wait_until("the replica has moved", lambda: not python.list_partition_reassignments())
    wait_until("every broker says so", lambda: partitions()[3]["replica_nodes"] == target)
    assert python.delete_records({PythonPartition("py", 0): 0})[PythonPartition("py", 0)]["low_watermark"] == 0
    requested = {PythonPartition("py", 0): PythonOffsetSpec.LATEST}
    assert python.list_partition_offsets(requested)[PythonPartition("py", 0)].offset == 0
    hosted = [
        topic["name"]
        for broker in python.describe_log_dirs()
        for log_dir in broker["log_dirs"]
        for topic in log_dir["topics"]
    ]
    assert hosted.count("py") == 3


# confluent-kafka


def test_confluent_kafka_describes_the_cluster_and_topics(confluent: AdminClient) -> None:
    described = confluent.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert described.cluster_id == CLUSTER_ID
    assert {node.id for node in described.nodes} == {1, 2, 3}
    assert described.authorized_operations
    topic = confluent.describe_topics(TopicCollection(["cf"]))["cf"].result(WAIT_S)
    assert [(partition.id, len(partition.replicas), len(partition.isr)) for partition in topic.partitions] == [
        (0, 2, 2),
        (1, 2, 2),
    ]


def test_confluent_kafka_changes_settings_in_both_ways(confluent: AdminClient) -> None:
    def settings() -> dict[str, str]:
        resource = ConfluentResource(ConfluentResource.Type.TOPIC, "cf")
        result = confluent.describe_configs([resource])[resource].result(WAIT_S)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in result.items() if entry.source == own}

    append = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    change = ConfluentResource(ConfluentResource.Type.TOPIC, "cf", incremental_configs=[append])
    confluent.incremental_alter_configs([change])[change].result(WAIT_S)
    wait_until("the broker that is asked has heard of it", lambda: settings() == {"cleanup.policy": "delete,compact"})
    whole = ConfluentResource(ConfluentResource.Type.TOPIC, "cf", set_config={"retention.ms": "5000"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        confluent.alter_configs([whole])[whole].result(WAIT_S)
    wait_until("what is not named is gone", lambda: settings() == {"retention.ms": "5000"})


def test_confluent_kafka_tells_a_brokers_settings_apart(confluent: AdminClient) -> None:
    resource = ConfluentResource(ConfluentResource.Type.BROKER, "2")
    result = confluent.describe_configs([resource])[resource].result(WAIT_S)
    assert (result["node.id"].value, result["node.id"].is_read_only, result["node.id"].is_sensitive) == (
        "2",
        True,
        False,
    )
    assert not result["log.retention.ms"].is_read_only


def test_confluent_kafka_adds_partitions_reads_offsets_and_elects(confluent: AdminClient) -> None:
    confluent.create_partitions([NewPartitions("cf", 3)])["cf"].result(WAIT_S)
    specs: Any = OffsetSpec
    requested = {TopicPartition("cf", 0): specs.latest(), TopicPartition("cf", 1): specs.earliest()}
    assert [offset.result(WAIT_S).offset for offset in confluent.list_offsets(requested).values()] == [0, 0]
    (deleted,) = confluent.delete_records([TopicPartition("cf", 0, 0)]).values()
    assert deleted.result(WAIT_S).low_watermark == 0
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [TopicPartition("cf", 0), TopicPartition("no", 0)])
    codes = {partition.topic: error.code() for partition, error in elected.result(WAIT_S).items()}
    assert codes == {"cf": ErrorCode.ELECTION_NOT_NEEDED, "no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    confluent.delete_topics(["cf"])["cf"].result(WAIT_S)
    # The broker that is asked may hear of it a moment later than the client.
    wait_until("the topic is gone", lambda: "cf" not in confluent.list_topics(timeout=WAIT_S).topics)
