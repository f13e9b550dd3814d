"""A reassignment from plan to revert on a living cluster; another client sees where the replicas are."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import ConfigResource

from tests.control.site import ControlSite

LIMIT = 50_000_000
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def replicas(site: ControlSite, topic: str) -> dict[int, list[int]]:
    """As confluent-kafka sees them."""
    partitions = site.admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {number: list(partition.replicas) for number, partition in partitions.items()}


def limits(site: ControlSite, *topics: str) -> dict[str, str]:
    """Every replication limit that is set, as confluent-kafka sees it."""
    found = {}
    for kind, name, settings in [
        *((ConfigResource.Type.BROKER, str(b), RATES) for b in (1, 2, 3)),
        *((ConfigResource.Type.TOPIC, topic, LISTS) for topic in topics),
    ]:
        resource = ConfigResource(kind, name)
        entries = site.admin.describe_configs([resource])[resource].result(10)
        found |= {f"{name} {s}": str(entries[s].value) for s in settings if s in entries and not entries[s].is_default}
    return {name: value for name, value in found.items() if value}


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
