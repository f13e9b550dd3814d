"""Above `max.connections`, of a broker and of a listener, connections wait or make room as with Apache Kafka 4.3.1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.engine_cluster import EngineCluster, layout
from tests.interop import connection_limits as limits
from tests.ports import free_ports


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
        cluster.wait_until("events are written", lambda: cluster.broker(1).part.events.published > 0)
        told = limits.run(cluster.layout.ports[1], external)
    assert told == [
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
