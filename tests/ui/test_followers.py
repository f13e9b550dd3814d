"""The Followers page over a seeded database: who is out of sync, in which phase, for how long, and why."""

from __future__ import annotations

import json
from typing import Any

from streamlit.testing.v1 import AppTest

from backend.store import tables as t
from backend.store.connection.database import writing
from tests.ui.conftest import Database, html_of, now_ms, open_page, text_of
from tests.ui.seed import CLUSTER_ID, uuid_text

REPLICA = t.replica_current
MINUTE_MS = 60_000


def _shown(page: AppTest) -> str:
    assert not page.exception
    return text_of(page).replace("\u202f", " ")


def _table(page: AppTest) -> Any:
    return next(frame.value for frame in page.dataframe if "evidence" in frame.value.columns)


def _calm(database: Database) -> None:
    """Every replica has been in sync for an hour."""
    long_ago = now_ms() - 60 * MINUTE_MS
    database.change(REPLICA.update().values(phase="IN_SYNC", in_isr=True, phase_since_ms=long_ago))


def _phase(offset: int, at_ms: int, phase: str, attempts: int = 0, reason: str = "") -> dict[str, Any]:
    """The events of broker 1 about its replica of telemetry-143."""
    body = {
        "phase": phase,
        "since_ms": at_ms,
        "attempts": attempts,
        "target_offset": 767_669_621 if phase == "DELAYED" else None,
        "evidence": {"reason": reason},
    }
    return {
        "cluster_id": CLUSTER_ID,
        "source_partition": 0,
        "source_offset": offset,
        "type": "phase",
        "broker_id": 2,
        "at_ms": at_ms,
        "topic": "telemetry",
        "topic_id": uuid_text(100),
        "partition": 143,
        "body": body,
    }


def _stuck_broker(database: Database) -> int:
    with database.engine.connect() as connection:
        result = connection.scalar(
            REPLICA.select().with_only_columns(REPLICA.c.broker_id).where(REPLICA.c.phase == "DELAYED")
        )
    assert result is not None
    return int(result)


def test_head_says_how_many_are_out_of_sync_and_stuck(trouble: Database) -> None:
    page = open_page("followers")
    assert "Followers 2 of 824 not in sync · 1 stuck" in _shown(page)


def test_stuck_follower_comes_first_with_its_evidence(trouble: Database) -> None:
    page = open_page("followers")
    row = _table(page).iloc[0]
    assert (row["partition"], row["phase"]) == ("telemetry-143", "delayed, stuck")
    assert row["evidence"] == "3 attempts to build remote state failed."
    shown = _shown(page)
    assert "Why “stuck” telemetry-143 on broker" in shown
    assert "No progress for more than 30 s" in shown


def test_two_failed_attempts_are_not_stuck_and_three_are(trouble: Database) -> None:
    here = REPLICA.c.phase == "DELAYED"
    recent = now_ms() - 2_000
    trouble.change(REPLICA.update().where(here).values(phase_since_ms=recent, evidence={"attempts": 2}))
    assert "not in sync · " not in _shown(open_page("followers"))
    trouble.change(REPLICA.update().where(here).values(evidence={"attempts": 3}))
    shown = _shown(open_page("followers"))
    assert "2 of 824 not in sync · 1 stuck" in shown
    assert "3 attempts failed one after the other" in shown


def test_timeline_shows_what_the_broker_told_with_its_attempts(trouble: Database) -> None:
    broker, moment = _stuck_broker(trouble), now_ms()
    events = [
        _phase(1, moment - 10 * MINUTE_MS, "TRUNCATING"),
        _phase(2, moment - 9 * MINUTE_MS, "BUILDING_REMOTE_AUX"),
        _phase(3, moment - 8 * MINUTE_MS, "DELAYED", 1, "epoch index not found"),
    ]
    with writing(trouble.engine) as connection:
        connection.execute(t.engine_event.insert(), [{**event, "broker_id": broker} for event in events])
    page = open_page("followers", tp="telemetry-143")
    figure = json.loads(page.get("plotly_chart")[0].proto.spec)
    assert {trace["name"] for trace in figure["data"]} >= {"truncating", "building remote state", "stuck"}
    shown = _shown(page)
    assert "epoch index not found" in shown
    assert "Told by the embedded brokers." in shown


def test_of_an_attached_kafka_it_says_what_is_inferred_though_the_isr_is_exact(healthy: Database) -> None:
    assert "Told by the embedded brokers." in _shown(open_page("followers", tp="orders-7", phase="All"))
    healthy.change(t.cluster.update().values(kind="attached"))
    shown = _shown(open_page("followers", tp="orders-7", phase="All"))
    assert "Kafka tells who is in sync; every other phase is inferred from samples." in shown
    assert "embedded" not in shown


