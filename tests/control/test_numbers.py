"""Every number that the API shows is the one that another client, or the broker's own log, gives of a quiet cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import ConfigResource
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from backend.tiering.ids import TopicPartition
from tests.control.raw_list_offsets import REPLICA_ID_DEBUG, list_offset
from tests.control.site import FLAG, TIERED, ControlSite

TOPIC = "orders"
PLAIN = "plain"


@pytest.fixture(scope="module", autouse=True)
def filled(site: ControlSite) -> None:
    site.create_topic(TOPIC, config=TIERED)
    site.create_topic(PLAIN, partitions=1)
    site.produce(TOPIC, 2_000)
    site.produce(PLAIN, 50)
    site.wait_until_quiet(TOPIC, PLAIN)


@pytest.fixture(scope="module")
def kafka_python(site: ControlSite) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=site.cluster.bootstrap)
    yield client
    client.close()


@pytest.mark.parametrize("topic", [TOPIC, PLAIN])
@pytest.mark.parametrize(
    ("name", "timestamp"),
    [
        ("log_start_offset", -2),
        ("local_log_start_offset", -4),
        ("latest_tiered_offset", -5),
        ("high_watermark", -1),
    ],
)
def test_a_leaders_offsets_are_those_that_kafka_python_gets(
    site: ControlSite, kafka_python: KafkaAdminClient, topic: str, name: str, timestamp: int
) -> None:
    rows = site.partitions(topic)
    requested = {KafkaPartition(topic, row["partition"]): timestamp for row in rows}
    answers = kafka_python.list_partition_offsets(requested)
    assert {row["partition"]: row[name] for row in rows} == {tp.partition: a.offset for tp, a in answers.items()}


@pytest.mark.parametrize("topic", [TOPIC, PLAIN])
def test_the_earliest_pending_upload_is_what_the_leader_answers(site: ControlSite, topic: str) -> None:
    for row in site.partitions(topic):
        address = site.cluster.bootstrap_of(row["leader"])
        error, offset, _ = list_offset(address, topic, row["partition"], -6, replica_id=REPLICA_ID_DEBUG)
        assert (error, offset) == (0, row["earliest_pending_upload_offset"])
        assert row["pending_reason"] == (None if topic == TOPIC else "not_tiered")


@pytest.mark.parametrize(
    ("name", "timestamp"),
    [("log_start_offset", -2), ("local_log_start_offset", -4), ("latest_tiered_offset", -5), ("log_end_offset", -1)],
)
def test_a_replicas_offsets_are_what_its_broker_answers(site: ControlSite, name: str, timestamp: int) -> None:
    for row in site.partitions(TOPIC):
        for replica in site.get(f"/v1/partitions/{TOPIC}/{row['partition']}")["replicas"]:
            address = site.cluster.bootstrap_of(replica["broker_id"])
            answer = list_offset(address, TOPIC, row["partition"], timestamp, replica_id=REPLICA_ID_DEBUG)
            assert answer[:2] == (0, replica[name])


def test_the_layout_is_worth_comparing(site: ControlSite) -> None:
    for row in site.partitions(TOPIC):
        assert 0 == row["log_start_offset"] < row["local_log_start_offset"] <= row["latest_tiered_offset"]
        assert row["latest_tiered_offset"] + 1 == row["earliest_pending_upload_offset"] < row["log_end_offset"]


def test_watermarks_are_those_that_confluent_kafka_gets(site: ControlSite) -> None:
    consumer = Consumer({"bootstrap.servers": site.cluster.bootstrap, "group.id": "watermarks", "log_level": 0})
    try:
        for topic in (TOPIC, PLAIN):
            for row in site.partitions(topic):
                low, high = consumer.get_watermark_offsets(ConfluentPartition(topic, row["partition"]), timeout=10)
                assert (row["log_start_offset"], row["high_watermark"]) == (low, high)
    finally:
        consumer.close()


def test_assignments_are_those_that_kafka_python_gets(site: ControlSite, kafka_python: KafkaAdminClient) -> None:
    (described,) = kafka_python.describe_topics([TOPIC])
    partitions = {p["partition_index"]: p for p in described["partitions"]}
    for row in site.partitions(TOPIC):
        other = partitions[row["partition"]]
        assert (row["leader"], row["leader_epoch"]) == (other["leader_id"], other["leader_epoch"])
        assert (row["replicas"], set(row["isr"])) == (other["replica_nodes"], set(other["isr_nodes"]))


def test_local_bytes_are_those_of_the_log_directories(site: ControlSite, kafka_python: KafkaAdminClient) -> None:
    sizes: dict[tuple[int, int], int] = {}
    for broker in kafka_python.describe_log_dirs():
        for directory in broker["log_dirs"]:
            for topic in directory["topics"]:
                if topic["name"] == TOPIC:
                    for p in topic["partitions"]:
                        sizes[broker["broker"], p["partition_index"]] = p["partition_size"]
    shown = {
        (replica["broker_id"], row["partition"]): replica["local_log_bytes"]
        for row in site.partitions(TOPIC)
        for replica in site.get(f"/v1/partitions/{TOPIC}/{row['partition']}")["replicas"]
    }
    assert shown == sizes
    assert len(shown) == 6


def test_each_replica_is_shown_as_its_own_broker_has_it(site: ControlSite) -> None:
    for row in site.partitions(TOPIC):
        replicas = site.get(f"/v1/partitions/{TOPIC}/{row['partition']}")["replicas"]
        assert {replica["broker_id"] for replica in replicas} == {1, 2, 3}
        for replica in replicas:
            log = _log(site, replica["broker_id"], row["partition"])
            names = ("log_start_offset", "local_log_start_offset", "latest_tiered_offset", "log_end_offset")
            assert [replica[name] for name in names] == log["offsets"]
            assert replica["leader_epochs"] == log["epochs"]


def _log(site: ControlSite, broker_id: int, partition: int) -> dict[str, Any]:
    def read_numbers() -> dict[str, Any]:
        log = site.cluster.broker(broker_id).services.log_manager.get(TopicPartition(TOPIC, partition))
        assert log is not None
        return {
            "offsets": [
                log.log_start_offset,
                log.local_log_start_offset,
                log.highest_remote_offset,
                log.log_end_offset,
            ],
            "epochs": [[entry[0], entry[1]] for entry in log.leader_epochs.entries],
        }

    return site.cluster.ask(read_numbers)


def test_settings_and_their_sources_are_those_that_confluent_kafka_gets(site: ControlSite) -> None:
    for broker_id in (1, 2, 3):
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
        described = site.admin.describe_configs([resource])[resource].result(10)
        theirs = {name: (entry.value, entry.source) for name, entry in described.items()}
        ours = site.get(f"/v1/config?resource={resource.name}")["items"]
        sources = {"DYNAMIC_TOPIC_CONFIG": 1, "DYNAMIC_BROKER_CONFIG": 2, "DYNAMIC_DEFAULT_BROKER_CONFIG": 3}
        sources |= {"STATIC_BROKER_CONFIG": 4, "DEFAULT_CONFIG": 5}
        assert {row["name"]: (row["value"], sources[row["source"]]) for row in ours} == theirs
        assert FLAG in theirs


def test_brokers_and_controller_are_those_that_confluent_kafka_gets(site: ControlSite) -> None:
    described = site.admin.describe_cluster().result(10)
    shown = site.get("/v1/brokers")["items"]
    assert {(b["broker_id"], b["host"], b["port"]) for b in shown} == {(n.id, n.host, n.port) for n in described.nodes}
    assert site.get("/v1/cluster")["cluster_id"] == described.cluster_id


def test_a_new_leader_is_shown_with_its_new_epoch_and_the_whole_chain(site: ControlSite) -> None:
    # Broker 1 is the only voter: without it nobody elects a leader.
    before = next(row for row in site.partitions(TOPIC) if row["leader"] != 1)
    number = before["partition"]
    site.cluster.stop_broker(before["leader"])
    elsewhere = {broker["broker_id"] for broker in site.get("/v1/brokers")["items"]} - {before["leader"]}
    site.wait_until("another broker leads", lambda: site.partitions(TOPIC)[number]["leader"] in elsewhere)
    site.produce(TOPIC, 100)
    site.cluster.start_broker(before["leader"])
    site.wait_until("all are in sync", lambda: len(site.partitions(TOPIC)[number]["isr"]) == 3)
    site.wait_until_quiet(TOPIC)
    row = site.partitions(TOPIC)[number]
    assert row["leader_epoch"] > before["leader_epoch"]
    for replica in site.get(f"/v1/partitions/{TOPIC}/{number}")["replicas"]:
        log = _log(site, replica["broker_id"], number)
        assert len(log["epochs"]) >= 2
        assert replica["leader_epochs"] == log["epochs"], replica
