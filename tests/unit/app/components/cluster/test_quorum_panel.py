"""The quorum's panel: who leads, who is silent, and a cause wherever something is not known."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from app.components.cluster import quorum_panel
from backend.control.gateway.requests.quorum_requests import QuorumInfo, QuorumReplicaState
from backend.control.observer.watches.quorum_watch import (
    AGE_GAUGE,
    NONE_WRITTEN,
    NOT_BY_PROTOCOL,
    SIZE_GAUGE,
    quorum_facts,
    snapshot_facts,
)

NOW_MS = 1_700_000_000_000


def facts(*replicas: QuorumReplicaState, snapshot: dict[str, Any] | None = None) -> dict[str, Any]:
    return quorum_facts(QuorumInfo(1, 7, 990, replicas), NOW_MS) | {"snapshot": snapshot, "cause": None}


def replica(node_id: int, end: int = 1000, *, role: str = "voter", silent_ms: int = 100) -> QuorumReplicaState:
    return QuorumReplicaState(node_id, role, end, NOW_MS - silent_ms, NOW_MS - silent_ms)


def test_lag_is_in_records_behind_the_leader_and_unknown_when_nothing_was_fetched() -> None:
    result = facts(replica(1), replica(2, 940), QuorumReplicaState(4, "observer", -1, -1, -1))
    assert [row["lag_records"] for row in result["replicas"]] == [0, 60, None]
    html = quorum_panel.table_html(result)
    assert ">60<" in html
    assert "never" in html


def test_a_silent_voter_is_counted_and_comes_first() -> None:
    result = facts(replica(1), replica(2), replica(3, silent_ms=60_000))
    assert "2 of 3 voters in touch" in quorum_panel.pills_html(result, NOW_MS)
    assert [int(node) for node in quorum_panel.rows(result)["node"]] == [3, 1, 2]
    assert list(quorum_panel.rows(result)["status"]) == ["warning", "ok", "ok"], "as voter-away"
    without_majority = facts(replica(1), replica(2, silent_ms=60_000), replica(3, silent_ms=60_000))
    assert list(quorum_panel.rows(without_majority)["status"]) == ["critical", "critical", "ok"]


def test_an_unknown_snapshot_says_why() -> None:
    result = facts(replica(1), snapshot={"generated_ms": None, "bytes": None, "cause": NOT_BY_PROTOCOL})
    assert "snapshot ?" in quorum_panel.pills_html(result, NOW_MS)
    assert "by JMX only" in quorum_panel.note(result)
    with_snapshot = facts(replica(1), snapshot={"generated_ms": NOW_MS - 120_000, "bytes": 4_200, "cause": None})
    assert "snapshot 4.2 kB, 2 m old" in quorum_panel.pills_html(with_snapshot, NOW_MS)
    assert quorum_panel.note(with_snapshot) == ""


def test_a_leader_without_meters_or_without_a_snapshot_is_told_apart() -> None:
    assert snapshot_facts([], 1, NOW_MS)["cause"] == "Node 1 does not tell its meters."

    class Meters:
        def only(self, names: Collection[str]) -> Meters:
            assert set(names) == {AGE_GAUGE, SIZE_GAUGE}
            return self

        def collect(self) -> list[GaugeMetricFamily]:
            age = GaugeMetricFamily("kafka_server_snapshotemitter_latestsnapshotgeneratedagems", "", labels=["broker"])
            age.add_metric(["1"], -1.0)
            age.add_metric(["2"], 5_000.0)
            size = GaugeMetricFamily("kafka_server_snapshotemitter_latestsnapshotgeneratedbytes", "", labels=["broker"])
            size.add_metric(["2"], 77.0)
            return [age, size]

    assert snapshot_facts([Meters()], 1, NOW_MS)["cause"] == NONE_WRITTEN
    assert snapshot_facts([Meters()], 2, NOW_MS) == {"generated_ms": NOW_MS - 5_000, "bytes": 77, "cause": None}