def test_phase_in_the_link_lists_only_that_phase(trouble: Database) -> None:
    page = open_page("followers", phase="Fetching")
    assert list(_table(page)["partition"]) == ["orders-7"]
    page = open_page("followers", phase="All", tp="orders-7")
    assert sorted(_table(page)["partition"]) == ["orders-7", "orders-7"]


def test_broker_in_the_link_lists_only_its_replicas(trouble: Database) -> None:
    page = open_page("followers", phase="All", broker="Broker 3")
    assert set(_table(page)["broker"]) == {3}


def test_replica_in_the_link_is_the_one_explained(trouble: Database) -> None:
    page = open_page("followers", replica="orders-7 on 5")
    assert "Why orders-7 on broker 5" in _shown(page)


def test_unknown_values_in_the_link_are_named_and_ignored(trouble: Database) -> None:
    page = open_page("followers", phase="Dancing", broker="Broker 99", replica="x on 9")
    shown = _shown(page)
    assert any("There is no phase 'Dancing'" in toast.value for toast in page.toast)
    assert "x on 9 is not in this list; this is another." in shown


def test_all_in_sync_says_so(healthy: Database) -> None:
    _calm(healthy)
    shown = _shown(open_page("followers"))
    assert "Followers all 824 in sync" in shown
    assert "All 824 replicas are in sync. None changed its phase in this time." in shown
    assert "Nobody waits." in shown


def test_no_replica_at_all_says_what_that_means(healthy: Database) -> None:
    healthy.change(REPLICA.delete())
    shown = _shown(open_page("followers"))
    assert "No follower is known." in shown


def test_unknown_phase_is_a_question_mark(trouble: Database) -> None:
    trouble.change(REPLICA.update().where(REPLICA.c.phase == "DELAYED").values(phase=None, error="Broker 1 is silent."))
    page = open_page("followers", phase="Not known")
    assert list(_table(page)["phase"]) == ["? not known"]
    assert "? 1 not known" in _shown(page)


def test_without_the_backend_the_phases_are_grey_and_ages_stand_still(trouble: Database) -> None:
    trouble.silence("backend", "observer")
    trouble.change(t.partition_current.update().values(sampled_ms=now_ms() - 60 * MINUTE_MS))
    page = open_page("followers")
    assert "Backend down since" in _shown(page)
    assert any("stale-replicas" in str(block.proto) for block in page.get("flex_container"))


def test_names_from_outside_cannot_become_markup(trouble: Database) -> None:
    evil = "<img src=x onerror=alert(1)>"
    trouble.change(REPLICA.update().where(REPLICA.c.phase == "DELAYED").values(topic=evil, error=evil))
    assert evil not in html_of(open_page("followers", replica=evil))


def test_a_follower_s_log_end_is_drawn_beside_its_leader_s(trouble: Database) -> None:
    moment = now_ms()
    same = ("cluster_id", "topic", "partition", "broker_id", "role", "in_isr", "local_log_start_offset")
    with trouble.engine.connect() as connection:
        mine = REPLICA.c.topic == "orders", REPLICA.c.partition == 7, REPLICA.c.broker_id == 5
        row = connection.execute(REPLICA.select().where(*mine)).one()._mapping
    samples = [
        {name: row[name] for name in same}
        | {"sampled_ms": moment - age * MINUTE_MS, "log_end_offset": row["log_end_offset"] - age * 1_000}
        for age in (3, 2, 1)
    ]
    trouble.change(t.replica_sample.insert().values(samples))
    page = open_page("followers", tp="orders-7")
    assert "Catch-up orders-7 on broker 5, last 20 min" in _shown(page)
    chart = next(element for element in page.get("plotly_chart") if "catch-up-chart" in element.proto.id)
    lines = {line["name"]: line for line in json.loads(chart.proto.spec)["data"]}
    assert set(lines) == {"leader end", "follower", "pending from", "local start"}
    assert len(lines["follower"]["x"]) == 3
    table = next(frame.value for frame in page.dataframe if "offset" in frame.value.columns)
    assert list(table[table["line"] == "follower"]["offset"]) == [row["log_end_offset"] - n * 1_000 for n in (1, 2, 3)]


def test_the_depth_of_the_chosen_partition_s_replicas_is_shown_with_the_leader_s(trouble: Database) -> None:
    page = open_page("followers", tp="orders-7")
    shown = _shown(page)
    assert "Local depth time each replica can serve locally" in shown
    depths = next(frame.value for frame in page.dataframe if "local depth, s" in frame.value.columns)
    assert list(depths["broker"])[:3] == [2, 4, 5]
    assert list(depths["leads"])[:3] == [True, False, False]
    assert depths["local depth, s"].notna().all()
