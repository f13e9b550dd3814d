"""The commands against a living control plane: what they print, what scripts can rely on, how they end."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backend.cli.main import app
from backend.cli.shared.api_session import Exit
from tests.control.site import CLUSTER_NAME, FLAG, TIERED, ControlSite

TOPIC = "orders"


@pytest.fixture(scope="module", autouse=True)
def filled(site: ControlSite) -> None:
    site.create_topic(TOPIC, config=TIERED)
    site.create_topic("plain", partitions=1)
    site.produce(TOPIC, 500)
    site.wait_until_quiet(TOPIC)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EBBLINE_API_URL", "EBBLINE_TOKEN_FILE", "EBBLINE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def run(site: ControlSite, *arguments: str, stdin: str | None = None) -> Result:
    place = ["--api", f"http://127.0.0.1:{site.plane.port}", "--data", str(site.folder)]
    result = CliRunner().invoke(app, [*arguments, *place], input=stdin)
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def shown(site: ControlSite, *arguments: str) -> Any:
    """The JSON of a command that ends well."""
    result = run(site, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_status_is_quiet_about_a_healthy_cluster(site: ControlSite) -> None:
    # How full this machine's disk is, is nobody's business here.
    site.wait_until(
        "nothing else is open",
        lambda: {finding["slug"] for finding in site.get("/v1/findings")["items"]} <= {"disk-runway"},
    )
    for full in site.get("/v1/findings?slug=disk-runway")["items"]:
        site.operator.post(f"/v1/findings/{full['id']}/mute", json={"minutes": 60})
    result = run(site, "status")
    assert result.exit_code == 0
    assert f"Cluster {CLUSTER_NAME}" in result.stdout
    assert "Nothing needs attention." in result.stdout
    status = shown(site, "status")
    assert set(status) == {"cluster", "brokers", "findings"}
    assert [broker["broker_id"] for broker in status["brokers"]] == [1, 2, 3]


def test_partitions_are_those_of_the_api(site: ControlSite) -> None:
    assert _ageless(shown(site, "partitions")) == _ageless(site.get("/v1/partitions"))
    assert {row["topic"] for row in shown(site, "partitions", "--topic", TOPIC)["items"]} == {TOPIC}
    names = {row["topic"] for row in shown(site, "partitions", "--all")["items"]}
    assert {TOPIC, "plain"} <= names
    text = run(site, "partitions").stdout
    assert f"{TOPIC}-0" in text
    assert "plain-0" not in text
    assert "No such partition" in run(site, "partitions", "--topic", "nothing").stdout


def _ageless(answer: dict[str, Any]) -> dict[str, Any]:
    """Without when it was sampled: every round samples again."""
    items = [{name: value for name, value in row.items() if name != "sampled_ms"} for row in answer["items"]]
    return answer | {"items": items}


def test_a_partition_is_described_with_its_replicas(site: ControlSite) -> None:
    result = shown(site, "describe", f"{TOPIC}-1")
    assert (result["partition"]["partition"], len(result["replicas"])) == (1, 3)
    text = run(site, "describe", f"{TOPIC}-1").stdout
    assert text.count("follower") == 2
    risk = "One lost disk may lose acknowledged records: min.insync.replicas is 1"
    said = " ".join(text.split())
    assert (result["durability"]["disks"], risk in said) == (0, True)
    isr = ", ".join(map(str, sorted(result["partition"]["isr"])))
    assert f"ISR: {isr}. Eligible leader replicas (ELR): none. Last known ELR: none. {result['next_leader']}" in said
    assert result["next_leader"].startswith(f"If broker {result['partition']['leader']} is lost, broker ")
    assert shown(site, "segments", f"{TOPIC}-1") == {"items": result["segments"]}
    assert run(site, "segments", f"{TOPIC}-1").exit_code == 0


def test_a_partition_says_which_lost_disks_it_survives(site: ControlSite) -> None:
    site.create_topic("careful", partitions=1, config={"min.insync.replicas": "2"})
    # Settings come with the sample, the feature levels with a look at the quorum.
    survived = {"disks": 1, "sentences": ["Survives the loss of any one disk: 3 replicas, min.insync.replicas 2."]}
    site.wait_until(
        "it says so",
        lambda: site.partitions("careful") and site.get("/v1/partitions/careful/0")["durability"] == survived,
    )
    assert shown(site, "describe", "careful-0")["durability"] == survived
    assert "Survives the loss of any one disk: 3 replicas" in " ".join(
        run(site, "describe", "careful-0").stdout.split()
    )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("describe", "orders-99"), Exit.NOT_FOUND, "no partition orders-99"),
        (("segments", "nothing-0"), Exit.NOT_FOUND, "no partition nothing-0"),
        (("describe", "orders"), Exit.USAGE, "no TOPIC-PARTITION"),
        (("describe", "a/../b-0"), Exit.NOT_FOUND, ""),
        (("partitions", "--topic", "sp ace"), Exit.USAGE, "topic"),
        (("findings", "--limit", "0"), Exit.USAGE, ""),
        (("findings", "--severity", "awful"), Exit.USAGE, ""),
        (("config", "--type", "group"), Exit.USAGE, ""),
        (("toggle", "maybe"), Exit.USAGE, ""),
        (("toggle", "on"), Exit.USAGE, "Nobody can be asked"),
        (("toggle", "on", "--yes"), Exit.USAGE, "--reason"),
        (("toggle", "on", "--broker", "77", "--yes", "--reason", "r"), Exit.USAGE, "There is no broker 77"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_and_an_exit_code(
    site: ControlSite, arguments: tuple[str, ...], code: Exit, says: str
) -> None:
    result = run(site, *arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert result.stdout == ""


def test_a_wrong_token_and_an_absent_api_are_told_apart(site: ControlSite, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("x" * 43)
    refused = run(site, "status", "--token-file", str(wrong))
    assert (refused.exit_code, refused.stdout) == (Exit.NOT_ALLOWED, "")
    assert refused.stderr.startswith("ebbline: This token is not known")
    away = CliRunner().invoke(app, ["status", "--api", "http://127.0.0.1:1", "--data", str(site.folder)])
    assert away.exit_code == Exit.AWAY
    assert away.stderr.count("\n") == 1


def test_the_flag_is_switched_on_and_off_and_stands_in_the_audit(site: ControlSite) -> None:
    draft = shown(site, "toggle", "on", "--broker", "2", "--dry-run")
    assert (draft["refused"], draft["kind"]) == (False, "toggle_bootstrap")
    before = site.get("/v1/plans")["items"]
    said = run(site, "toggle", "on", "--dry-run").stdout
    assert "Nothing has been changed." in said
    assert "Risk: These replicas keep little local data." in said
    assert "Does not change: Existing replicas" in said
    assert site.get("/v1/plans")["items"] == before

    plan = shown(site, "toggle", "on", "--yes", "--reason", "a test of the command")
    assert plan["state"] == "verified"
    site.wait_until("it is seen", lambda: _flags(site) == {"1": "true", "2": "true", "3": "true"})
    again = run(site, "toggle", "on", "--yes", "--reason", "again")
    assert again.exit_code == Exit.REFUSED
    assert "Nothing was changed." in again.stderr
    off = run(site, "toggle", "off", "--yes", "--reason", "back")
    assert off.exit_code == 0, off.output
    assert "is verified" in off.stdout

    entries = shown(site, "audit", "--limit", "5")["items"]
    assert "a test of the command" in {row["reason"] for row in entries}
    text = run(site, "audit", "--action", "execute toggle_bootstrap").stdout
    assert "verified" in text
    assert "plan toggle_bootstrap" not in text


def in_terminal(site: ControlSite, *arguments: str, answers: tuple[str, ...]) -> tuple[int, str]:
    """Runs the command with a terminal; exit code and everything that the screen showed. Answers whatever asks."""
    ours, theirs = pty.openpty()
    place = ["--api", f"http://127.0.0.1:{site.plane.port}", "--data", str(site.folder)]
    command = [sys.executable, "-m", "backend.cli.entry", *arguments, *place]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        screen, left = "", list(answers)
        while True:
            try:
                screen += os.read(ours, 4096).decode()
            except OSError:  # the other end is closed
                break
            if left and screen.endswith(("to confirm: ", "Reason: ")):
                os.write(ours, f"{left.pop(0)}\n".encode())
    os.close(ours)
    return process.returncode, screen


def test_an_operator_types_the_clusters_name_and_a_reason(site: ControlSite) -> None:
    code, screen = in_terminal(site, "toggle", "on", "--broker", "3", answers=("another-cluster",))
    assert (code, "nothing was changed" in screen) == (Exit.REFUSED, True), screen
    code, screen = in_terminal(site, "toggle", "on", "--broker", "3", answers=(CLUSTER_NAME, ""))
    assert (code, "Without a reason nothing was changed" in screen) == (Exit.REFUSED, True), screen
    assert _flags(site).get("3") != "true"
    code, screen = in_terminal(site, "toggle", "on", "--broker", "3", answers=(CLUSTER_NAME, "to try it"))
    assert (code, "is verified" in screen) == (0, True), screen
    site.wait_until("it is seen", lambda: _flags(site).get("3") == "true")
    assert shown(site, "audit", "--limit", "1")["items"][0]["reason"] == "to try it"
    assert run(site, "toggle", "off", "--broker", "3", "--yes", "--reason", "back").exit_code == 0


def _flags(site: ControlSite) -> dict[str, str]:
    return {row["resource"]: row["value"] for row in shown(site, "config", FLAG)["items"] if row["resource"]}


def test_a_setting_is_shown_with_where_it_is_set(site: ControlSite) -> None:
    rows = shown(site, "config", "--type", "topic", "--resource", TOPIC)["items"]
    assert {row["name"] for row in rows} >= {"remote.storage.enable", "local.retention.bytes"}
    assert {row["source"] for row in rows} == {"DYNAMIC_TOPIC_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"}
    more = shown(site, "config", "--type", "topic", "--resource", TOPIC, "--all")["items"]
    assert len(more) > len(rows)
    assert "60000" in run(site, "config", "local.retention.bytes", "--type", "topic").stdout


def test_a_dead_broker_is_bad_news_in_status_and_findings(site: ControlSite) -> None:
    """It stops the producers of a topic that asks for all three replicas: as grave as what it explains."""
    site.create_topic("strict", partitions=1, replicas=3, config={"min.insync.replicas": "3"})
    site.cluster.kill_broker(3)
    site.wait_until(
        "it is found",
        lambda: [f for f in site.get("/v1/findings?slug=broker-away")["items"] if f["severity"] == "critical"],
        60,
    )
    for command in ("status", "findings"):
        result = run(site, command)
        assert result.exit_code == Exit.ATTENTION
        assert "Broker 3 does not answer" in result.stdout
    critical = run(site, "findings", "--severity", "critical", "--json")
    assert {row["severity"] for row in json.loads(critical.stdout)["items"]} == {"critical"}
    site.cluster.start_broker(3)
    site.wait_until("it is back", lambda: not site.get("/v1/findings?slug=broker-away")["items"])
    closed = shown(site, "findings", "--state", "closed")["items"]
    assert "broker-away" in {row["slug"] for row in closed}


def test_every_command_explains_itself_and_completes() -> None:
    for command in ("status", "partitions", "describe", "segments", "findings", "toggle", "audit", "config"):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert "--json" in result.stdout
    shell = {"_EBBLINE_COMPLETE": "complete_bash", "COMP_WORDS": "ebbline fin", "COMP_CWORD": "1"}
    completed = CliRunner().invoke(app, [], env=shell, prog_name="ebbline")
    assert completed.stdout.split() == ["findings"]
