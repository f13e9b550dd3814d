"""Config: what is in effect and from where, and the toggle from plan to revert on a cluster that really runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.components.config import rule_table
from backend.control.http.openapi import ANSWER_EXAMPLES
from backend.store import tables as t
from tests.ui.api_stub import REFUSAL, refusing_api
from tests.ui.conftest import Database, html_of, open_page, plain, text_of, viewer
from tests.ui.seed import FLAG


def config_page(**options: Any) -> AppTest:
    page = open_page("config", **options)
    assert not page.exception
    return page


def broker_lines(page: AppTest) -> dict[str, str]:
    """The matrix as text, by broker."""
    table = next(part for part in html_of(page).split("\n") if f"{FLAG} on every broker" in part)
    rows = [plain(row) for row in table.split("<tr>") if "Broker " in row]
    return {row[:8]: row[8:].strip() for row in rows}


# --- over the seeded database ---


def test_every_level_and_the_one_that_wins_are_shown_per_broker(trouble: Database) -> None:
    page = config_page()
    lines = broker_lines(page)
    assert lines["Broker 1"] == "false wins not set not set off"
    assert lines["Broker 3"].startswith("false not set false wins off ops-2 · ")
    assert lines["Broker 5"].startswith("false not set true wins on ◆ ops-1 · ")
    assert "◆ Mixed: on for 1, off for 5" in text_of(page)


def test_a_broker_that_is_too_old_or_silent_is_told_apart_from_one_that_is_off(trouble: Database) -> None:
    table = t.config_value
    trouble.change(
        table.delete().where(table.c.resource == "1", table.c.name == FLAG),
        table.delete().where(table.c.resource == "2"),
    )
    lines = broker_lines(config_page())
    assert lines["Broker 1"] == "? ? ? needs 4.3"
    assert lines["Broker 2"] == "? ? ? has not told"


def test_a_value_that_nobody_set_from_here_is_told_as_such(trouble: Database) -> None:
    trouble.change(t.audit.delete(), t.operation.delete())
    page = config_page()
    assert broker_lines(page)["Broker 5"].endswith("not from here")
    assert "Nobody has changed it from here yet." in text_of(page)


def test_what_the_flag_would_change_is_told_before_anybody_plans(trouble: Database) -> None:
    shown = text_of(config_page())
    assert "Partitions that qualify 412 of 412" in shown
    assert "Where it would matter most" in shown
    assert "telemetry-73" in shown


def test_changes_name_person_scope_reason_and_state(trouble: Database) -> None:
    shown = text_of(config_page())
    assert "ops-1 broker 5 not set → true ✓ verified trial before plan #91" in shown
    assert "ops-2 broker 3 not set → false ✓ verified keep deep replicas for EU exports" in shown


def test_a_viewer_sees_all_of_it_and_why_nothing_can_be_changed(trouble: Database) -> None:
    page = config_page(user=viewer())
    assert page.button(key="change").disabled
    assert page.button(key="change-other").disabled
    assert page.button(key="revert-1").disabled
    assert page.button(key="change").help == "Read-only: ask for the operator role."
    assert "● Read-only: ask for the operator role." in text_of(page)
    assert not page.button(key="dry-run").disabled


def test_without_the_backend_nothing_can_be_pressed(trouble: Database) -> None:
    trouble.silence("backend", "observer")
    page = config_page()
    assert page.button(key="change").disabled
    assert "● The backend is down: nothing can be changed until it runs again." in text_of(page)


@pytest.mark.parametrize("button", ["change", "change-other", "dry-run", "revert-2"])
def test_an_api_that_is_away_is_told_and_changes_nothing(
    trouble: Database, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, button: str
) -> None:
    token = tmp_path_factory.mktemp("run") / "app.token"
    token.write_text("secret")
    monkeypatch.setenv("EBBLINE_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("EBBLINE_API_TOKEN_FILE", str(token))
    page = config_page()
    page.button(key=button).click().run()
    assert not page.exception
    assert "▲ Critical Nothing was changed. The control API does not answer" in text_of(page)
    assert "act" not in {shown_button.key for shown_button in page.button}
    page.button(key="dismiss").click().run()
    assert "Nothing was changed." not in text_of(page)


def test_settings_that_differ_between_brokers_come_first(trouble: Database) -> None:
    shown = text_of(config_page(section="brokers"))
    assert "6 brokers · 2 differ, shown first" in shown
    pool = "remote.log.manager.copier.thread.pool.size ◆ differs 20 this broker broker 5"
    assert 0 < shown.index(FLAG) < shown.index(pool) < shown.index("remote.log.storage.system.enable true")
    assert "broker's file every broker with a restart" in shown


def test_set_aside_folders_are_listed_and_lead_to_the_plan_that_removes_one(trouble: Database, tmp_path: Path) -> None:
    page = config_page(section="brokers")
    shown = text_of(page)
    assert "Set aside 2 folders, 4.2 GB · kept until a plan removes them" in shown
    name = f"legacy-0.{'a1' * 16}-stray"
    assert f"legacy-0 2 /data/{name} metadata has no replica of it on this broker 4.2 GB 2 d 2 h" in shown
    assert page.button(key="set-aside-remove").help == "Choose a folder first."
    page.selectbox(key="set-aside-folder").select_index(0).run()
    with refusing_api(tmp_path) as api:
        page.button(key="set-aside-remove").click().run()
        assert api.calls == ["POST /v1/plans"]
    assert "Nothing was changed. This server refuses everything." in text_of(page)


def test_without_set_aside_folders_there_is_nothing_to_remove(healthy: Database) -> None:
    page = config_page(section="brokers")
    assert "No broker keeps a replica folder that nobody uses." in text_of(page)
    assert "set-aside-remove" not in {button.key for button in page.button}


def test_a_chosen_folder_that_is_gone_meanwhile_is_not_chosen_any_more(trouble: Database) -> None:
    page = config_page(section="brokers")
    page.selectbox(key="set-aside-folder").select_index(0).run()
    assert not page.button(key="set-aside-remove").disabled
    trouble.change(t.broker.update().where(t.broker.c.broker_id == 2).values(log_dirs=[]))
    page.run()
    assert not page.exception
    assert "No broker keeps a replica folder" in text_of(page)


def test_settings_are_found_by_part_of_their_name(trouble: Database) -> None:
    shown = text_of(config_page(section="brokers", key="POOL"))
    assert "copier.thread.pool.size" in shown
    assert FLAG not in shown
    assert "No setting fits." in text_of(config_page(section="brokers", key="no-such"))


def test_topics_are_held_against_kafka_s_rules(trouble: Database) -> None:
    table = t.topic
    base = {"remote.storage.enable": "true", "cleanup.policy": "delete"}
    trouble.change(
        table.update()
        .where(table.c.topic == "orders")
        .values(
            config=base
            | {"retention.ms": "1", "local.retention.ms": "2", "retention.bytes": "-1", "local.retention.bytes": "-2"}
        ),
        table.update()
        .where(table.c.topic == "sessions")
        .values(
            config=base
            | {"retention.ms": "5", "local.retention.ms": "-2", "retention.bytes": "-1", "local.retention.bytes": "-2"}
        ),
    )
    shown = text_of(config_page(section="topics"))
    assert "7 of 7 topics are tiered" in shown
    assert "▲ local retention by time is above the total" in shown
    assert "◆ local retention follows the total: tiering frees no disk" in shown


def test_history_names_who_did_what_and_how_it_ended(trouble: Database) -> None:
    shown = text_of(config_page(section="history"))
    assert "ops-1 (operator) execute toggle bootstrap broker 5 not set → true ✓ verified #2" in shown
    trouble.change(t.audit.delete())
    assert "Nobody has planned or changed anything yet." in text_of(config_page(section="history"))


def test_an_unknown_section_is_told_and_the_first_one_shown(trouble: Database) -> None:
    page = config_page(section="nope")
    assert [note.value for note in page.toast] == ["There is no section 'nope'; this is Follower bootstrap."]
    assert "Where the value comes from" in text_of(page)


def test_the_topic_of_the_link_is_in_the_form_and_one_that_is_gone_is_named(trouble: Database) -> None:
    chosen = config_page(section="topics", topic="orders")
    assert chosen.selectbox(key="topic").value == "orders"
    assert "Survives the loss of any one disk" in text_of(chosen)
    gone = config_page(section="topics", topic="no-such-topic")
    assert gone.selectbox(key="topic").value is None
    assert gone.toast[0].value == "There is no topic 'no-such-topic'; this is the default."
    assert gone.button(key="topic-change").disabled


def test_names_from_outside_are_text_and_never_markup(trouble: Database) -> None:
    evil = "<img src=x onerror=alert(1)>"
    trouble.change(
        t.operation.update().values(reason=evil, author=evil, result={"executed_by": evil}),
        t.audit.update().values(reason=evil, actor=evil, detail=evil),
        t.config_value.update().where(t.config_value.c.name != FLAG).values(value=evil),
    )
    for section in ("bootstrap", "brokers", "history"):
        markup = html_of(config_page(section=section))
        assert "<img src=x" not in markup
        assert "&lt;img src=x" in markup


def test_thresholds_are_asked_of_the_api_and_a_refusal_is_shown(
    trouble: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No control API is known here" in text_of(config_page(section="rules"))
    with refusing_api(tmp_path) as api:
        monkeypatch.setenv("EBBLINE_API_URL", api.url)
        assert "0 thresholds" in text_of(config_page(section="rules"))


def test_hold_severity_and_state_of_a_rule_are_set_for_topics(
    trouble: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_api(tmp_path) as api:
        monkeypatch.setenv("EBBLINE_API_URL", api.url)
        api.answers["/v1/alerts/rules"] = json.loads(ANSWER_EXAMPLES.read_text())["RuleSettingsAnswer"] | {
            "catalogue": [{"slug": "copy-slow", "title": "Copying falls behind", "explains": []}]
        }
        page = config_page(section="rules")
        assert not page.exception
        assert "1 rule · 1 is set, shown first" in text_of(page)
        page.selectbox(key="rule-settings-rule").select("copy-slow").run()
        page.text_input(key="rule-settings-topics").input("logs-*").run()
        assert page.number_input(key="rule-settings-hold-copy-slow-logs-*").value == 60.0
        assert page.button(key="rule-settings-set").help == "Nothing differs yet."
        page.number_input(key="rule-settings-hold-copy-slow-logs-*").set_value(300.0)
        page.selectbox(key="rule-settings-severity-copy-slow-logs-*").select("notice").run()
        assert page.button(key="rule-settings-set").help == "Give a reason first."
        page.text_input(key="rule-settings-reason").input("batch loads").run()
        page.button(key="rule-settings-set").click().run()
        assert not page.exception
        assert api.calls == ["POST /v1/alerts/rules/copy-slow"]
        values = {"for_s": 300.0, "severity": "notice"}
        assert api.bodies == [{"values": values, "topics": "logs-*", "reason": "batch loads"}]
        assert REFUSAL in text_of(page)


def test_a_threshold_says_its_value_its_default_and_why() -> None:
    row = {"slug": "follower-stuck", "name": "stuck_s", "unit": "s", "default": 30.0, "reason": "Kafka takes 30 s."}
    rows = rule_table.lines(
        {"thresholds": [row | {"value": 30.0, "topics": None}, row | {"value": 300.0, "topics": "logs-*"}]}
    )
    assert rule_table.clause(rows) == "2 thresholds · 1 differ from their default, shown first"
    shown = plain(rule_table.html(rows))
    assert "follower-stuck stuck_s logs-* 300 s 30 s Kafka takes 30 s." in shown
    assert "follower-stuck stuck_s all 30 s 30 s Kafka takes 30 s." in shown
    assert list(rule_table.frame(rows)["value"]) == [300.0, 30.0]
