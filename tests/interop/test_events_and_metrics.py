"""The reports of a running broker about itself: records of `__ebbline_events`, and its Prometheus port."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from backend.engine.net.event_publisher import EVENTS_TOPIC
from backend.protocol import events
from tests.engine_cluster import EngineCluster
from tests.interop.test_failover import Load
from tests.interop.test_tiering_basic import CONFIG, fill, log_starts
from tests.ports import free_ports
from tests.waiting import wait_until

WAIT_S: Final = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    made = EngineCluster(tmp_path_factory.mktemp("events"), brokers=3, tiering=True)
    metrics_ports = made.layout.metrics_ports
    assert isinstance(metrics_ports, dict)
    metrics_ports.update(zip((1, 2, 3), free_ports(3), strict=True))
    with made as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("told", 3, 3, config=CONFIG)])["told"].result(30)
        fill(running.bootstrap, "told")
        running.wait_until(
            "something is remote only", lambda: all(start > 0 for start, _, _ in log_starts(running, "told")), 60
        )
        yield running


def read_events(bootstrap: str, enough: set[str]) -> list[events.EbblineEvent]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watcher", "enable.auto.commit": False})
    consumer.assign([TopicPartition(EVENTS_TOPIC, 0, 0)])
    received: list[events.EbblineEvent] = []
    deadline = time.monotonic() + WAIT_S
    while not enough <= {event.type for event in received} and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            event = events.decode(message.value())
            assert message.key() == f"{event.topic}-{event.partition}".encode()
            received.append(event)
    consumer.close()
    return received


def test_state_changes_arrive_as_events(cluster: EngineCluster) -> None:
    result = read_events(cluster.bootstrap, {"leader", "phase", "rlmm_ready", "copy"})
    assert {"leader", "phase", "rlmm_ready", "copy"} <= {event.type for event in result}
    assert {event.broker for event in result} == {1, 2, 3}
    phases = [event for event in result if isinstance(event, events.PhaseEvent) and event.topic == "told"]
    named = {"reason", "leader", "leader_epoch", "fetch_offset", "last_fetched_epoch"}
    for event in phases:
        assert 0 < event.since_ms <= event.at_ms
        assert (event.evidence or {}).keys() == named
    cuts = [(event.target_offset, (event.evidence or {})["reason"]) for event in phases if event.phase == "TRUNCATING"]
    assert cuts[0] == (0, "no leader epochs on disk: cut back to the high watermark 0")
    assert sum(cluster.broker(node).server.events.dropped for node in (1, 2, 3)) == 0


def scrape(cluster: EngineCluster, node: int) -> dict[tuple[str, str], float]:
    """(series, topic or request) → value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.layout.metrics_ports[node]}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    values: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["broker"] == str(node)
            values[(sample.name, sample.labels.get("topic") or sample.labels.get("request", ""))] = sample.value
    return values


def test_each_broker_serves_kafkas_metrics(cluster: EngineCluster) -> None:
    # A follower that got little time while the cluster started may have been out of sync for a moment.
    under = ("kafka_server_replicamanager_underreplicatedpartitions", "")
    wait_until("every replica is in sync", lambda: all(scrape(cluster, node)[under] == 0 for node in (1, 2, 3)))
    by_node = {node: scrape(cluster, node) for node in (1, 2, 3)}
    messages_in = ("kafka_server_brokertopicmetrics_messagesin_total", "told")
    assert sum(values.get(messages_in, 0) for values in by_node.values()) == 4000
    for values in by_node.values():
        assert values[("kafka_server_replicamanager_offlinereplicacount", "")] == 0
        assert values[("kafka_network_requestmetrics_requests_total", "Fetch")] > 0
        assert values[("kafka_server_brokertopicmetrics_replicationbytesin_total", "")] > 0
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).topics
    partitions = sum(len(topic.partitions) for topic in topics.values())
    assert partitions >= 3 + 1 + 5  # three topics: of the test, events, remote log metadata
    led = ("kafka_server_replicamanager_leadercount", "")
    # Partitions of internal topics may have been created a moment ago.
    wait_until("each partition has a leader", lambda: sum(scrape(cluster, n)[led] for n in (1, 2, 3)) == partitions)
    assert by_node[1][("kafka_controller_kafkacontroller_activebrokercount", "")] == 3
    copied = ("kafka_server_brokertopicmetrics_remotecopybytes_total", "told")
    assert sum(values.get(copied, 0) for values in by_node.values()) > 1 << 20


def test_a_stopped_replica_shows_as_under_replicated(cluster: EngineCluster) -> None:
    cluster.stop_broker(3)
    load = Load(cluster.bootstrap, "told")
    load.send(50)
    load.flush()
    values = scrape(cluster, 1)
    assert values[("kafka_server_replicamanager_underreplicatedpartitions", "")] > 0
    assert values[("kafka_controller_kafkacontroller_fencedbrokercount", "")] == 1
    cluster.start_broker(3)
