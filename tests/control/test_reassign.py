"""A reassignment from plan to revert on a living cluster; another client sees where the replicas are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.control.site import ControlSite

LIMIT = 50_000_000
# Less than one answer to a follower's fetch, so that it has to wait from the first one on.
SLOW = 1_000
# An answer holds at most this much of a partition: a limit is only felt by the second one.
SETTINGS = {"replica.fetch.max.bytes": "8192"}
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
        places = [*((4, str(b), RATES) for b in (1, 2, 3)), *((2, topic, LISTS) for topic in topics)]
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
        {"assignments": [{"topic": "no-such-topic", "partition": 0, "replicas": [1]}]},
        {"action": "drain"},
    ],
)
def test_what_makes_no_sense_is_no_plan(site: ControlSite, inputs: dict[str, Any]) -> None:
    answer = site.operator.post("/v1/plans", json={"kind": "reassign", "inputs": inputs})
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith(".")
