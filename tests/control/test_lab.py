"""The bootstrap race through the API on a living cluster: what it finds, what it refuses, what it leaves behind."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from backend.cli.main import app
from backend.control.lab.bootstrap.bootstrap_lab import NOTE_NAME, TOPIC
from backend.control.lab.bootstrap.race_plan import BootstrapPlan
from backend.control.lab.bootstrap.race_run import RaceStage
from backend.control.lab.bootstrap.race_steps import set_flag
from tests.control.site import FLAG, ControlSite

SIZE_BYTES = 21 << 20
START = "/v1/lab/bootstrap"
# Records that broker 3 follows besides during a race: events and remote log metadata, a few records a second.
OTHER_TOPICS_BYTES = 500_000


def run_of(site: ControlSite) -> dict[str, Any]:
    run: dict[str, Any] = site.get(START)["run"]
    return run


def wait_for_end(site: ControlSite) -> dict[str, Any]:
    site.wait_until("the race ends", lambda: run_of(site)["state"] != "running", timeout_s=300)
    return run_of(site)


def assert_nothing_is_left(site: ControlSite) -> None:
    assert TOPIC not in site.admin.list_topics(timeout=10).topics
    assert not (site.folder / "run" / NOTE_NAME).exists()
    resource = ConfigResource(ConfigResource.Type.BROKER, "3")
    assert site.admin.describe_configs([resource])[resource].result(10)[FLAG].value == "false"


def replicated_bytes(site: ControlSite) -> float:
    """Bytes of records that the new replica's broker has fetched from leaders, of all topics."""
    families = text_string_to_metric_families(site.operator.get("/metrics").text)
    [total_bytes] = [
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "kafka_server_brokertopicmetrics_replicationbytesin_total" and sample.labels["broker"] == "3"
    ]
    return total_bytes


@pytest.fixture(scope="module")
def raced(site: ControlSite) -> tuple[dict[str, Any], float]:
    """A race that the command began and let run to its end, and what broker 3 fetched from leaders meanwhile."""
    before = replicated_bytes(site)
    assert site.get(START) == {"run": None}
    place = ["--api", f"http://127.0.0.1:{site.plane.port}", "--data", str(site.folder)]
    command = ["lab", "bootstrap", "--size", "21MiB", "--tiered", "85%", "--json", *place]
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(CliRunner().invoke, app, command)
        site.wait_until("the race runs", lambda: run_of(site) is not None)
        again = site.operator.post(START, json={})
        assert (again.status_code, again.json()["detail"]) == (
            409,
            "A bootstrap race is running already: wait for its end, or cancel it.",
        )
        ended = running.result(300)
    fetched_bytes = replicated_bytes(site) - before
    assert ended.exit_code == 0, ended.output
    run: dict[str, Any] = json.loads(ended.stdout)
    assert [begun["step"] for begun in run["steps"]] == [step.value for step in RaceStage]
    assert [line for line in ended.stderr.splitlines() if line.endswith("…")] == [f"{step} …" for step in RaceStage]
    assert run == run_of(site)
    assert (run["state"], run["message"]) == ("done", None)
    return run, fetched_bytes


@pytest.fixture(scope="module")
def ended(raced: tuple[dict[str, Any], float]) -> dict[str, Any]:
    return raced[0]


def test_the_topic_is_as_planned(ended: dict[str, Any]) -> None:
    log = ended["leader_log"]
    assert 0 == log["log_start"] < log["local_start"] < log["pending_upload"] < log["log_end"]
    segment_bytes = BootstrapPlan(SIZE_BYTES, 85).segment_bytes
    assert abs(log["local_bytes"] - SIZE_BYTES) <= segment_bytes
    untiered = (log["log_end"] - log["pending_upload"]) / (log["log_end"] - log["local_start"])
    assert 0.10 <= untiered <= 0.20
    assert ended["produced_bytes"] == ended["total_bytes"]


