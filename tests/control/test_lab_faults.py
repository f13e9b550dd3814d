"""The faults of the lab on a running cluster, through the API: they show, they can be cleared, and roles limit them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from backend.control.lab.faults.fault_scripts import THIN_TOPIC, UNCLEAN_TOPIC
from backend.control.lab.faults.scenarios import SCENARIOS
from tests.control.site import TIERED, ControlSite

FAULTS = "/v1/lab/faults"
TOPIC = "orders"


# A killed broker is missed after 2 s instead of 9.
IMPATIENT = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    """A tiered topic of which each broker leads a partition, on three voters as `ebbline up` has it."""
    with ControlSite(tmp_path_factory.mktemp("site"), voters=3, settings=IMPATIENT) as site:
        site.create_topic(TOPIC, partitions=3, replicas=3, config=TIERED)
        site.produce(TOPIC, 600)
        yield site


def run_of(site: ControlSite) -> dict[str, Any]:
    run: dict[str, Any] = site.get(FAULTS)["run"]
    return run


def begin(site: ControlSite, scenario: str, **more: Any) -> None:
    answer = site.operator.post(FAULTS, json={"scenario": scenario, **more})
    assert answer.status_code == 202, answer.text


def wait_for(site: ControlSite, *states: str) -> dict[str, Any]:
    def reached() -> bool:
        run = run_of(site)
        assert run["state"] in states or run["state"] not in ("healed", "failed"), run
        return run["state"] in states

    site.wait_until(f"the scenario is {states}", reached, timeout_s=180)
    return run_of(site)


def heal(site: ControlSite) -> dict[str, Any]:
    assert site.operator.post(f"{FAULTS}/heal").status_code == 202
    return wait_for(site, "healed")


def remote_end(site: ControlSite) -> int:
    return sum(row["latest_tiered_offset"] or 0 for row in site.partitions(TOPIC))


def test_every_scenario_says_what_it_does_what_to_watch_and_how_it_heals(tiered: ControlSite) -> None:
    answer = tiered.get(FAULTS)
    assert (answer["refusal"], answer["run"], answer["brokers"]) == (None, None, [1, 2, 3])
    assert [scenario["slug"] for scenario in answer["scenarios"]] == [scenario.slug for scenario in SCENARIOS]
    for scenario in answer["scenarios"]:
        assert all(scenario[name].endswith(".") for name in ("does", "watch", "heals")), scenario


def test_the_quorum_is_told_with_the_lag_of_every_node(tiered: ControlSite) -> None:
    quorum = tiered.wait_until("somebody looked", lambda: tiered.get("/v1/quorum")["quorum"])
    assert (quorum["leader_id"] in (1, 2, 3), quorum["cause"]) == (True, None)
    roles = sorted((replica["node_id"], replica["role"]) for replica in quorum["replicas"])
    assert roles == [(1, "voter"), (2, "voter"), (3, "voter")]
    assert all(replica["lag_records"] is not None for replica in quorum["replicas"])
    snapshot = quorum["snapshot"]
    assert (snapshot["generated_ms"] is None) == (snapshot["cause"] == "The leader has written no snapshot yet.")
    tiered.wait_until("it is in the heartbeat", lambda: _told_quorum(tiered) is not None)


def _told_quorum(site: ControlSite) -> object:
    """Of the backend's heartbeat; None before its first."""
    details = [process["detail"] for process in site.get("/v1/cluster")["processes"] if process["process"] == "backend"]
    return (details[0] or {}).get("quorum") if details else None


def test_what_cannot_be_broken_is_refused_and_a_viewer_breaks_nothing(tiered: ControlSite) -> None:
    assert tiered.operator.post(f"{FAULTS}/heal").status_code == 409
    assert tiered.person("vera", "viewer").post(FAULTS, json={"scenario": "store-away"}).status_code == 403
    for body, sentence in (
        ({"scenario": "earthquake"}, "There is no scenario 'earthquake'"),
        ({"scenario": "broker-kill", "broker": 9}, "Broker 9 cannot be killed"),
        ({"scenario": "store-away", "broker": 2}, "takes no broker"),
    ):
        answer = tiered.operator.post(FAULTS, json=body)
        assert answer.status_code == 422
        assert sentence in answer.json()["detail"]
    assert run_of(tiered) is None


