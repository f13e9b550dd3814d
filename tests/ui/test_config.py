"""Config: what is in effect and from where, and the toggle from plan to revert on a cluster that really runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource
from streamlit.testing.v1 import AppTest

from backend.control.gateway.configs import BROKER, CLUSTER_DEFAULT, AlterOp, ConfigChange, Resource, alter_configs
from backend.store import tables as t
from tests.control.site import CLUSTER_NAME, TIERED, ControlSite
from tests.engine_cluster import CLUSTER_ID
from tests.ui.conftest import Database, html_of, open_page, plain, press, text_of, viewer
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
    assert "act" not in {one.key for one in page.button}
    page.button(key="dismiss").click().run()
    assert "Nothing was changed." not in text_of(page)


def test_settings_that_differ_between_brokers_come_first(trouble: Database) -> None:
    shown = text_of(config_page(section="brokers"))
    assert "6 brokers · 2 differ, shown first" in shown
    pool = "remote.log.manager.copier.thread.pool.size ◆ differs 20 this broker broker 5"
    assert 0 < shown.index(FLAG) < shown.index(pool) < shown.index("remote.log.storage.system.enable true")
    assert "broker's file every broker with a restart" in shown


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


# --- on a cluster that runs ---


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("site")) as made:
        made.create_topic("orders", partitions=1, config=TIERED)
        made.produce("orders", 2_000)
        yield made


@pytest.fixture
def cluster(site: ControlSite, monkeypatch: pytest.MonkeyPatch) -> ControlSite:
    """The dashboard belongs to this cluster; the flag is set nowhere."""
    monkeypatch.setenv("EBBLINE_DATABASE_URL", site.database_url)
    monkeypatch.setenv("EBBLINE_CLUSTER_ID", CLUSTER_ID)
    monkeypatch.setenv("EBBLINE_API_URL", f"http://127.0.0.1:{site.plane.port}")
    monkeypatch.setenv("EBBLINE_API_TOKEN_FILE", str(site.folder / "run" / "app.token"))
    set_default(site, None)
    site.wait_until("the observer sees it off", lambda: seen(site) == {"false"})
    return site


def set_default(site: ControlSite, value: str | None) -> None:
    """The cluster default, changed past the control plane."""
    change = ConfigChange(FLAG, AlterOp.DELETE if value is None else AlterOp.SET, value)
    site.cluster.call(alter_configs(site.plane.gateway, Resource(BROKER, CLUSTER_DEFAULT), [change]))
    site.wait_until("the brokers show it", lambda: effective(site) == {value or "false"})


def effective(site: ControlSite) -> set[str | None]:
    """The values in effect on the brokers, as confluent-kafka gets them."""
    found = set()
    for broker_id in (1, 2, 3):
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
        found.add(site.admin.describe_configs([resource])[resource].result(10)[FLAG].value)
    return found


def seen(site: ControlSite) -> set[str]:
    return {row["value"] for row in site.get(f"/v1/config?name={FLAG}")["items"] if row["resource"]}


def plan_number(page: AppTest) -> int:
    """The plan in the dialog."""
    return next(int(str(one.key).partition("-")[2]) for one in page.text_input if str(one.key).startswith("reason-"))


def confirm(page: AppTest, name: str = CLUSTER_NAME, reason: str = "a test") -> None:
    number = plan_number(page)
    page.text_input(key=f"reason-{number}").input(reason)
    page.text_input(key=f"confirm-{number}").input(name).run()
    assert not page.exception


def test_the_flag_goes_on_through_the_dialog_and_off_by_its_revert(cluster: ControlSite) -> None:
    page = config_page()
    press(page, "change")
    shown = text_of(page)
    assert "Cluster demo . A new, empty follower will start at the first offset not yet uploaded" in shown
    assert f"− {FLAG} = false (default) + {FLAG} = true (cluster default, no restart)" in shown
    assert "Every broker answers." in shown
    assert any("--entity-default" in code.value and f"{FLAG}=true" in code.value for code in page.code)
    assert page.button(key="act").disabled
    assert effective(cluster) == {"false"}, "looking at a plan changes nothing"

    confirm(page, name="dem")
    assert page.button(key="act").disabled
    confirm(page, reason=" ")
    assert page.button(key="act").disabled
    confirm(page)
    page.button(key="act").click().run()
    assert not page.exception
    assert effective(cluster) == {"true"}
    shown = text_of(page)
    assert "cluster default: not set → true. Every broker shows it." in shown
    assert "local operator cluster default not set → true ✓ verified a test" in shown

    plan_id = cluster.get("/v1/plans?limit=1")["items"][0]["id"]
    press(page, f"revert-{plan_id}")
    assert f"Puts back not set for brokers (cluster default). Cluster {CLUSTER_NAME} ." in text_of(page)
    confirm(page, reason="enough")
    page.button(key="act").click().run()
    assert effective(cluster) == {"false"}
    assert "true → not set. Every broker shows it." in text_of(page)
    done = [(row["actor"], row["action"], row["result"]) for row in cluster.get("/v1/audit?limit=2")["items"]]
    assert done == [("local operator", "revert toggle_bootstrap", result) for result in ("verified", "accepted")]


def test_a_plan_that_no_longer_fits_is_refused_in_the_dialog(cluster: ControlSite) -> None:
    page = config_page()
    press(page, "change")
    set_default(cluster, "true")
    confirm(page)
    page.button(key="act").click().run()
    assert "Nothing was changed. The cluster has changed since plan" in text_of(page)
    assert page.button(key="act").disabled
    page.button(key="keep").click().run()
    assert "act" not in {one.key for one in page.button}


def test_keeping_it_as_it_is_changes_nothing(cluster: ControlSite) -> None:
    page = config_page()
    press(page, "change")
    page.button(key="keep").click().run()
    assert "act" not in {one.key for one in page.button}
    assert effective(cluster) == {"false"}


def test_one_broker_can_be_given_its_own_value_and_lose_it_again(cluster: ControlSite) -> None:
    page = config_page()
    page.selectbox(key="toggle-scope").select(2).run()
    press(page, "change-other")
    assert any("--entity-name 2" in code.value for code in page.code)
    confirm(page)
    page.button(key="act").click().run()
    assert effective(cluster) == {"true", "false"}
    cluster.wait_until("the observer sees it", lambda: seen(cluster) == {"true", "false"})
    page = config_page()
    assert broker_lines(page)["Broker 2"].startswith("false not set true wins on ◆ local operator · ")
    press(page, f"revert-{cluster.get('/v1/plans?limit=1')['items'][0]['id']}")
    confirm(page)
    page.button(key="act").click().run()
    assert effective(cluster) == {"false"}


def test_a_viewer_may_try_it_and_that_changes_nothing(cluster: ControlSite) -> None:
    before = cluster.get("/v1/plans?limit=1000")["items"]
    page = config_page(user=viewer())
    page.button(key="dry-run").click().run()
    assert not page.exception
    shown = text_of(page)
    assert "This was a dry run of “Turn on bootstrap from the tiered offset”." in shown
    assert "act" not in {one.key for one in page.button}
    assert cluster.get("/v1/plans?limit=1000")["items"] == before
    assert effective(cluster) == {"false"}


def test_a_plan_that_would_change_nothing_cannot_be_confirmed(cluster: ControlSite) -> None:
    page = config_page()
    page.button_group(key="toggle-value").set_value("not set").run()
    press(page, "change-other")
    shown = text_of(page)
    assert "refused: " in shown
    assert "there is nothing to change" in shown
    assert "act" not in {one.key for one in page.button}


def test_an_api_that_stops_while_the_dialog_is_open_leaves_the_plan_and_says_so(cluster: ControlSite) -> None:
    page = config_page()
    press(page, "change")
    confirm(page)
    cluster.stop_plane()
    try:
        page.button(key="act").click().run()
        assert "The control API does not answer; nothing was changed." in text_of(page)
    finally:
        cluster.start_plane()
    assert effective(cluster) == {"false"}
