"""`ebbline snapshot`: a folder's snapshots as files, good and bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backend.cli.main import app
from tests.unit.protocol.kafka_fixtures import ROOT as KAFKA

CAPTURED = KAFKA / "kraft" / "00000000000000000776-0000000002.checkpoint"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "brokers" / "2" / "log" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / CAPTURED.name).write_bytes(CAPTURED.read_bytes())
    (folder / "00000000000000000900-0000000003.checkpoint").write_bytes(CAPTURED.read_bytes()[:-80])
    (folder / "quorum-state").write_text("{}")
    return tmp_path


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


def test_snapshots_are_listed_oldest_first(data: Path) -> None:
    code, output = run("snapshot", "ls", "--data", str(data), "--node", "2", "--json")
    assert code == 0
    assert [(row["end_offset"], row["epoch"]) for row in json.loads(output)["items"]] == [(776, 2), (900, 3)]
    code, output = run("snapshot", "ls", "--data", str(data), "--node", "1")
    assert code == 2
    assert "cannot be read" in output


def test_a_snapshot_of_apache_kafka_shows_its_records_by_kind() -> None:
    code, output = run("snapshot", "show", str(CAPTURED))
    assert code == 0
    assert "93 records" in output
    assert "PartitionRecord" in output
    assert json.loads(run("snapshot", "show", str(CAPTURED), "--json")[1])["records"]["TopicRecord"] == 9


def test_a_bad_snapshot_is_named_and_ends_with_1(data: Path) -> None:
    folder = data / "brokers" / "2" / "log" / "__cluster_metadata-0"
    good, bad = sorted(folder.glob("*.checkpoint"))
    code, output = run("snapshot", "verify", str(good), str(bad))
    assert code == 1
    assert f"{good}: whole: 3 brokers, 9 topics" in output
    assert f"{bad}: bad: its end is missing" in output
    assert run("snapshot", "verify", str(good))[0] == 0
    assert run("snapshot", "show", str(bad))[0] == 1
    assert run("snapshot", "verify", str(folder / "none"))[0] == 2


def test_a_quorum_that_nobody_can_be_asked_for_is_one_line(tmp_path: Path) -> None:
    code, output = run("quorum", "describe", "--data", str(tmp_path / "none"))
    assert code == 2
    assert "holds no cluster" in output
    code, output = run("quorum", "describe", "--bootstrap-server", "nonsense")
    assert code == 2
    assert "host:port" in output
