"""Above `max.connections`, of a broker and of a listener, connections wait or make room as with Apache Kafka 4.3.1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backend.engine.controller.image.metadata_image import BROKER_RESOURCE
from backend.protocol import messages as m
from tests.engine_cluster import EngineCluster, layout
from tests.interop import connection_limits as limits
from tests.ports import free_ports
from tests.wire import ask


def test_connections_wait_and_make_room_as_with_kafka(tmp_path: Path) -> None:
    # One more than Kafka was given: this broker writes its events to itself.
    total = str(int(limits.SETTINGS["max.connections"]) + 1)
    made = layout(tmp_path, brokers=1, tiering=False, settings={**limits.SETTINGS, "max.connections": total})
    (external,) = free_ports(1)
    listeners = f"PLAINTEXT://127.0.0.1:{made.ports[1]},EXTERNAL://127.0.0.1:{external}"
    addresses = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{made.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    with EngineCluster(tmp_path, made=replace(made, node_settings={1: addresses})) as cluster:
        cluster.wait_until("events are written", lambda: cluster.broker(1).server.events.published > 0)
        result = limits.run(cluster.layout.ports[1], external)
    assert result == [
        ("external 1 of 2", limits.ANSWERED),
        ("external 2 of 2", limits.ANSWERED),
        ("external 3 of 2", limits.WAITS),
        ("external 3, when 1 is gone", limits.ANSWERED),
        ("external 2", limits.ANSWERED),
        ("internal, 3 of 4", limits.ANSWERED),
        ("internal, 4 of 4", limits.ANSWERED),
        ("internal, 5 of 4", limits.ANSWERED),
        ("external 3, used longest ago", limits.CLOSED),
        ("external 2, used after it", limits.ANSWERED),
        ("external, 5 of 4", limits.WAITS),
        ("external, when an internal one is gone", limits.ANSWERED),
    ]


def set_limit(cluster: EngineCluster, limit: int) -> None:
    """Asked of the controller: the broker may have no connection left."""
    kind = m.IncrementalAlterConfigsRequest.Resources
    change = kind.Configs(name="max.connections", config_operation=0, value=str(limit))
    resource = kind(resource_type=BROKER_RESOURCE, resource_name="1", configs=[change])
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    answer = ask(cluster.layout.controller_port, request, 1, m.IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer


def test_a_limit_that_changes_lets_waiting_ones_in_or_closes_those_used_longest_ago(tmp_path: Path) -> None:
    """As a single broker of Apache Kafka 4.3.1 did: of 14 connections five were closed when 14 became 9."""
    # One is the broker's to itself. The limit is the controller's too, which needs a few.
    with EngineCluster(tmp_path, brokers=1, tiering=False, settings={"max.connections": "14"}) as cluster:
        cluster.wait_until("events are written", lambda: cluster.broker(1).server.events.published > 0)
        connections = [limits.Connection(cluster.layout.ports[1]) for _ in range(14)]
        first, last = connections[0], connections[-1]
        assert [connection.state() for connection in connections[:-1]] == [limits.ANSWERED] * 13
        assert last.state(expects_answer=False) == limits.WAITS
        set_limit(cluster, 15)
        assert last.state() == limits.ANSWERED
        set_limit(cluster, 10)
        assert first.state() == limits.CLOSED
        assert last.state() == limits.ANSWERED
        for connection in connections:
            connection.close()