def test_with_the_flag_only_what_is_not_tiered_is_copied(ended: dict[str, Any]) -> None:
    log, (off, on) = ended["leader_log"], ended["races"]
    assert (off["flag"], off["start_offset"], off["copied_bytes"]) == (False, log["local_start"], log["local_bytes"])
    assert (on["flag"], on["start_offset"]) == (True, log["pending_upload"])
    assert 0 < on["copied_bytes"] <= 0.2 * off["copied_bytes"]
    for race in (off, on):
        assert race["log_end"] == log["log_end"]
        last = race["positions"][-1]
        assert (last["log_start"], last["local_start"], last["log_end"]) == (0, race["start_offset"], race["log_end"])


def test_what_is_called_copied_is_what_went_over_the_wire(raced: tuple[dict[str, Any], float]) -> None:
    """Nothing more was fetched and thrown away again."""
    ended, fetched_bytes = raced
    copied = sum(race["copied_bytes"] for race in ended["races"])
    assert copied <= fetched_bytes < copied + OTHER_TOPICS_BYTES


def test_the_phases_of_the_new_replica_are_told_with_their_times(ended: dict[str, Any]) -> None:
    for race in ended["races"]:
        phases = [seen["phase"] for seen in race["phases"]]
        assert phases[0] == "TRUNCATING"
        assert "BUILDING_REMOTE_AUX" in phases
        assert phases[-1] == "IN_SYNC"
        times = [seen["at_ms"] for seen in race["phases"]]
        assert times == sorted(times)
        assert race["joined_ms"] == times[-1]
        [building] = [seen for seen in race["phases"] if seen["phase"] == "BUILDING_REMOTE_AUX"]
        assert building["target_offset"] == race["start_offset"]


def test_a_race_leaves_nothing_behind(site: ControlSite, ended: dict[str, Any]) -> None:
    assert ended["ended_ms"] >= ended["started_ms"]
    assert_nothing_is_left(site)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"size_bytes": 1000}, "The size is between"),
        ({"size_bytes": 10**12}, "The size is between"),
        ({"tiered_percent": 0}, "The tiered share is 5 to 95 %"),
        ({"tiered_percent": 100}, "The tiered share is 5 to 95 %"),
        ({"tiered_percent": 33}, "whole segments"),
    ],
)
def test_numbers_that_make_no_race_are_refused(site: ControlSite, body: dict[str, int], sentence: str) -> None:
    answer = site.operator.post(START, json=body)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


def test_a_race_that_is_cancelled_cleans_up(site: ControlSite, ended: dict[str, Any]) -> None:
    refused = site.operator.post(f"{START}/cancel")
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "No bootstrap race is running: there is nothing to cancel.",
    )
    assert site.operator.post(START, json={"size_bytes": SIZE_BYTES}).status_code == 202
    site.wait_until("records are produced", lambda: run_of(site)["produced_bytes"] > 0)
    assert site.operator.post(f"{START}/cancel").status_code == 202
    ended_early = wait_for_end(site)
    assert (ended_early["state"], ended_early["step"]) == ("cancelled", "clean up")
    assert ended_early["message"].startswith("It was about to ")
    assert_nothing_is_left(site)
    actions = [(row["action"], row["result"]) for row in site.get("/v1/audit?limit=20")["items"]]
    assert ("cancel bootstrap race", "accepted") in actions
    assert ("start bootstrap race", "refused") in actions


def test_what_a_killed_process_left_is_cleaned_up_at_the_next_start(site: ControlSite) -> None:
    site.create_topic(TOPIC, partitions=1, replicas=1)
    site.cluster.call(set_flag(site.plane.parts.gateway, 3, "true"))
    (site.folder / "run" / NOTE_NAME).write_text('{"broker": 3, "flag": null}')
    site.stop_plane()
    site.start_plane()
    site.wait_until("the note is gone", lambda: not (site.folder / "run" / NOTE_NAME).exists())
    assert_nothing_is_left(site)
