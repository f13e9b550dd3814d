"""A cluster, a database or this process that goes away: said with since when, nothing lost that was promised."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from backend.control.http import disk_room
from backend.control.operations.lifecycle import plan_execution
from tests.control.site import FLAG, TIERED, ControlSite

# SQLite's own limit (SQLITE_MAX_PAGE_COUNT).
PAGES_MAX = 0xFFFF_FFFE


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ControlSite]:
    """A separate site, which the test may break."""
    with ControlSite(tmp_path) as made:
        yield made


def rows(site: ControlSite, query: str, *values: Any) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(site.folder / "ebbline.db", timeout=30)
    try:
        return connection.execute(query, values).fetchall()
    finally:
        connection.close()


def processes(site: ControlSite) -> dict[str, dict[str, Any]]:
    return {p["process"]: p for p in site.get("/v1/cluster")["processes"]}


def test_a_broker_that_dies_is_shown_as_such_and_its_replicas_keep_their_last_offsets(own: ControlSite) -> None:
    own.create_topic("orders", partitions=3, config=TIERED)
    own.produce("orders", 300)
    own.wait_until_quiet("orders")
    before = {(r["partition"], r["broker_id"]): r for n in range(3) for r in replicas(own, n)}
    own.cluster.kill_broker(3)
    own.wait_until("broker 3 is seen to be away", lambda: not broker(own, 3)["reachable"])
    own.wait_until(
        "a live broker leads each partition", lambda: {p["leader"] for p in own.partitions("orders")} <= {1, 2}
    )
    own.wait_until("its replicas left the ISR", lambda: all(3 not in p["isr"] for p in own.partitions("orders")))
    own.wait_until("its replicas have an error", lambda: all(replica(own, n, 3)["error"] for n in range(3)))
    for partition in range(3):
        now = replica(own, partition, 3)
        assert (now["in_isr"], now["phase"]) == (False, None)
        assert "alive" in now["error"] or "reached" in now["error"] or "closed" in now["error"]
        assert now["log_end_offset"] == before[partition, 3]["log_end_offset"]
        assert now["sampled_ms"] < replica(own, partition, 1)["sampled_ms"]
    assert broker(own, 3)["seen_ms"] < broker(own, 1)["seen_ms"]
    assert own.operator.get("/readyz").status_code == 200
    own.cluster.start_broker(3)
    own.wait_until("it is in sync again", lambda: all(len(p["isr"]) == 3 for p in own.partitions("orders")))
    own.wait_until("its error is gone", lambda: all(replica(own, n, 3)["error"] is None for n in range(3)))


def replicas(site: ControlSite, partition: int) -> list[dict[str, Any]]:
    replica_rows: list[dict[str, Any]] = site.get(f"/v1/partitions/orders/{partition}")["replicas"]
    return replica_rows


def replica(site: ControlSite, partition: int, broker_id: int) -> dict[str, Any]:
    return next(r for r in replicas(site, partition) if r["broker_id"] == broker_id)


def broker(site: ControlSite, broker_id: int) -> dict[str, Any]:
    result: dict[str, Any] = next(b for b in site.get("/v1/brokers")["items"] if b["broker_id"] == broker_id)
    return result


def test_a_cluster_that_is_away_is_said_with_since_when_and_what_was_seen_stays(own: ControlSite) -> None:
    own.create_topic("orders", partitions=1)
    own.produce("orders", 20)
    own.wait_until_quiet("orders")
    plan = own.plan({"enable": True})
    began_ms = time.time() * 1000
    for broker_id in (1, 2, 3):
        own.cluster.kill_broker(broker_id)
    own.wait_until("the API says so", lambda: own.operator.get("/readyz").status_code == 503)
    cluster = own.get("/v1/cluster")
    assert cluster["answers"] is False
    assert cluster["away_since_ms"] >= began_ms - 1000
    own.wait_until("the database says so", lambda: processes(own)["observer"]["state"] == "waiting")
    observer = processes(own)["observer"]
    assert observer["message"].startswith("The cluster does not answer.")
    assert observer["detail"]["away_since_ms"] == own.get("/v1/cluster")["away_since_ms"]
    own.wait_until("no broker is up", lambda: not any(b["reachable"] for b in own.get("/v1/brokers")["items"]))
    brokers = own.get("/v1/brokers")["items"]
    assert [(row["reachable"], bool(row["error"])) for row in brokers] == [(False, True)] * 3
    assert all(began_ms - 2000 <= row["seen_ms"] <= cluster["now_ms"] for row in brokers)
    numbers = {line.split()[0]: line.split()[1] for line in own.client(None).get("/metrics").text.splitlines()}
    assert (numbers["ebbline_cluster_brokers"], numbers["ebbline_cluster_brokers_reachable"]) == ("3.0", "0.0")
    assert float(numbers["ebbline_cluster_sample_age_seconds"]) * 1000 >= time.time() * 1000 - cluster["now_ms"]
    assert not numbers.keys() & {"ebbline_cluster_offline_partitions", "ebbline_cluster_local_log_bytes"}
    own.wait_until("pages say so", lambda: rows(own, "SELECT DISTINCT reachable FROM broker") == [(0,)])
    own.stop_plane()
    own.start_plane(ready=False)
    own.wait_until("it answers", lambda: own.operator.get("/v1/brokers").status_code == 200)
    own.wait_until("a new process", lambda: [b["reachable"] for b in own.get("/v1/brokers")["items"]] == [False] * 3)
    (shown,) = own.partitions("orders")
    assert (shown["log_end_offset"], shown["high_watermark"]) == (20, 20)
    assert shown["sampled_ms"] <= cluster["away_since_ms"]
    refused = own.operator.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": {"enable": True}})
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:ebbline:problem:unavailable")
    assert own.execute(plan["id"]).status_code == 503
    assert own.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "checked"
    for broker_id in (1, 2, 3):
        own.cluster.start_broker(broker_id)
    own.wait_until("it is back", lambda: own.operator.get("/readyz").status_code == 200, timeout_s=60)
    own.wait_until("the heartbeat follows", lambda: processes(own)["observer"]["state"] == "running")


def test_a_database_that_refuses_is_locked_or_full_stops_nothing_and_is_caught_up_with(own: ControlSite) -> None:
    rounds_wait_while_it_refuses(own)
    rounds_go_on_while_it_is_locked(own)
    nothing_is_half_done_while_it_is_full(own)


def rounds_wait_while_it_refuses(own: ControlSite) -> None:
    own.wait_until("samples are stored", lambda: rows(own, "SELECT COUNT(*) FROM cluster_sample")[0][0] > 2)
    connection = sqlite3.connect(own.folder / "ebbline.db", timeout=30)
    connection.execute("ALTER TABLE cluster_sample RENAME TO hidden")
    connection.commit()
    recorder = own.plane.parts.observer.recorder
    own.wait_until("rounds wait", lambda: own.cluster.ask(lambda: recorder.waiting_rounds) >= 3)
    assert "cluster_sample" in (recorder.away or "")
    rounds_before = own.cluster.ask(lambda: own.plane.parts.observer.state.rounds)
    connection.execute("ALTER TABLE hidden RENAME TO cluster_sample")
    connection.commit()
    connection.close()
    own.wait_until_stored()
    assert recorder.dropped_rounds == 0
    assert rows(own, "SELECT COUNT(*) FROM cluster_sample")[0][0] >= rounds_before


def rounds_go_on_while_it_is_locked(own: ControlSite) -> None:
    lock = sqlite3.connect(own.folder / "ebbline.db", timeout=30, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    rounds = own.cluster.ask(lambda: own.plane.parts.observer.state.rounds)
    own.create_topic("while-locked", partitions=1)
    own.produce("while-locked", 20)
    own.wait_until("rounds go on", lambda: own.cluster.ask(lambda: own.plane.parts.observer.state.rounds) > rounds + 3)
    assert own.operator.get("/readyz").json()["checks"]["database"] is not None
    lock.execute("ROLLBACK")
    lock.close()
    own.wait_until("samples arrive", lambda: bool(own.partitions("while-locked")))
    own.wait_until("ready again", lambda: own.operator.get("/readyz").status_code == 200)


def nothing_is_half_done_while_it_is_full(own: ControlSite) -> None:
    """The file may have no page more than it has; a plan that was made before is executed, as a whole or not at all."""
    engine = own.plane.parts.database.engine
    made = own.plan({"enable": True})

    def full(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes what it has as the least

    def has_room(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {PAGES_MAX}")

    event.listen(engine, "checkout", full)
    body = {"kind": "toggle_bootstrap", "inputs": {"enable": True}, "reason": "r" * 500}

    def refused() -> dict[str, Any] | None:
        answer = own.operator.post("/v1/plans", json=body)
        return answer.json() if answer.status_code == 503 else None

    problem = own.wait_until("a plan is not stored", refused) or {}
    stored = rows(own, "SELECT COUNT(*), MAX(id) FROM operation")
    assert problem["type"] == "urn:ebbline:problem:unavailable"
    assert "database or disk is full: make room" in problem["detail"]
    status = own.execute(made["id"], wait_ms=0).status_code
    event.remove(engine, "checkout", full)
    event.listen(engine, "checkout", has_room)
    own.wait_until("ready again", lambda: own.operator.get("/readyz").status_code == 200)
    assert rows(own, "SELECT COUNT(*), MAX(id) FROM operation") == stored
    if status == 503:
        assert own.get(f"/v1/plans/{made['id']}")["plan"]["state"] == "checked"
        assert own.execute(made["id"]).status_code == 200
    own.wait_until("it is done", lambda: own.get(f"/v1/plans/{made['id']}")["plan"]["state"] == "verified")


def test_a_plan_that_a_crash_interrupted_is_looked_after_at_the_next_start(
    own: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_execution, "VERIFY_TIMEOUT_S", 2.0)  # what never comes need not be waited for
    flag = {"scope": "broker", "broker_id": 1}
    assert recovered(own, flag | {"enable": True}, "requested", changed=False) == "failed"
    assert recovered(own, flag | {"enable": True}, "requested", changed=True) == "verified"
    assert recovered(own, flag | {"enable": False}, "accepted", changed=True) == "verified"
    # The subject of the plan is deleted: that plan has an end too, and holds up no other.
    own.create_topic("short-lived", partitions=1)
    own.produce("short-lived", 10)
    about = {"partitions": [{"topic": "short-lived", "partition": 0, "offset": 5}]}

    def delete() -> None:
        own.admin.delete_topics(["short-lived"])["short-lived"].result(30)

    assert recovered(own, about, "accepted", kind="delete_records", changed=False, meanwhile=delete) == "failed"
    ended = own.get("/v1/plans?limit=1")["items"][0]["result"]
    assert "There is no partition short-lived-0" in ended["sentence"]


def recovered(
    own: ControlSite,
    inputs: dict[str, Any],
    state: str,
    *,
    changed: bool,
    kind: str = "toggle_bootstrap",
    meanwhile: Callable[[], None] = lambda: None,
) -> str:
    """How a plan ends that a process left in this state, having `changed` the cluster or not."""
    plan = own.plan(inputs, kind=kind)
    assert plan["state"] == "checked", plan["checks"]
    if changed:
        own.cluster.call(_apply(own, plan))
    own.stop_plane()
    meanwhile()
    connection = sqlite3.connect(own.folder / "ebbline.db", timeout=30)
    connection.execute("UPDATE operation SET state = ?, requested_ms = 1 WHERE id = ?", (state, plan["id"]))
    connection.commit()
    connection.close()
    own.start_plane()
    result = own.wait_until(
        "the plan has ended",
        lambda: (row := own.get(f"/v1/plans/{plan['id']}")["plan"])["finished_ms"] and row,
        timeout_s=60,
    )
    ends: str = result["state"]
    assert [step["state"] for step in result["result"]["steps"]] == ["recovered", ends]
    assert own.get("/v1/audit?limit=1")["items"][0]["result"] == ends
    return ends


async def _apply(site: ControlSite, plan: dict[str, Any]) -> None:
    from backend.control.operations.config.toggle_bootstrap import ToggleBootstrap, ToggleInputs

    inputs = ToggleInputs.model_validate(plan["inputs"])
    await ToggleBootstrap().apply(site.plane.parts.operations._context, inputs, plan["snapshot"])


def test_a_deleted_topic_leaves_the_pages_and_its_history_stays(own: ControlSite) -> None:
    own.create_topic("orders", partitions=2)
    own.wait_until("it is seen", lambda: len(own.partitions("orders")) == 2)
    own.admin.delete_topics(["orders"])["orders"].result(30)
    own.wait_until("it is gone", lambda: own.partitions("orders") == [])
    assert rows(own, "SELECT COUNT(*) FROM replica_current WHERE topic = 'orders'") == [(0,)]
    own.wait_until(
        "its settings are gone",
        lambda: rows(own, "SELECT COUNT(*) FROM config_value WHERE resource = 'orders'") == [(0,)],
    )
    assert rows(own, "SELECT COUNT(*) FROM partition_sample WHERE topic = 'orders'")[0][0] > 0


def test_a_restart_goes_on_where_the_process_before_stopped(own: ControlSite) -> None:
    own.create_topic("orders", partitions=1)
    own.wait_until_quiet("orders")
    own.wait_until("settings are stored", lambda: len(own.get(f"/v1/config?name={FLAG}")["items"]) == 3)
    since = {r["broker_id"]: r["phase_since_ms"] for r in replicas(own, 0)}
    first = own.get("/v1/cluster")["cluster"]["first_seen_ms"]
    events = rows(own, "SELECT COUNT(*) FROM engine_event")[0][0]
    assert events > 0
    own.stop_plane()
    assert processes_stored(own) == {"backend": "stopped", "observer": "stopped"}
    own.start_plane()
    own.wait_until("it samples", lambda: processes(own)["observer"]["state"] == "running")
    own.wait_until(
        "phases began when they did",
        lambda: {r["broker_id"]: r["phase_since_ms"] for r in replicas(own, 0)} == since,
    )
    assert own.get("/v1/cluster")["cluster"]["first_seen_ms"] == first
    again = rows(own, "SELECT COUNT(DISTINCT source_offset) FROM engine_event")[0][0]
    assert again == rows(own, "SELECT COUNT(*) FROM engine_event")[0][0]


def processes_stored(site: ControlSite) -> dict[str, str]:
    return dict(rows(site, "SELECT process, state FROM process_status WHERE process IN ('backend', 'observer')"))


def test_a_full_disk_is_not_ready_until_there_is_room(own: ControlSite, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [0]
    monkeypatch.setattr(disk_room, "free_bytes", lambda _: free[0])
    monkeypatch.setattr(disk_room, "PROBE_EVERY_S", 0.0)
    own.wait_until("it is not ready", lambda: own.operator.get("/readyz").status_code == 503)
    result = own.operator.get("/readyz").json()
    assert result["checks"]["disk"].startswith("The disk of")
    assert result["checks"]["cluster"] is None
    free[0] = 1 << 40
    own.wait_until("it is ready again", lambda: own.operator.get("/readyz").status_code == 200)


def test_a_backend_that_answers_does_not_say_that_it_is_down(own: ControlSite) -> None:
    """The moment at which the database is back: signs of life are of before, and new ones are not written yet."""
    own.wait_until("it has given a sign of life", lambda: "backend" in processes(own))
    with sqlite3.connect(own.folder / "ebbline.db", timeout=30) as connection:
        connection.execute("UPDATE process_status SET updated_ms = updated_ms - 60000")
    connection.close()
    answer = own.get("/v1/cluster")
    down = {spot["slug"] for spot in answer["blind_spots"]} & {"backend-down", "observer-down"}
    assert not down
    alive = {row["process"]: row["alive"] for row in answer["processes"]}
    assert (alive["backend"], alive["observer"]) == (True, True)