def test_a_store_that_holds_uploads_stops_copying_until_it_is_healed(tiered: ControlSite) -> None:
    tiered.wait_until_quiet(TOPIC)
    before = remote_end(tiered)
    begin(tiered, "stuck-copy")
    wait_for(tiered, "broken")
    again = tiered.operator.post(FAULTS, json={"scenario": "broker-kill"})
    assert again.status_code == 409
    assert "is not over yet" in again.json()["detail"]
    tiered.produce(TOPIC, 900)
    machine = tiered.cluster.fault_injector
    tiered.wait_until("an upload is held", lambda: any(machine.paused_uploads(node) for node in machine.brokers))
    assert remote_end(tiered) == before
    heal(tiered)
    tiered.wait_until("copying goes on", lambda: remote_end(tiered) > before, timeout_s=60)


def test_a_killed_broker_leads_nothing_until_it_is_healed(tiered: ControlSite) -> None:
    begin(tiered, "broker-kill", broker=3)
    wait_for(tiered, "broken")
    assert tiered.cluster.fault_injector.running == {1, 2}
    tiered.wait_until("others lead", lambda: all(row["leader"] in (1, 2) for row in tiered.partitions(TOPIC)))
    run = heal(tiered)
    assert [message["text"] for message in run["told"]] == ["Broker 3 is killed.", "Broker 3 runs again."]
    tiered.wait_until("it is in sync", lambda: all(len(row["isr"]) == 3 for row in tiered.partitions(TOPIC)))


def test_a_copy_dangles_when_its_author_dies_in_an_upload(tiered: ControlSite) -> None:
    tiered.wait_until_quiet(TOPIC)
    leader = next(row["leader"] for row in tiered.partitions(TOPIC) if row["leader"] > 0)
    begin(tiered, "dangling-copy", broker=leader)
    tiered.produce(TOPIC, 900)
    run = wait_for(tiered, "healed")
    assert run["message"] is None
    assert "killed in the middle of an upload" in run["told"][1]["text"]
    assert tiered.cluster.fault_injector.running == {1, 2, 3}


def test_an_unclean_election_loses_what_only_the_old_leader_had(tiered: ControlSite) -> None:
    begin(tiered, "unclean-election")
    run = wait_for(tiered, "broken")
    texts = [message["text"] for message in run["told"]]
    assert "its log ends at 2100: the 500 records are lost" in texts[-2]
    assert texts[-1].endswith("has truncated what it alone had, and follows to 2100.")

    def elections() -> list[dict[str, Any]]:
        return [row for row in tiered.get("/v1/findings")["items"] if row["slug"] == "unclean-recovery"]

    (election,) = tiered.wait_until("the election is a finding", elections)
    assert election["object"] in (f"{UNCLEAN_TOPIC}-0", "broker 3")
    heal(tiered)
    assert UNCLEAN_TOPIC not in tiered.admin.list_topics(timeout=10).topics


def test_a_thin_leader_holds_less_than_the_replica_it_took_over_from(tiered: ControlSite) -> None:
    begin(tiered, "thin-leader")
    wait_for(tiered, "broken")

    def starts() -> dict[int, int]:
        answer = tiered.get(f"/v1/partitions/{THIN_TOPIC}/0")
        if answer["partition"]["leader"] != 3:
            return {}
        local_starts = {row["broker_id"]: row["local_log_start_offset"] for row in answer["replicas"]}
        return {} if None in local_starts.values() or len(local_starts) < 2 else local_starts

    tiered.wait_until("the observer has seen it", lambda: tiered.partitions(THIN_TOPIC))
    result = tiered.wait_until("both replicas told", starts)
    assert result[3] > result[1]
    heal(tiered)
    actions = [(row["action"], row["result"]) for row in tiered.get("/v1/audit?limit=50")["items"]]
    assert {("break", "accepted"), ("break", "refused"), ("heal", "accepted"), ("heal", "refused")} <= set(actions)
