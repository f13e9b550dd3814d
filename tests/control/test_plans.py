"""Moves of replicas and leaders on a living cluster, refusals, the command line; another client sees what they did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backend.cli.shared.api_session import Exit
from backend.control.gateway.requests.reassignment_requests import list_reassignments
from backend.control.operations.reassign import reassignment
from backend.control.operations.reassign.reassignment import Reassign
from backend.protocol.errors import ErrorCode, KafkaError
from tests.control.feed import feed_ledger
from tests.control.site import TIERED, ControlSite
from tests.control.steps import (
    LIMIT,
    RATES,
    SETTINGS,
    SLOW,
    audit,
    broker,
    clears,
    cli,
    done,
    ended,
    limits,
    moving,
    replicas,
    revert,
    run,
    slow,
    steer,
    topic,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("site"), settings=SETTINGS) as made:
        yield made


def test_a_replica_is_added_with_a_limit_and_taken_away_by_the_revert(site: ControlSite) -> None:
    topic(site, "added", [[1], [2]])
    plan = site.plan(
        {"action": "add", "topics": ["added"], "brokers": [3], "throttle_bytes_per_s": LIMIT}, kind="reassign"
    )
    assert plan["state"] == "checked", plan["checks"]
    assert replicas(site, "added") == {0: [1], 1: [2]}, "a plan changes nothing"

    site.execute(plan["id"])
    done = ended(site, plan["id"])
    assert done["state"] == "verified", done["result"]
    assert replicas(site, "added") == {0: [1, 3], 1: [2, 3]}
    assert limits(site, "added") == {}
    assert audit(site, plan["id"]) == [("execute reassign", "accepted"), ("execute reassign", "verified")]

    back = site.operator.post(f"/v1/plans/{plan['id']}/revert", json={"reason": "enough"}).json()["plan"]
    site.execute(back["id"])
    assert ended(site, back["id"])["state"] == "verified"
    assert replicas(site, "added") == {0: [1], 1: [2]}
    assert site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "reverted"


def test_a_move_shows_how_far_it_is_can_be_paused_and_hurried_and_leaves_no_limit(site: ControlSite) -> None:
    plan = slow(site, "hurried", 3, at_once=1)
    estimate = plan["estimate"]
    assert estimate["in_effect_bytes"] == sum(row["local_log_bytes"] for row in site.partitions("hurried"))
    assert estimate["in_effect_ms"] == round(estimate["in_effect_bytes"] * 1000 / SLOW)
    site.execute(plan["id"], wait_ms=0)
    running = moving(site, plan["id"])
    assert running["state"] == "running"
    assert running["progress"]["counts"]["waiting"] == 2
    assert set(limits(site, "hurried").values()) == {str(SLOW), "0:1,0:2,1:1,1:2,2:1,2:2", "0:3,1:3,2:3"}

    assert steer(site, plan["id"], "pause")["state"] == "paused"
    hurried = steer(site, plan["id"], "limit", throttle_bytes_per_s=LIMIT)
    assert hurried["throttle_bytes_per_s"] == LIMIT
    site.wait_until(
        "nothing moves", lambda: site.get(f"/v1/plans/{plan['id']}")["plan"]["progress"]["counts"]["moving"] == 0
    )
    site.wait_until("a paused plan holds nothing back", lambda: limits(site, "hurried") == {})
    assert site.get(f"/v1/plans/{plan['id']}")["plan"]["progress"]["counts"]["waiting"] == 2

    assert steer(site, plan["id"], "resume")["state"] == "running"
    done = ended(site, plan["id"])
    assert done["state"] == "verified", done["result"]
    assert limits(site, "hurried") == {}
    measured = done["progress"]["copied_bytes"]
    assert abs(measured - estimate["in_effect_bytes"]) <= 0.15 * estimate["in_effect_bytes"]


def test_a_stopped_move_puts_back_what_was_moving_in_its_old_order(site: ControlSite) -> None:
    topic(site, "stopped", [[1, 2]] * 2, records=0)
    site.produce("stopped", 160, value_bytes=1000)
    assignments = [{"topic": "stopped", "partition": p, "replicas": [3, 2]} for p in (0, 1)]
    plan = site.plan({"assignments": assignments, "throttle_bytes_per_s": SLOW, "at_once": 1}, kind="reassign")
    assert plan["state"] == "checked", plan["checks"]
    site.execute(plan["id"], wait_ms=0)
    moving(site, plan["id"])
    assert steer(site, plan["id"], "stop")["intent"] == "stop"
    done = ended(site, plan["id"])
    assert done["state"] == "stopped", done["result"]
    assert replicas(site, "stopped") == {0: [1, 2], 1: [1, 2]}
    assert limits(site, "stopped") == {}
    assert ("execute reassign", "stopped") in audit(site, plan["id"])
    assert site.operator.post(f"/v1/plans/{plan['id']}/pause", json={}).status_code == 409


def test_a_broker_that_leaves_in_the_middle_of_a_move_leaves_nothing_half_done(site: ControlSite) -> None:
    plan = slow(site, "deserted", 2, at_once=1)
    site.execute(plan["id"], wait_ms=0)
    moving(site, plan["id"])
    site.cluster.kill_broker(3)
    site.wait_until("it is missed", lambda: not broker(site, 3)["reachable"])
    assert site.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "running", "it goes on when the broker is back"
    more = {"action": "add", "topics": ["deserted"], "brokers": [3], "throttle_bytes_per_s": LIMIT}

    def refused() -> str:
        """Why no such plan can be made; until the controller has missed the broker, that it does not answer."""
        answer = site.operator.post("/v1/plans", json={"kind": "reassign", "inputs": more})
        if answer.status_code == 503:
            assert "nothing was changed" in answer.json()["detail"]
            return ""
        made = answer.json()["plan"]
        assert made["state"] == "refused"
        return " ".join(check["sentence"] for check in made["checks"] if check["outcome"] == "refused")

    assert "roker 3" in site.wait_until("the plan is refused", refused)
    steer(site, plan["id"], "stop")
    done_ = ended(site, plan["id"])
    assert done_["state"] == "stopped", done_["result"]
    assert replicas(site, "deserted") == {0: [1, 2], 1: [1, 2]}
    # A broker's own settings can be changed only through itself.
    assert set(limits(site, "deserted")) <= {f"3 {rate}" for rate in RATES}
    reports_a_limit = "Broker 3 is away and keeps its limit" in done_["result"]["sentence"]
    assert reports_a_limit == bool(limits(site, "deserted")), done_["result"]
    site.cluster.start_broker(3)
    site.wait_until("it is back", lambda: broker(site, 3)["reachable"])
    if limits(site, "deserted"):
        site.wait_until("its limit can be cleared", lambda: clears(site), timeout_s=60)
    assert limits(site, "deserted") == {}


def test_a_move_goes_on_after_the_control_plane_was_stopped(site: ControlSite) -> None:
    plan = slow(site, "resumed", 2)
    site.execute(plan["id"], wait_ms=0)
    moving(site, plan["id"])
    site.stop_plane()
    assert limits(site, "resumed"), "the move goes on without us"
    site.start_plane()
    steer(site, plan["id"], "limit", throttle_bytes_per_s=LIMIT)
    done = ended(site, plan["id"])
    assert done["state"] == "verified", done["result"]
    assert "recovered" in [step["state"] for step in done["result"]["steps"]]
    assert replicas(site, "resumed") == {0: [1, 2, 3], 1: [1, 2, 3]}
    assert limits(site, "resumed") == {}


def test_a_move_that_kafka_refuses_in_the_middle_says_what_goes_on_without_it(
    site: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some 2,500 fetches: it still moves when the limits are gone and the plan looks.
    plan = slow(site, "abandoned", 2, at_once=1, records=20_000)
    site.execute(plan["id"], wait_ms=0)
    moving(site, plan["id"])
    refusals = iter([KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])

    async def refused_once(*given: Any, **more: Any) -> Any:
        for refusal in refusals:
            raise refusal
        return await list_reassignments(*given, **more)

    monkeypatch.setattr(reassignment, "list_reassignments", refused_once)
    failed = ended(site, plan["id"])
    assert failed["state"] == "failed"
    assert "1 partition still moves, without a limit now" in failed["result"]["sentence"]
    assert limits(site, "abandoned") == {}

    def ended_by_kafka() -> bool:
        first = site.partitions("abandoned")[0]
        return sorted(first["isr"]) == [1, 2, 3] and not first["adding_replicas"]

    site.wait_until("Kafka has ended it", ended_by_kafka)
    assert replicas(site, "abandoned") == {0: [1, 2, 3], 1: [1, 2]}
    assert revert(site, plan["id"]) == 201
    assert replicas(site, "abandoned") == {0: [1, 2], 1: [1, 2]}


def test_a_fault_of_ours_ends_a_move_with_what_stays_and_the_next_one_can_begin(
    site: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def faulty(*_: object) -> str:
        raise RuntimeError("a fault")

    topic(site, "faulty", [[1]])
    inputs = {"action": "add", "topics": ["faulty"], "brokers": [2], "throttle_bytes_per_s": LIMIT}
    plan = site.plan(inputs, kind="reassign")
    with monkeypatch.context() as patch:
        patch.setattr(Reassign, "clean", faulty)
        site.execute(plan["id"])
        failed = ended(site, plan["id"])
    assert failed["state"] == "failed"
    assert failed["result"]["sentence"].endswith("Remove them with a plan of clear_throttle.")
    assert limits(site, "faulty"), "they are left, as it says"
    done(site, "clear_throttle", {})
    assert limits(site, "faulty") == {}
    done(site, "reassign", {"action": "remove", "topics": ["faulty"], "brokers": [2]})


def test_a_plan_is_refused_when_others_moved_the_partition_and_when_another_plan_runs(site: ControlSite) -> None:
    plan = slow(site, "first", 1)
    topic(site, "second", [[1]])
    inputs = {"action": "add", "topics": ["second"], "brokers": [3], "throttle_bytes_per_s": LIMIT}
    second, third = site.plan(inputs, kind="reassign"), site.plan(inputs, kind="reassign")
    site.execute(plan["id"], wait_ms=0)
    moving(site, plan["id"])
    meanwhile = site.execute(second["id"])
    assert (meanwhile.status_code, f"Plan {plan['id']}" in meanwhile.json()["detail"]) == (409, True)
    steer(site, plan["id"], "stop")
    assert ended(site, plan["id"])["state"] == "stopped"

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda key: site.execute(second["id"], key=key), ("both-a", "both-b")))
    assert sorted(a.status_code for a in answers)[-1] == 409
    assert ended(site, second["id"])["state"] == "verified"
    stale = site.execute(third["id"])
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:ebbline:problem:stale-plan")
    assert "second-0" in stale.json()["detail"]


def test_the_version_of_the_plan_that_was_seen_can_be_asked_for(site: ControlSite) -> None:
    topic(site, "seen", [[1]])
    inputs = {"action": "add", "topics": ["seen"], "brokers": [2], "throttle_bytes_per_s": LIMIT}
    plan = site.plan(inputs, kind="reassign")
    tag = site.operator.get(f"/v1/plans/{plan['id']}").headers["ETag"]
    body = {"confirm": "demo", "reason": "a test"}
    url = f"/v1/plans/{plan['id']}/execute"
    other = site.operator.post(url, json=body, headers={"Idempotency-Key": "etag-1", "If-Match": '"another"'})
    assert (other.status_code, other.json()["type"]) == (412, "urn:ebbline:problem:plan-changed")
    site.operator.post(url, json=body, headers={"Idempotency-Key": "etag-2", "If-Match": tag})
    assert ended(site, plan["id"])["state"] == "verified"
    with site.operator.stream("GET", f"/v1/plans/{plan['id']}/events") as events:
        text = "".join(events.iter_text())
    assert text.startswith("event: plan\n")
    assert '"state":"verified"' in text


@pytest.mark.parametrize(
    ("inputs", "check"),
    [
        ({"action": "add", "topics": ["refused"], "brokers": [9], "throttle_bytes_per_s": LIMIT}, "brokers"),
        ({"action": "add", "topics": ["refused"], "brokers": [3]}, "limit"),
        ({"action": "add", "topics": ["refused"], "brokers": [1], "throttle_bytes_per_s": LIMIT}, "change"),
    ],
)
def test_what_cannot_be_is_refused_by_a_check(site: ControlSite, inputs: dict[str, Any], check: str) -> None:
    if "refused" not in site.admin.list_topics(timeout=10).topics:
        topic(site, "refused", [[1, 2]], records=0)
    plan = site.plan(inputs, kind="reassign")
    assert plan["state"] == "refused"
    assert check in {plan_check["name"] for plan_check in plan["checks"] if plan_check["outcome"] == "refused"}
    assert site.execute(plan["id"]).status_code == 409


@pytest.mark.parametrize(
    "inputs",
    [
        {"action": "add", "topics": ["no-such-topic"], "brokers": [1]},
        {"action": "replication_factor", "topics": ["__remote_log_metadata"], "factor": 4},
        {"action": "remove", "topics": ["__remote_log_metadata"], "brokers": [1, 2, 3]},
        {"action": "move", "topics": ["a"], "brokers": [1]},
        {"action": "move", "topics": ["__remote_log_metadata"], "brokers": [2, 2]},
        {"assignments": [{"topic": "no-such-topic", "partition": 0, "replicas": [1]}]},
        {"action": "drain"},
    ],
)
def test_what_makes_no_sense_is_no_plan(site: ControlSite, inputs: dict[str, Any]) -> None:
    answer = site.operator.post("/v1/plans", json={"kind": "reassign", "inputs": inputs})
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert detail.endswith(".")
    assert "Value error" not in detail


def test_leaders_are_spread_and_the_preferred_ones_elected(site: ControlSite) -> None:
    topic(site, "spread", [[1, 2], [1, 2], [1, 2]], records=0)
    spread = done(site, "reassign", {"action": "spread_leaders", "topics": ["spread"]})
    assert sorted(assignment[0] for assignment in replicas(site, "spread").values()) == [1, 1, 2]
    assert spread["estimate"]["replicas"] == 0
    elected = done(site, "elect", {"topics": ["spread"]})
    leaders = {p: part.leader for p, part in site.admin.list_topics("spread").topics["spread"].partitions.items()}
    assert leaders == {p: assignment[0] for p, assignment in replicas(site, "spread").items()}
    assert revert(site, elected["id"]) == 409
    again = site.operator.post("/v1/plans", json={"kind": "elect", "inputs": {"topics": ["spread"]}})
    assert again.status_code == 422
    before = replicas(site, "spread")
    swapped = done(site, "reassign", {"action": "swap_leaders", "topics": ["spread"], "brokers": [1, 2], "elect": True})
    assert replicas(site, "spread") == {p: list(reversed(assignment)) for p, assignment in before.items()}
    assert swapped["estimate"]["replicas"] == 0
    leaders = {p: part.leader for p, part in site.admin.list_topics("spread").topics["spread"].partitions.items()}
    assert leaders == {p: assignment[-1] for p, assignment in before.items()}


def test_with_the_flag_on_a_new_replica_copies_what_the_estimate_says(site: ControlSite) -> None:
    site.create_topic("foreseen", partitions=1, replicas=1, config=TIERED)
    site.produce("foreseen", 1_500)
    site.wait_until(
        "local data went",
        lambda: [row for row in site.partitions("foreseen") if (row["local_log_start_offset"] or 0) > 0],
    )
    site.wait_until_quiet("foreseen")
    feed_ledger(site)
    holder = site.partitions("foreseen")[0]["leader"]
    joining = holder % 3 + 1
    flag = done(site, "toggle_bootstrap", {"scope": "broker", "broker_id": joining, "enable": True})
    inputs = {"action": "add", "topics": ["foreseen"], "brokers": [joining], "throttle_bytes_per_s": LIMIT}
    draft = {"kind": "reassign", "inputs": inputs, "dry_run": True}
    site.wait_until(
        "the samples tell that it qualifies",
        lambda: site.operator.post("/v1/plans", json=draft).json()["estimate"]["qualifies"] == 1,
    )
    moved = done(site, "reassign", inputs)
    estimate, measured = moved["estimate"], moved["progress"]["copied_bytes"]
    assert estimate["qualifies"] == 1
    assert estimate["in_effect_bytes"] == estimate["on_bytes"] < estimate["off_bytes"] / 2
    assert abs(measured - estimate["on_bytes"]) <= 0.15 * estimate["on_bytes"]
    assert revert(site, flag["id"]) == 201


def test_a_broker_is_drained(site: ControlSite) -> None:
    topic(site, "drained", [[1, 3], [3, 2], [1, 2]], records=0)
    done(site, "reassign", {"action": "drain", "topics": ["drained"], "brokers": [3], "unthrottled": True})
    assert {b for replica in replicas(site, "drained").values() for b in replica} == {1, 2}
    more = {"action": "replication_factor", "topics": ["drained"], "factor": 3, "unthrottled": True}
    done(site, "reassign", more)
    assert all(sorted(replica) == [1, 2, 3] for replica in replicas(site, "drained").values())


def test_the_command_line_plans_applies_exports_and_reverts(site: ControlSite, tmp_path: Path) -> None:
    topic(site, "typed", [[1], [2]], records=20)
    draft = cli(site, "plan", "add", "typed", "--broker", "3", "--throttle", "50MB", "--dry-run")
    assert "Nothing has been changed." in draft
    assert "kafka-reassign-partitions.sh" in draft
    plan = json.loads(cli(site, "plan", "add", "typed", "--broker", "3", "--throttle", "50MB", "--json"))
    assert plan["inputs"]["throttle_bytes_per_s"] == LIMIT
    said = cli(site, "apply", str(plan["id"]), "--yes", "--reason", "a test")
    assert f"Plan {plan['id']} is verified." in said
    assert replicas(site, "typed") == {0: [1, 3], 1: [2, 3]}
    assert f"Plan {plan['id']} is verified." in cli(site, "watch", str(plan["id"]))

    file = tmp_path / "back.json"
    file.write_text(cli(site, "export", str(plan["id"]), "--before"))
    assert json.loads(file.read_text())["partitions"][0] == {"topic": "typed", "partition": 0, "replicas": [1]}
    same = json.loads(cli(site, "plan", "assign", str(file), "--json"))
    assert same["inputs"]["assignments"] == json.loads(file.read_text())["partitions"]
    cli(site, "revert", str(plan["id"]), "--yes", "--reason", "enough")
    assert replicas(site, "typed") == {0: [1], 1: [2]}
    assert "reverted" in cli(site, "plans", "--limit", "3")

    refused = site.plan({"action": "add", "topics": ["typed"], "brokers": [3]}, kind="reassign")
    result = run(site, "watch", str(refused["id"]))
    why = "Give a limit in bytes per second, or say unthrottled."
    assert (result.exit_code, result.stdout.strip()) == (Exit.REFUSED, f"Plan {refused['id']} is refused. {why}")
