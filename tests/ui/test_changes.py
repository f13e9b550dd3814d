"""Changes through the pages on a cluster that really runs: the flag, moves, two tabs, a backend that restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource as ClientResource
from streamlit.testing.v1 import AppTest

from backend.control.gateway.requests.config_requests import (
    BROKER,
    CLUSTER_DEFAULT,
    ConfigChange,
    ConfigResource,
    alter_configs,
)
from backend.protocol.config_enums import AlterConfigOp
from tests.control.site import CLUSTER_NAME, TIERED, ControlSite
from tests.engine_cluster import CLUSTER_ID
from tests.ui.conftest import open_page, press, text_of, viewer
from tests.ui.seed import FLAG
from tests.ui.test_config import broker_lines, config_page
from tests.waiting import wait_until

MOVED = "moved"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("site")) as made:
        made.create_topic("orders", partitions=1, config=TIERED)
        made.produce("orders", 2_000)
        made.create_topic(MOVED, partitions=2, replicas=1)
        made.produce(MOVED, 200)
        made.wait_until("it is sampled", lambda: all(row["local_log_bytes"] for row in made.partitions(MOVED)))
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
    change = ConfigChange(FLAG, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
    site.cluster.call(alter_configs(site.plane.parts.gateway, ConfigResource(BROKER, CLUSTER_DEFAULT), [change]))
    site.wait_until("the brokers show it", lambda: effective(site) == {value or "false"})


def effective(site: ControlSite) -> set[str | None]:
    """The values in effect on the brokers, as confluent-kafka gets them."""
    values = set()
    for broker_id in (1, 2, 3):
        resource = ClientResource(ClientResource.Type.BROKER, str(broker_id))
        values.add(site.admin.describe_configs([resource])[resource].result(10)[FLAG].value)
    return values


def seen(site: ControlSite) -> set[str]:
    return {row["value"] for row in site.get(f"/v1/config?name={FLAG}")["items"] if row["resource"]}


def plan_number(page: AppTest) -> int:
    """The plan in the dialog."""
    return next(
        int(str(field.key).partition("-")[2]) for field in page.text_input if str(field.key).startswith("reason-")
    )


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


def stray(site: ControlSite, node: int, unique: str) -> Path:
    """A folder as a broker keeps one."""
    folder = Path(site.cluster.layout.log_dirs[node], f"gone-0.{unique * 16}-stray")
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(bytes(5_000))
    note = {"version": 0, "setAsideMs": 1_700_000_000_000, "reason": "metadata has no replica of it"}
    (folder / "set-aside.json").write_text(json.dumps(note))
    return folder


def test_a_set_aside_folder_is_removed_through_the_dialog_and_only_the_one_that_was_named(cluster: ControlSite) -> None:
    folder, other = stray(cluster, 2, "ab"), stray(cluster, 2, "cd")

    def choices(page: AppTest) -> list[str]:
        return [name for box in page.selectbox if box.key == "set-aside-folder" for name in box.options]

    wait_until("both are listed", lambda: len(choices(config_page(section="brokers"))) == 2)
    page = config_page(section="brokers")
    page.selectbox(key="set-aside-folder").select_index(
        ["abab" in choice for choice in choices(page)].index(True)
    ).run()
    press(page, "set-aside-remove")
    shown = text_of(page)
    assert f"Deletes 1 folder, 5.1 kB. {folder.name}: metadata has no replica of it." in shown
    assert "It may be the only copy of its records. This cannot be reverted." in shown
    assert "Broker 2 keeps what is named, and nobody uses it." in shown
    assert folder.exists(), "looking at a plan removes nothing"
    confirm(page)
    page.button(key="act").click().run()
    assert not page.exception
    wait_until("it is gone", lambda: not folder.exists())
    assert (other / f"{0:020d}.log").exists()
    wait_until("it is not listed any more", lambda: len(choices(config_page(section="brokers"))) == 1)

    plan = cluster.get("/v1/plans?limit=1")["items"][0]
    assert cluster.operator.post(f"/v1/plans/{plan['id']}/revert").status_code == 409
    again = cluster.plan(plan["inputs"], kind="broker_config")
    assert "set-aside" in {check["name"] for check in again["checks"] if check["outcome"] == "refused"}


def test_a_plan_that_no_longer_fits_is_refused_in_the_dialog(cluster: ControlSite) -> None:
    page = config_page()
    press(page, "change")
    set_default(cluster, "true")
    confirm(page)
    page.button(key="act").click().run()
    assert "Nothing was changed. The cluster has changed since plan" in text_of(page)
    assert page.button(key="act").disabled
    page.button(key="keep").click().run()
    assert "act" not in {button.key for button in page.button}


def test_the_direction_is_of_the_moment_of_the_press_not_of_the_drawing(cluster: ControlSite) -> None:
    page = config_page()
    set_default(cluster, "true")
    cluster.wait_until("the observer sees it on", lambda: seen(cluster) == {"true"})
    press(page, "change")
    assert f"− {FLAG} = true (cluster default) + {FLAG} = false (cluster default, no restart)" in text_of(page)
    page.button(key="keep").click().run()


def test_keeping_it_as_it_is_changes_nothing(cluster: ControlSite) -> None:
    page = config_page()
    press(page, "change")
    page.button(key="keep").click().run()
    assert "act" not in {button.key for button in page.button}
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
    assert "act" not in {button.key for button in page.button}
    assert cluster.get("/v1/plans?limit=1000")["items"] == before
    assert effective(cluster) == {"false"}


def test_a_plan_that_would_change_nothing_cannot_be_confirmed(cluster: ControlSite) -> None:
    page = config_page()
    page.button_group(key="toggle-value").set_value("not set").run()
    press(page, "change-other")
    shown = text_of(page)
    assert "refused: " in shown
    assert "there is nothing to change" in shown
    assert "act" not in {button.key for button in page.button}


def test_two_tabs_that_act_on_one_plan_carry_it_out_once(cluster: ControlSite) -> None:
    page, other = config_page(), config_page()
    press(page, "change")
    # The other tab has the same plan in its dialog, with another key.
    other.session_state["pending_plan"] = replace(page.session_state["pending_plan"], key="of another tab")
    other.run()
    for tab in (page, other):
        confirm(tab)
    page.button(key="act").click().run()
    assert effective(cluster) == {"true"}
    other.button(key="act").click().run()
    assert not other.exception
    assert "Nothing was changed." in text_of(other)
    assert other.button(key="act").disabled
    plan_id = cluster.get("/v1/plans?limit=1")["items"][0]["id"]
    done = [row["result"] for row in cluster.get("/v1/audit?limit=10")["items"] if row["operation_id"] == plan_id]
    assert done.count("accepted") == 1


def test_a_backend_that_restarts_while_the_dialog_is_open_carries_the_plan_out_afterwards(
    cluster: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setenv("EBBLINE_API_URL", f"http://127.0.0.1:{cluster.plane.port}")
    page.button(key="act").click().run()
    assert not page.exception
    assert effective(cluster) == {"true"}


def factors(site: ControlSite) -> set[int]:
    partitions = site.admin.list_topics(MOVED, timeout=10).topics[MOVED].partitions
    return {len(partition.replicas) for partition in partitions.values()}


def test_replicas_are_added_through_the_page_and_taken_back(cluster: ControlSite) -> None:
    before = cluster.get("/v1/plans?limit=1000")["items"]
    page = open_page("reassign")
    page.selectbox(key="action").select("replication_factor")
    page.multiselect(key="topics").select(MOVED).run()
    page.number_input(key="factor").set_value(3).run()
    page.button(key="review").click().run()
    assert not page.exception
    shown = text_of(page)
    assert "What has to be copied 4 replicas" in shown
    assert "Nothing has been changed" in shown
    assert factors(cluster) == {1}
    assert cluster.get("/v1/plans?limit=1000")["items"] == before, "a review stores nothing"

    press(page, "move")
    confirm(page)
    page.button(key="act").click().run()
    assert not page.exception
    plan_id = cluster.get("/v1/plans?limit=1")["items"][0]["id"]
    cluster.wait_until(
        "it is verified", lambda: cluster.get(f"/v1/plans/{plan_id}")["plan"]["state"] == "verified", timeout_s=60
    )
    assert factors(cluster) == {3}
    page = open_page("reassign")
    assert "All 2 partitions have the replicas that were asked for." in text_of(page)
    press(page, f"revert-{plan_id}")
    confirm(page)
    page.button(key="act").click().run()
    assert not page.exception
    cluster.wait_until("they are gone", lambda: factors(cluster) == {1})


def carried_out(cluster: ControlSite, page: AppTest) -> None:
    """Confirms the dialog's plan, which is then verified."""
    number = plan_number(page)
    confirm(page)
    page.button(key="act").click().run()
    assert not page.exception
    cluster.wait_until(
        "it is verified", lambda: cluster.get(f"/v1/plans/{number}")["plan"]["state"] == "verified", timeout_s=60
    )


