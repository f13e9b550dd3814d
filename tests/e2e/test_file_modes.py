"""The files that `ebbline up` writes can be read by its owner alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.e2e.up_process import UpProcess
from tests.ports import free_ports
from tests.waiting import wait_until


def open_to_others(folder: Path) -> list[str]:
    """Paths of the folder that others may read, write or enter."""
    return [f"{path.stat().st_mode & 0o777:o} {path}" for path in [folder, *folder.rglob("*")] if _is_open(path)]


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o077)
    except FileNotFoundError:
        return False  # a segment that was deleted meanwhile


def test_no_file_of_a_run_is_open_to_others(up: UpProcess) -> None:
    producer = Producer({"bootstrap.servers": up.bootstrap, "log_level": 0})
    producer.produce("private", b"record")
    assert producer.flush(60) == 0
    wait_until("a checkpoint of the pipeline", lambda: (up.data / "spark" / "checkpoint").exists(), 120)
    assert {"ebbline.db", "brokers", "logs", "run", "spark"} <= {path.name for path in up.data.iterdir()}
    assert open_to_others(up.data) == []


def listening(pids: set[int]) -> set[str]:
    """Addresses at which processes take connections, without the port."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):  # it has ended meanwhile
            targets = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            inodes |= {name[8:-1] for name in targets if name.startswith("socket:[")}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def with_children(pid: int) -> set[int]:
    pids = {pid}
    # A thread or a process may end between the listing and the read.
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    pids |= with_children(int(child))
    return pids


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux tells which socket is whose")
def test_every_process_of_a_run_listens_on_loopback_alone(up: UpProcess) -> None:
    """Brokers, controllers, metrics, control API, and what Spark opens: IPv4's 127.0.0.1, or the same within IPv6."""
    wait_until("a checkpoint of the pipeline", lambda: (up.data / "spark" / "checkpoint").exists(), 120)
    assert up.process is not None
    result = listening(with_children(up.process.pid))
    assert "0100007F" in result
    assert result <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_folder_of_an_earlier_version_is_closed_at_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ("--no-pipeline", "--no-demo", "--no-ui")
    with UpProcess(data, options=options, brokers=1) as first:
        assert open_to_others(data) == []
    data.chmod(0o755)
    for path in data.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with UpProcess(data, options=options, brokers=1, base=first.base) as second:
        assert second.process is not None
        assert second.process.stdout is not None
        assert any("its mode is 0700 now" in line for line in iter(second.process.stdout.readline, "Kafka"))
        assert data.stat().st_mode & 0o777 == 0o700


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_backup_is_private_too(up: UpProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "backend.cli.entry", "db", "backup", str(tmp_path / "copy.db")]
    subprocess.run([*command, "--data", str(up.data)], check=True, timeout=60)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_a_single_broker_s_folders_are_private_and_one_of_before_is_closed(tmp_path: Path) -> None:
    client_port, controller_port = free_ports(2)
    folder = tmp_path / "log"
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"node.id=1\nprocess.roles=broker,controller\nlog.dirs={folder}\n"
        f"listeners=CLIENTS://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}\n"
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT\ninter.broker.listener.name=CLIENTS\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{controller_port}\n"
        "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
    )

    def run() -> str:
        command = [sys.executable, "-m", "backend.cli.entry", "broker", "--config", str(properties)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            wait_until("the broker serves", lambda: _listens(client_port), 60)
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        return said

    run()
    assert open_to_others(folder) == []
    folder.chmod(0o755)
    assert f"could read {folder}" in run()
    assert folder.stat().st_mode & 0o777 == 0o700
