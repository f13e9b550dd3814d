"""Plans of every kind but the toggle on a living cluster; another client sees what they did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backend.cli.api import Exit
from backend.cli.main import app
from backend.control.gateway.reassignments import list_reassignments
from backend.control.operations import reassign
from backend.control.operations.delete_records import DeleteInputs, DeleteRecords
from backend.control.operations.reassign import Reassign
from backend.protocol.errors import ErrorCode, KafkaError
from tests.control.feed import feed_ledger
from tests.control.site import TIERED, ControlSite

LIMIT = 50_000_000
# Less than one answer to a follower's fetch, so that it has to wait from the first one on.
SLOW = 1_000
# An answer holds at most this much of a partition: a limit is only felt by the second one.
# A killed broker is missed after 5 s instead of 9.
SETTINGS = {
    "replica.fetch.max.bytes": "8192",
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
}
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("site"), settings=SETTINGS) as made:
        yield made


def replicas(site: ControlSite, topic: str) -> dict[int, list[int]]:
    """As confluent-kafka sees them."""
    partitions = site.admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {number: list(partition.replicas) for number, partition in partitions.items()}


def limits(site: ControlSite, *topics: str) -> dict[str, str]:
    """Every replication limit that is set, as the controller has it: Kafka keeps the rates to itself."""

    def look() -> dict[str, str]:
        image = site.cluster.broker(1).services.metadata.image
        places = [*((4, name, RATES) for name in ("", "1", "2", "3")), *((2, topic, LISTS) for topic in topics)]
        return {
            f"{name} {setting}": value
            for kind, name, settings in places
            for setting in settings
            if (value := image.config(kind, name).get(setting))
        }

    return site.cluster.ask(look)


def ended(site: ControlSite, plan_id: int) -> dict[str, Any]:
    """The plan when it has ended."""

    def look() -> dict[str, Any] | None:
        plan: dict[str, Any] = site.get(f"/v1/plans/{plan_id}")["plan"]
        return plan if plan["finished_ms"] else None

    return site.wait_until(f"plan {plan_id} has ended", look, timeout_s=60) or {}


def audit(site: ControlSite, plan_id: int) -> list[tuple[str, str]]:
    items = site.get("/v1/audit?limit=1000")["items"]
    return [(row["action"], row["result"]) for row in reversed(items) if row["operation_id"] == plan_id]


def topic(site: ControlSite, name: str, assignment: list[list[int]], *, records: int = 100) -> None:
    """A topic with these replicas, seen by the observer."""
    site.create_topic(name, partitions=len(assignment), replicas=len(assignment[0]))
    inputs = {
        "assignments": [{"topic": name, "partition": p, "replicas": r} for p, r in enumerate(assignment)],
        "unthrottled": True,
        "elect": True,
    }
    plan = site.plan(inputs, kind="reassign")
    if plan["state"] == "checked":
        site.execute(plan["id"])
        assert ended(site, plan["id"])["state"] == "verified"
    if records:
        site.produce(name, records)
    site.wait_until(
        f"{name} is seen",
        lambda: (
            [row["replicas"] for row in site.partitions(name)] == assignment
            and all(row["isr"] and sorted(row["isr"]) == sorted(row["replicas"]) for row in site.partitions(name))
        ),
    )


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


def slow(site: ControlSite, name: str, partitions: int, **more: Any) -> dict[str, Any]:
    """A plan that takes long: 100 kB a partition, to broker 3, slower than it comes."""
    topic(site, name, [[1, 2]] * partitions, records=0)
    site.produce(name, 80 * partitions, value_bytes=1000)
    inputs = {"action": "add", "topics": [name], "brokers": [3], "throttle_bytes_per_s": SLOW, **more}
    site.wait_until(
        f"{name} is sampled",
        lambda: sum(row["local_log_bytes"] or 0 for row in site.partitions(name)) > 80 * partitions * 1000,
    )
    plan = site.plan(inputs, kind="reassign")
    assert plan["state"] == "checked", plan["checks"]
    return plan


def moving(site: ControlSite, plan_id: int) -> dict[str, Any]:
    """The plan when it moves something."""

    def look() -> dict[str, Any] | None:
        plan: dict[str, Any] = site.get(f"/v1/plans/{plan_id}")["plan"]
        return plan if plan["progress"] and plan["progress"]["counts"]["moving"] else None

    return site.wait_until(f"plan {plan_id} moves", look) or {}


def steer(site: ControlSite, plan_id: int, verb: str, **body: int) -> dict[str, Any]:
    answer = site.operator.post(f"/v1/plans/{plan_id}/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()["plan"]
    return plan


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
    told = "Broker 3 is away and keeps its limit" in done_["result"]["sentence"]
    assert told == bool(limits(site, "deserted")), done_["result"]
    site.cluster.start_broker(3)
    site.wait_until("it is back", lambda: broker(site, 3)["reachable"])
    if limits(site, "deserted"):
        site.wait_until("its limit can be cleared", lambda: clears(site), timeout_s=60)
    assert limits(site, "deserted") == {}


def broker(site: ControlSite, broker_id: int) -> dict[str, Any]:
    found: dict[str, Any] = next(b for b in site.get("/v1/brokers")["items"] if b["broker_id"] == broker_id)
    return found


def clears(site: ControlSite) -> bool:
    """Whether a plan to clear what was left finds something, and does it."""
    plan = site.operator.post("/v1/plans", json={"kind": "clear_throttle", "inputs": {}})
    if plan.status_code != 201 or plan.json()["plan"]["state"] != "checked":
        return False
    site.execute(plan.json()["plan"]["id"])
    return bool(ended(site, plan.json()["plan"]["id"])["state"] == "verified")


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
    plan = slow(site, "abandoned", 2, at_once=1)
    site.execute(plan["id"], wait_ms=0)
    moving(site, plan["id"])
    refusals = iter([KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])

    async def refused_once(*given: Any, **more: Any) -> Any:
        for refusal in refusals:
            raise refusal
        return await list_reassignments(*given, **more)

    monkeypatch.setattr(reassign, "list_reassignments", refused_once)
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
    assert check in {found["name"] for found in plan["checks"] if found["outcome"] == "refused"}
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
    told = answer.json()["detail"]
    assert told.endswith(".")
    assert "Value error" not in told


def done(site: ControlSite, kind: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """A plan that was executed and verified."""
    plan = site.plan(inputs, kind=kind)
    assert plan["state"] == "checked", plan["checks"]
    site.execute(plan["id"])
    found = ended(site, plan["id"])
    assert found["state"] == "verified", found["result"]
    return found


def revert(site: ControlSite, plan_id: int) -> int:
    """The status of asking for the way back, which is gone when there is one."""
    answer = site.operator.post(f"/v1/plans/{plan_id}/revert", json={"reason": "enough"})
    if answer.status_code == 201:
        back = answer.json()["plan"]
        site.execute(back["id"])
        assert ended(site, back["id"])["state"] == "verified"
    return answer.status_code


def set_here(site: ControlSite, kind: int, name: str) -> dict[str, str]:
    """What the controller holds of a resource."""
    return site.cluster.ask(lambda: dict(site.cluster.broker(1).services.metadata.image.config(kind, name)))


def test_a_topic_setting_is_changed_checked_by_kafka_and_put_back(site: ControlSite) -> None:
    topic(site, "settings", [[1]], records=0)
    done(site, "topic_config", {"topic": "settings", "settings": {"retention.ms": "3600000"}})
    changed = done(site, "topic_config", {"topic": "settings", "settings": {"retention.ms": "60000"}})
    assert set_here(site, 2, "settings")["retention.ms"] == "60000"
    assert revert(site, changed["id"]) == 201
    assert set_here(site, 2, "settings")["retention.ms"] == "3600000"
    bad = site.plan({"topic": "settings", "settings": {"retention.ms": "soon"}}, kind="topic_config")
    assert {c["name"] for c in bad["checks"] if c["outcome"] == "refused"} == {"kafka"}
    same = site.plan({"topic": "settings", "settings": {"retention.ms": "3600000"}}, kind="topic_config")
    assert same["state"] == "refused"


def test_copying_is_paused_and_resumed_and_tiering_is_not_turned_off_by_accident(site: ControlSite) -> None:
    site.create_topic("paused", partitions=1, replicas=1, config={"remote.storage.enable": "true"})
    paused = done(site, "topic_config", {"topic": "paused", "settings": {"remote.log.copy.disable": "true"}})
    assert paused["diff"]["words"]["title"] == "Pause copying on paused"
    assert revert(site, paused["id"]) == 201
    assert "remote.log.copy.disable" not in set_here(site, 2, "paused")
    off = site.plan({"topic": "paused", "settings": {"remote.storage.enable": "false"}}, kind="topic_config")
    assert off["state"] == "refused"
    gone = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    deleted = done(site, "topic_config", {"topic": "paused", "settings": gone})
    assert revert(site, deleted["id"]) == 409


def test_a_broker_setting_is_changed_and_put_back(site: ControlSite) -> None:
    inputs = {"scope": "broker", "broker_id": 2, "settings": {"log.cleaner.threads": "2"}}
    changed = done(site, "broker_config", inputs)
    assert set_here(site, 4, "2")["log.cleaner.threads"] == "2"
    assert revert(site, changed["id"]) == 201
    assert "log.cleaner.threads" not in set_here(site, 4, "2")
    assert site.plan({"settings": {"broker.id": "7"}}, kind="broker_config")["state"] == "refused"


def test_leaders_are_spread_and_the_preferred_ones_elected(site: ControlSite) -> None:
    topic(site, "spread", [[1, 2], [1, 2], [1, 2]], records=0)
    spread = done(site, "reassign", {"action": "spread_leaders", "topics": ["spread"]})
    assert sorted(found[0] for found in replicas(site, "spread").values()) == [1, 1, 2]
    assert spread["estimate"]["replicas"] == 0
    elected = done(site, "elect", {"topics": ["spread"]})
    leaders = {p: part.leader for p, part in site.admin.list_topics("spread").topics["spread"].partitions.items()}
    assert leaders == {p: found[0] for p, found in replicas(site, "spread").items()}
    assert revert(site, elected["id"]) == 409
    again = site.operator.post("/v1/plans", json={"kind": "elect", "inputs": {"topics": ["spread"]}})
    assert again.status_code == 422
    before = replicas(site, "spread")
    swapped = done(site, "reassign", {"action": "swap_leaders", "topics": ["spread"], "brokers": [1, 2], "elect": True})
    assert replicas(site, "spread") == {p: list(reversed(found)) for p, found in before.items()}
    assert swapped["estimate"]["replicas"] == 0
    leaders = {p: part.leader for p, part in site.admin.list_topics("spread").topics["spread"].partitions.items()}
    assert leaders == {p: found[-1] for p, found in before.items()}


def test_what_a_deletion_frees_is_told_though_the_local_log_begins_late(site: ControlSite) -> None:
    """All records are of one size, and nothing counts the remote tier here."""
    site.create_topic("freed", partitions=1, replicas=2, config=TIERED)
    site.produce("freed", 1_500)
    site.wait_until_quiet("freed")
    (row,) = site.partitions("freed")
    assert row["local_log_start_offset"] > 700
    record_bytes = row["local_log_bytes"] / (row["log_end_offset"] - row["local_log_start_offset"])
    inputs = {"partitions": [{"topic": "freed", "partition": 0, "offset": 500}]}
    estimate = site.plan(inputs, kind="delete_records")["estimate"]
    assert estimate["records"] == 500
    assert abs(estimate["bytes"] - 500 * record_bytes) < 10


def test_records_are_deleted_up_to_an_offset_and_no_further_than_the_end(site: ControlSite) -> None:
    topic(site, "cut", [[1]], records=50)
    beyond = {"partitions": [{"topic": "cut", "partition": 0, "offset": 51}]}
    assert site.plan(beyond, kind="delete_records")["state"] == "refused"
    cut = done(site, "delete_records", {"partitions": [{"topic": "cut", "partition": 0, "offset": 20}]})
    assert cut["estimate"]["records"] == 20
    site.wait_until("the log begins there", lambda: site.partitions("cut")[0]["log_start_offset"] == 20)
    assert revert(site, cut["id"]) == 409


def test_records_are_deleted_of_all_partitions_or_it_is_told_of_which_they_are_gone(site: ControlSite) -> None:
    topic(site, "partly", [[1]], records=50)
    site.create_topic("newest-of-key", partitions=1, replicas=1, config={"cleanup.policy": "compact"})
    wanted = [
        {"topic": name, "partition": 0, "offset": offset} for name, offset in (("newest-of-key", 0), ("partly", 9))
    ]
    refused = site.plan({"partitions": wanted}, kind="delete_records")
    assert [check["name"] for check in refused["checks"] if check["outcome"] == "refused"] == ["policy"]
    # As where a topic becomes compacted after the check.
    kind, inputs = DeleteRecords(), DeleteInputs.model_validate({"partitions": wanted})
    with pytest.raises(
        KafkaError, match="newest-of-key-0 were not deleted; those of 1 other partition are gone"
    ) as said:
        site.cluster.call(kind.apply(site.plane.operations._site, inputs, {}))
    assert said.value.code is ErrorCode.POLICY_VIOLATION
    site.wait_until("it is cut", lambda: site.partitions("partly")[0]["log_start_offset"] == 9)


def test_limits_that_others_left_are_found_and_cleared(site: ControlSite) -> None:
    topic(site, "left", [[1]], records=0)
    assert site.operator.post("/v1/plans", json={"kind": "clear_throttle", "inputs": {}}).status_code == 422
    rate = {"scope": "broker", "broker_id": 2, "settings": {RATES[0]: "1000"}}
    done(site, "broker_config", rate)
    done(site, "broker_config", {"settings": {RATES[1]: "1000"}})
    done(site, "topic_config", {"topic": "left", "settings": {LISTS[0]: "0:1"}})
    assert set(limits(site, "left")) == {f"2 {RATES[0]}", f" {RATES[1]}", f"left {LISTS[0]}"}
    adding = {"action": "add", "topics": ["left"], "brokers": [2], "throttle_bytes_per_s": LIMIT}
    refused = site.plan(adding, kind="reassign")
    assert "throttles" in {c["name"] for c in refused["checks"] if c["outcome"] == "refused"}
    cleared = done(site, "clear_throttle", {})
    assert {change["object"] for change in cleared["diff"]["changes"]} == {"all brokers", "broker 2", "topic left"}
    assert any("--entity-default" in command for command in cleared["cli"])
    assert limits(site, "left") == {}


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
    assert {b for found in replicas(site, "drained").values() for b in found} == {1, 2}
    more = {"action": "replication_factor", "topics": ["drained"], "factor": 3, "unthrottled": True}
    done(site, "reassign", more)
    assert all(sorted(found) == [1, 2, 3] for found in replicas(site, "drained").values())


def cli(site: ControlSite, *words: str) -> Any:
    """The JSON of a command that ends well."""
    ended = run(site, *words)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def run(site: ControlSite, *words: str) -> Result:
    place = ["--api", f"http://127.0.0.1:{site.plane.port}", "--data", str(site.folder)]
    return CliRunner().invoke(app, [*words, *place])


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
    told = run(site, "watch", str(refused["id"]))
    why = "Give a limit in bytes per second, or say unthrottled."
    assert (told.exit_code, told.stdout.strip()) == (Exit.REFUSED, f"Plan {refused['id']} is refused. {why}")
