"""The toggle from plan to revert on a living cluster; another client sees each step on the brokers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource as ClientResource
from kafka import KafkaAdminClient
from kafka.admin import AlterConfigOp as AdminOp
from kafka.admin import ConfigResource as AdminResource
from kafka.admin import ConfigResourceType

from backend.control.gateway.requests.config_requests import (
    BROKER,
    CLUSTER_DEFAULT,
    ConfigChange,
    ConfigResource,
    alter_configs,
)
from backend.protocol.config_enums import AlterConfigOp
from tests.control.site import CLUSTER_NAME, FLAG, ControlSite

DONE_ONCE = [("execute toggle_bootstrap", "accepted"), ("execute toggle_bootstrap", "verified")]


@pytest.fixture(scope="module")
def kafka_python(site: ControlSite) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=site.cluster.bootstrap)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def flag_off(site: ControlSite, kafka_python: KafkaAdminClient) -> None:
    """Each test begins with the flag set nowhere."""
    for broker in ("1", "2", "3"):
        change(kafka_python, broker, None)
    # No client library can name the brokers' common default.
    default = ConfigResource(BROKER, CLUSTER_DEFAULT)
    site.cluster.call(alter_configs(site.plane.parts.gateway, default, [ConfigChange(FLAG, AlterConfigOp.DELETE)]))
    site.wait_until("the flag is off", lambda: effective(site) == {1: "false", 2: "false", 3: "false"})


def change(client: KafkaAdminClient, broker: str, value: str | None) -> None:
    """The setting, changed past the control plane by another client; None removes it."""
    operation = (AdminOp.DELETE, None) if value is None else (AdminOp.SET, value)
    admin_resource = AdminResource(ConfigResourceType.BROKER, broker, configs={FLAG: operation})
    client.alter_configs([admin_resource], raise_on_unknown=False)


def effective(site: ControlSite) -> dict[int, str]:
    """The value in effect on each broker, as confluent-kafka gets it."""
    values = {}
    for broker_id in (1, 2, 3):
        resource = ClientResource(ClientResource.Type.BROKER, str(broker_id))
        values[broker_id] = site.admin.describe_configs([resource])[resource].result(10)[FLAG].value
    return values


def audit(site: ControlSite, plan_id: int) -> list[tuple[str, str]]:
    """(action, result) of a plan, oldest first."""
    items = site.get("/v1/audit?limit=1000")["items"]
    return [(row["action"], row["result"]) for row in reversed(items) if row["operation_id"] == plan_id]


def test_plan_execute_verify_and_revert_for_the_whole_cluster(site: ControlSite) -> None:
    plan = site.plan({"enable": True})
    assert (plan["state"], effective(site)) == ("checked", {1: "false", 2: "false", 3: "false"})
    assert [(row["before"], row["after"]) for row in plan["diff"]["matrix"]] == [("false", "true")] * 3

    done = site.execute(plan["id"])
    assert (done.status_code, done.json()["plan"]["state"]) == (200, "verified")
    assert effective(site) == {1: "true", 2: "true", 3: "true"}
    assert audit(site, plan["id"]) == [
        ("execute toggle_bootstrap", "accepted"),
        ("execute toggle_bootstrap", "verified"),
    ]
    site.wait_until(
        "the database shows it",
        lambda: {r["value"] for r in site.get(f"/v1/config?name={FLAG}")["items"]} == {"true"},
    )

    back = site.operator.post(f"/v1/plans/{plan['id']}/revert", json={"reason": "enough"})
    assert back.status_code == 201
    assert site.execute(back.json()["plan"]["id"]).json()["plan"]["state"] == "verified"
    assert effective(site) == {1: "false", 2: "false", 3: "false"}
    assert site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "reverted"
    levels = site.plan({"enable": True})["snapshot"]
    assert levels["cluster_default"] is None, "a value that was not set before is removed, not set to false"


def test_one_broker_keeps_its_own_value(site: ControlSite) -> None:
    own = site.plan({"scope": "broker", "broker_id": 3, "enable": False})
    assert site.execute(own["id"]).json()["plan"]["state"] == "verified"
    plan = site.plan({"enable": True})
    assert "own-values" in {check["name"] for check in plan["checks"] if check["outcome"] == "warning"}
    assert site.execute(plan["id"]).json()["plan"]["state"] == "verified"
    assert effective(site) == {1: "true", 2: "true", 3: "false"}


def test_a_plan_is_refused_when_the_value_was_changed_meanwhile(
    site: ControlSite, kafka_python: KafkaAdminClient
) -> None:
    plan = site.plan({"enable": True})
    change(kafka_python, "2", "true")
    site.wait_until("broker 2 has its own value", lambda: effective(site)[2] == "true")
    answer = site.execute(plan["id"])
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:ebbline:problem:stale-plan")
    assert "brokers.2" in answer.json()["detail"]
    assert site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "refused"
    assert effective(site) == {1: "false", 2: "true", 3: "false"}
    assert audit(site, plan["id"]) == [("execute toggle_bootstrap", "refused")]
    assert site.execute(plan["id"]).status_code == 409


def test_the_same_key_executes_once_and_gives_the_same_answer(site: ControlSite) -> None:
    plan = site.plan({"enable": True})
    first, second = site.execute(plan["id"], key="once"), site.execute(plan["id"], key="once")
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert audit(site, plan["id"]) == [
        ("execute toggle_bootstrap", "accepted"),
        ("execute toggle_bootstrap", "verified"),
    ]


def test_ten_people_who_execute_the_same_plan_at_once_do_it_once(site: ControlSite) -> None:
    plan = site.plan({"enable": True})
    clients = [site.person(f"person-{n}", "operator") for n in range(10)]
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda n: site.execute(plan["id"], key=f"race-{n}", client=clients[n]), range(10)))
    assert sorted(a.status_code for a in answers) == [200] + [409] * 9
    results = [result for _, result in audit(site, plan["id"])]
    assert (results.count("accepted"), results.count("verified")) == (1, 1)


def test_of_two_plans_for_the_same_value_that_are_executed_at_once_the_second_is_stale(site: ControlSite) -> None:
    plans = [site.plan({"scope": "broker", "broker_id": 2, "enable": enable}) for enable in (True, False)]
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda plan: site.execute(plan["id"]), plans))
    assert sorted(answer.status_code for answer in answers) == [200, 409], [answer.text for answer in answers]
    states = {plan["id"]: site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] for plan in plans}
    assert sorted(states.values()) == ["refused", "verified"]
    (made,) = (plan_id for plan_id, state in states.items() if state == "verified")
    back = site.operator.post(f"/v1/plans/{made}/revert", json={}).json()["plan"]
    assert site.execute(back["id"]).json()["plan"]["state"] == "verified"


def test_a_key_of_another_plan_is_refused(site: ControlSite) -> None:
    first = site.plan({"scope": "broker", "broker_id": 1, "enable": True})
    second = site.plan({"scope": "broker", "broker_id": 2, "enable": True})
    assert site.execute(first["id"], key="shared").status_code == 200
    answer = site.execute(second["id"], key="shared")
    assert answer.status_code == 409
    assert effective(site)[2] == "false"
    assert site.get(f"/v1/plans/{second['id']}")["plan"]["state"] == "checked"


@pytest.mark.parametrize(
    ("confirm", "reason"), [("dem", "a test"), ("", "a test"), (CLUSTER_NAME, ""), (CLUSTER_NAME, "  ")]
)
def test_without_the_typed_name_and_a_reason_nothing_happens(site: ControlSite, confirm: str, reason: str) -> None:
    plan = site.plan({"enable": True})
    assert site.execute(plan["id"], confirm=confirm, reason=reason).status_code == 422
    assert effective(site) == {1: "false", 2: "false", 3: "false"}
    assert audit(site, plan["id"]) == [("execute toggle_bootstrap", "refused")]
    assert site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "checked"


def test_a_plan_that_changes_nothing_is_refused_and_cannot_be_executed(site: ControlSite) -> None:
    plan = site.plan({"enable": None})
    assert plan["state"] == "refused"
    assert site.execute(plan["id"]).status_code == 409


def test_only_a_plan_that_has_changed_something_can_be_reverted(site: ControlSite) -> None:
    plan = site.plan({"enable": True})
    answer = site.operator.post(f"/v1/plans/{plan['id']}/revert", json={})
    assert answer.status_code == 409


def test_a_dry_run_stores_nothing(site: ControlSite) -> None:
    before = site.get("/v1/plans?limit=1000")["items"]
    viewer = site.person("guest", "viewer")
    body: dict[str, Any] = {"kind": "toggle_bootstrap", "inputs": {"enable": True}, "dry_run": True}
    answer = viewer.post("/v1/plans", json=body)
    assert answer.status_code == 200
    assert answer.json()["refused"] is False
    assert site.get("/v1/plans?limit=1000")["items"] == before


def test_a_broker_that_is_away_cannot_be_changed_and_the_rest_can(site: ControlSite) -> None:
    site.cluster.stop_broker(3)
    try:
        site.wait_until("broker 3 is seen to be away", lambda: not _reachable(site, 3))
        own = site.plan({"scope": "broker", "broker_id": 3, "enable": True})
        assert own["state"] == "refused"
        plan = site.plan({"enable": True})
        assert plan["state"] == "checked"
        done = site.execute(plan["id"]).json()["plan"]
        assert (done["state"], done["result"]["verification"]["silent"]) == ("verified", [3])
    finally:
        site.cluster.start_broker(3)
    site.wait_until("broker 3 is back", lambda: _reachable(site, 3))
    assert effective(site) == {1: "true", 2: "true", 3: "true"}


def _reachable(site: ControlSite, broker_id: int) -> bool:
    return any(b["broker_id"] == broker_id and b["reachable"] for b in site.get("/v1/brokers")["items"])