def listed(cluster: ControlSite, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Leader and replicas of each partition, as confluent-kafka sees them."""
    partitions = cluster.admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {number: (part.leader, list(part.replicas)) for number, part in partitions.items()}


def test_leaders_are_swapped_and_moved_back_from_the_pages(cluster: ControlSite) -> None:
    cluster.create_topic("led", partitions=1, replicas=2)
    cluster.wait_until("it is sampled", lambda: cluster.partitions("led"))
    leader, replicas = listed(cluster, "led")[0]
    assert leader == replicas[0]
    page = open_page("reassign")
    page.selectbox(key="action").select("swap_leaders")
    page.multiselect(key="topics").select("led").run()
    page.selectbox(key="from").select(replicas[0])
    page.selectbox(key="to").select(replicas[1]).run()
    assert "limit" not in {box.key for box in page.number_input}, "nothing is copied"
    press(page, "review")
    assert "Nothing is copied." in text_of(page)
    press(page, "save")
    before = cluster.get("/v1/plans?limit=1000")["items"]
    assert "save" not in {button.key for button in page.button}, "it is stored and shown as that"
    assert before[0]["state"] == "checked"
    press(page, "move")
    carried_out(cluster, page)
    assert cluster.get("/v1/plans?limit=1000")["items"][1:] == before[1:], "what was saved is what was carried out"
    assert listed(cluster, "led")[0] == (replicas[1], replicas[::-1])

    # Kafka's own way back: the first of the list is not elected by a reassignment that says nothing of it.
    plan = {"assignments": [{"topic": "led", "partition": 0, "replicas": replicas}], "unthrottled": True}
    cluster.execute(cluster.plan(plan, kind="reassign")["id"])
    cluster.wait_until("another order, the same leader", lambda: listed(cluster, "led")[0] == (replicas[1], replicas))
    page = open_page("partition", tp="led-0")
    press(page, "elect")
    carried_out(cluster, page)
    assert listed(cluster, "led")[0] == (replicas[0], replicas)


def test_records_are_removed_and_settings_changed_from_the_pages(cluster: ControlSite) -> None:
    page = open_page("partition", tp=f"{MOVED}-0")
    page.text_input(key="remove-below").input("40").run()
    press(page, "remove-records")
    assert any("kafka-delete-records" in code.value for code in page.code)
    carried_out(cluster, page)
    cluster.wait_until("it is seen", lambda: cluster.partitions(MOVED)[0]["log_start_offset"] == 40)

    page = open_page("config", section="topics")
    page.selectbox(key="topic").select(MOVED).run()
    page.text_input(key=f"retention.ms-{MOVED}").input("86 400 000").run()
    press(page, "topic-change")
    carried_out(cluster, page)
    resource = ClientResource(ClientResource.Type.TOPIC, MOVED)
    assert cluster.admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "86400000"

    page = open_page("config", section="brokers")
    limit = "remote.log.manager.copy.max.bytes.per.second"
    page.text_input(key="remote.log.manager.copier.thread.pool.size-None").input("1000").run()
    assert "Kafka takes half to double of" in text_of(page)
    assert page.button(key="broker-change").disabled
    page = open_page("config", section="brokers")
    page.text_input(key=f"{limit}-None").input("90 000 000").run()
    press(page, "broker-change")
    carried_out(cluster, page)
    resource = ClientResource(ClientResource.Type.BROKER, "2")
    assert cluster.admin.describe_configs([resource])[resource].result(10)[limit].value == "90000000"
