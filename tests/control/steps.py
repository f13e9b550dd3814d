"""Steps that tests of plans have in common, and the state that another client or the controller sees then."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from backend.cli.main import app
from tests.control.site import ControlSite
from tests.waiting import wait_until_none

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


def replicas(site: ControlSite, topic: str) -> dict[int, list[int]]:
    """As confluent-kafka sees them."""
    partitions = site.admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {number: list(partition.replicas) for number, partition in partitions.items()}


def limits(site: ControlSite, *topics: str) -> dict[str, str]:
    """Every replication limit that is set, as the controller has it: Kafka keeps the rates to itself."""

    def probe() -> dict[str, str]:
        image = site.cluster.broker(1).services.metadata.image
        places = [*((4, name, RATES) for name in ("", "1", "2", "3")), *((2, topic, LISTS) for topic in topics)]
        return {
            f"{name} {setting}": value
            for kind, name, settings in places
            for setting in settings
            if (value := image.config(kind, name).get(setting))
        }

    return site.cluster.ask(probe)


def ended(site: ControlSite, plan_id: int) -> dict[str, Any]:
    """The plan when it has ended."""

    def probe() -> dict[str, Any] | None:
        plan: dict[str, Any] = site.get(f"/v1/plans/{plan_id}")["plan"]
        return plan if plan["finished_ms"] else None

    return site.wait_until(f"plan {plan_id} has ended", probe, timeout_s=60) or {}


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
    wait_until_none(f"{name} is seen", lambda: _unlike(site, name, assignment), 30)


def _unlike(site: ControlSite, name: str, assignment: list[list[int]]) -> list[str]:
    """The partitions that the observer does not show with these replicas, all in sync; in words."""
    rows = {row["partition"]: row for row in site.partitions(name)}
    return [
        f"{number} should be on {replicas}: {rows.get(number)}"
        for number, replicas in enumerate(assignment)
        if number not in rows or rows[number]["replicas"] != replicas or set(rows[number]["isr"]) != set(replicas)
    ]


def slow(site: ControlSite, name: str, partitions: int, *, records: int = 80, **more: Any) -> dict[str, Any]:
    """A plan that takes long: `records` of 1 kB a partition, to broker 3, slower than they come."""
    topic(site, name, [[1, 2]] * partitions, records=0)
    site.produce(name, records * partitions, value_bytes=1000)
    inputs = {"action": "add", "topics": [name], "brokers": [3], "throttle_bytes_per_s": SLOW, **more}
    site.wait_until(
        f"{name} is sampled",
        lambda: sum(row["local_log_bytes"] or 0 for row in site.partitions(name)) > records * partitions * 1000,
    )
    plan = site.plan(inputs, kind="reassign")
    assert plan["state"] == "checked", plan["checks"]
    return plan


def moving(site: ControlSite, plan_id: int) -> dict[str, Any]:
    """The plan when it moves something."""

    def probe() -> dict[str, Any] | None:
        plan: dict[str, Any] = site.get(f"/v1/plans/{plan_id}")["plan"]
        return plan if plan["progress"] and plan["progress"]["counts"]["moving"] else None

    return site.wait_until(f"plan {plan_id} moves", probe) or {}


def steer(site: ControlSite, plan_id: int, verb: str, **body: int) -> dict[str, Any]:
    answer = site.operator.post(f"/v1/plans/{plan_id}/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()["plan"]
    return plan


def broker(site: ControlSite, broker_id: int) -> dict[str, Any]:
    result: dict[str, Any] = next(b for b in site.get("/v1/brokers")["items"] if b["broker_id"] == broker_id)
    return result


def clears(site: ControlSite) -> bool:
    """Whether a plan to clear what was left finds something, and does it."""
    plan = site.operator.post("/v1/plans", json={"kind": "clear_throttle", "inputs": {}})
    if plan.status_code != 201 or plan.json()["plan"]["state"] != "checked":
        return False
    site.execute(plan.json()["plan"]["id"])
    return bool(ended(site, plan.json()["plan"]["id"])["state"] == "verified")


def done(site: ControlSite, kind: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """A plan that was executed and verified."""
    plan = site.plan(inputs, kind=kind)
    assert plan["state"] == "checked", plan["checks"]
    site.execute(plan["id"])
    result = ended(site, plan["id"])
    assert result["state"] == "verified", result["result"]
    return result


def revert(site: ControlSite, plan_id: int) -> int:
    """The status of asking for the way back, which is gone when there is one."""
    answer = site.operator.post(f"/v1/plans/{plan_id}/revert", json={"reason": "enough"})
    if answer.status_code == 201:
        back = answer.json()["plan"]
        site.execute(back["id"])
        assert ended(site, back["id"])["state"] == "verified"
    return answer.status_code


def set_here(site: ControlSite, kind: int, name: str) -> dict[str, str]:
    """Returns the settings of a resource in the controller."""
    return site.cluster.ask(lambda: dict(site.cluster.broker(1).services.metadata.image.config(kind, name)))


def cli(site: ControlSite, *words: str) -> Any:
    """The JSON of a command that ends well."""
    ended = run(site, *words)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def run(site: ControlSite, *words: str) -> Result:
    place = ["--api", f"http://127.0.0.1:{site.plane.port}", "--data", str(site.folder)]
    return CliRunner().invoke(app, [*words, *place])
