"""The Overview: what it says in health, in trouble, with nothing to show, and when it is blind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.components.shared import format as fmt
from backend.store import tables as t
from tests.ui import seed
from tests.ui.conftest import INTERVAL_MS, Database, html_of, now_ms, open_page, plain, text_of


def chart(page: AppTest, key: str) -> dict[str, Any]:
    """The Plotly figure with this key."""
    charts = [element.proto for element in page.get("plotly_chart") if key in element.proto.id]
    assert len(charts) == 1, f"one chart {key}, not {len(charts)}"
    figure: dict[str, Any] = json.loads(charts[0].spec)
    return figure


def cells(page: AppTest, status: str) -> int:
    """How many cells of the broker grid have this status."""
    return html_of(page).count(f'class="eb-cell eb-cell-{status}"')


def test_healthy_cluster_says_that_nothing_needs_attention(healthy: Database) -> None:
    page = open_page()
    assert not page.exception
    shown = text_of(page)
    # Of the partition that was listed longest ago, by the observer, and not of the newest sample.
    assert "Nothing needs attention. Checked 462 partitions, 2 m 3" in shown
    assert "▲" not in shown
    assert "◆" not in shown
    assert "Not in sync 0 replicas all 824 followers in sync" in shown


def test_trouble_is_listed_worst_first_with_links(trouble: Database) -> None:
    page = open_page()
    assert not page.exception
    shown = text_of(page)
    assert "Needs attention 3 problems · worst first" in shown
    order = [
        r"▲ Critical Copy hung: telemetry-143 on broker 6 · 2 h 54 m Open for 2 h 55 m, 219× its p99\."
        r" Look at its runbook\.",
        r"◆ Warning Copying is behind: telemetry-88 · 41 m( \d+ s)? 47\.9 GB in sealed segments are not uploaded\.",
        r"◆ Warning Follower stuck: telemetry-143 on broker 2 · 8 m( \d+ s)? 3 attempts to build remote state failed\.",
    ]
    assert re.search(".*".join(order), shown), shown
    links = [(link.proto.label, link.proto.query_string) for link in page.get("page_link")]
    assert links[:2] == [("Open copy →", "tp=telemetry-143"), ("Runbook →", "runbook=copy-hung")]
    assert ("Replicas →", "tp=telemetry-143") in links


def test_tiles_show_the_six_figures_of_the_seed(trouble: Database) -> None:
    page = open_page()
    shown = text_of(page)
    for figure in (
        "Oldest open copy ▲ 2 h 55 m 219× its p99",
        "Not in sync ▲ 2 replicas 1 stuck, 1 fetching",
        "Delete overdue 0 B none in 1 h",
        "1.1 TB free",
    ):
        assert figure in shown
    assert html_of(page).count('<div class="eb-tile">') == 6


def test_furthest_behind_are_the_worst_of_the_seed(trouble: Database) -> None:
    figure = chart(open_page(), "behind")
    assert figure["layout"]["yaxis"]["ticktext"][:5] == [f"{topic}-{index}" for topic, index in seed.WORST]
    labels = [note["text"] for note in figure["layout"]["annotations"]]
    assert labels[:2] == ["64.2 GB", "49.0 GB"]


def test_broker_grid_colours_only_problems(trouble: Database) -> None:
    page = open_page()
    assert cells(page, "critical") == 4  # a hung copy, pending twice, a stuck follower
    assert cells(page, "warning") == 2  # pending, a follower that catches up
    assert cells(page, "unknown") == 0
    assert cells(page, "fine") == 6 * 8 - 6


def test_every_picture_has_a_table_twin(trouble: Database) -> None:
    page = open_page()
    findings, _, brokers, _ = (table.value for table in page.dataframe)
    assert {"severity", "rule", "object", "what", "why", "do", "since"} <= set(findings.columns)
    assert len(findings) >= 3
    assert list(brokers["broker"]) == [1, 2, 3, 4, 5, 6]
    assert list(brokers["Copy"])[5] == "1 hung"


def test_empty_database_says_that_nothing_was_observed_yet(database: Database) -> None:
    page = open_page()
    assert not page.exception
    assert "No cluster has been observed yet" in text_of(page)


def test_cluster_without_tiered_topics_says_what_to_do(database: Database) -> None:
    database.fill(trouble=False, topics=())
    page = open_page()
    assert not page.exception
    shown = text_of(page)
    assert "0 tiered partitions in 0 topics" in shown
    assert "No topic is tiered yet: none has remote.storage.enable=true." in shown
    assert any("--config remote.storage.enable=true" in block.value for block in page.code)


def test_a_stopped_pipeline_tops_the_list_and_greys_what_it_told(healthy: Database) -> None:
    last_ms = healthy.silence("pipeline")
    page = open_page()
    assert not page.exception
    shown = text_of(page)
    since = fmt.clock(last_ms, last_ms)
    assert f"Needs attention 1 problem ▲ Critical Pipeline down since {since}" in shown
    assert "The ledger of remote segments is of then" in shown
    assert "6/6 brokers · pipeline down" in shown
    assert "● Live · " in shown
    assert html_of(page).count('<div class="eb-tile eb-old">') == 3


def test_a_pipeline_that_never_ran_leaves_its_figures_unknown(healthy: Database) -> None:
    healthy.change(t.process_status.delete().where(t.process_status.c.process == "pipeline"))
    shown = text_of(open_page())
    assert "The pipeline has not reported yet" in shown
    for name in ("Oldest open copy", "Delete overdue", "Remote"):
        assert f"{name} ? the pipeline has not said" in shown


def test_a_silent_pipeline_makes_no_open_copy_look_hung(database: Database) -> None:
    moment = database.fill(trouble=False, topics=("orders",))
    ledger = t.segment
    database.change(
        ledger.update()
        .where(ledger.c.topic == "orders", ledger.c.partition == 7, ledger.c.end_offset == 9_120_447)
        .values(state=0, copy_finished_ms=None, copy_started_ms=moment - 11 * INTERVAL_MS)
    )
    assert "Oldest open copy 11 m" in text_of(open_page())
    database.silence("pipeline")  # ten minutes ago, when the copy was one minute old
    shown = text_of(open_page())
    assert "Oldest open copy 1 m" in shown


def test_a_stopped_backend_tops_the_list_and_the_last_figures_stay(trouble: Database) -> None:
    last_ms = trouble.silence("backend", "observer")
    age = {"sampled_ms": last_ms}
    trouble.change(t.partition_current.update().values(**age), t.broker.update().values(seen_ms=last_ms, **age))
    trouble.change(t.finding.update().values(seen_ms=last_ms))
    page = open_page()
    assert not page.exception
    shown = text_of(page)
    assert re.search(r"219× its p99\.? Last seen 10 m( \d+ s)? ago\.", shown)
    since = fmt.clock(last_ms, last_ms)
    assert f"▲ Not live since {since}" in shown
    first = shown.index("▲ Critical Backend down since " + since)
    assert first < shown.index("▲ Critical Copy hung")
    assert "Figures are 10 m" in shown
    assert "64.2 GB" in json.dumps(chart(page, "behind"))
    assert any("stale-tiles" in str(block.proto) for block in page.get("flex_container"))


def test_a_database_that_went_away_leaves_what_was_read_with_its_age(trouble: Database) -> None:
    page = open_page()
    with trouble.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE process_status")
    page.run()
    assert not page.exception
    shown = text_of(page)
    assert "▲ Database away" in shown
    assert "▲ Critical Database away since " in shown
    assert "What is shown was read " in shown
    assert "no such table: process_status" in shown
    assert "Copy hung: telemetry-143" in shown
    assert "64.2 GB" in json.dumps(chart(page, "behind"))


def test_a_database_that_cannot_be_read_at_all_is_named_with_its_cause(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.db").write_bytes(b"this is not a database, and never was" * 30)
    monkeypatch.setenv("EBBLINE_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    page = open_page()
    assert not page.exception
    assert "The database does not answer." in text_of(page)
    assert "file is not a database" in page.code[0].value
    assert page.button(key="retry").label == "Retry"


def test_a_silent_broker_is_named_and_its_checks_are_unknown(healthy: Database) -> None:
    table = t.broker
    healthy.change(table.update().where(table.c.broker_id == 4).values(reachable=False, error="Connection refused."))
    healthy.change(t.finding.insert().values(**seed.finding_of_broker_4(now_ms())))
    page = open_page()
    shown = text_of(page)
    row = r"Broker 4 does not answer · \d+ s Silent for 9 s. Connection refused. Start it again."
    assert re.search(rf"Needs attention 1 problem ◆ Warning {row}", shown), shown
    assert "◆ 5/6 brokers" in shown
    assert cells(page, "unknown") == 6
    assert "? unknown: Broker 4 does not answer" in shown


def explained_by_broker_4(database: Database, number: int) -> None:
    """Broker 4 does not answer, which explains so many partitions."""
    away = seed.finding_of_broker_4(now_ms())
    rows = [
        away | {"slug": "below-min-isr", "object": f"orders-{i}", "broker_id": None, "topic": "orders", "partition": i}
        | {"sentence": f"Below min ISR: orders-{i}", "cause_slug": "broker-away", "cause_object": "broker 4"}
        for i in range(number)
    ]  # fmt: skip
    database.change(t.finding.insert().values(**away), *(t.finding.insert().values(**row) for row in rows))


def test_what_a_cause_explains_is_listed_under_it_with_a_link_to_all(healthy: Database) -> None:
    explained_by_broker_4(healthy, 12)
    page = open_page()
    assert not page.exception
    assert "Needs attention 1 problem" in text_of(page)
    (under,) = [expander for expander in page.expander if "Explains" in expander.label]
    assert under.label == "Explains 12 findings"
    drawn = [plain(str(element.proto.body)) for element in under.get("html")]
    assert len(drawn) == 10
    assert drawn[0] == "◆ Below min ISR: orders-0"
    links = [(link.proto.label, link.proto.query_string) for link in under.get("page_link")]
    assert links[0] == ("Open partition →", "tp=orders-0")
    assert links[-1] == ("All 12 →", "cause=broker-away%3Abroker+4")
    full = open_page("activity", cause="broker-away:broker 4")
    assert not full.exception
    shown = text_of(full)
    assert "Broker 4 does not answer explains 12 findings" in shown
    assert all(f"Below min ISR: orders-{number} " in shown for number in range(12))
    full.button(key="cause-close").click().run()
    assert "explains 12 findings" not in text_of(full)
    over = open_page("activity", cause="broker-away:broker 5")
    assert "It explains nothing now" in text_of(over)


def test_names_from_the_cluster_are_text_not_markup(healthy: Database) -> None:
    bad = "<img src=x onerror=alert(1)>"
    table = t.broker
    healthy.change(
        table.update().where(table.c.broker_id == 4).values(reachable=False, error=bad),
        t.cluster.update().values(name=bad),
    )
    page = open_page()
    assert not page.exception
    assert bad not in html_of(page)
    assert "&lt;img src=x" in html_of(page)
