"""The signs of life that the supervisor accepts."""

from __future__ import annotations

import io
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity, DataFolder
from backend.settings.settings import Settings
from backend.supervisor import up
from backend.supervisor.children.child import Child, ChildSpec
from backend.supervisor.children.child_specs import child_specs
from backend.supervisor.children.process_health import any_broker_answers, broker_answers, http_answers, http_serves
from backend.supervisor.up import BEGINS_WITHIN_S, HUNG_AFTER_S, hung_after_s
from tests.ports import free_ports


@contextmanager
def listener(serve: Callable[[socket.socket], None] | None) -> Iterator[int]:
    """A port; None: nobody accepts, as in a process that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def run() -> None:
            assert serve is not None
            connection, _ = server.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run)
        if serve is not None:
            thread.start()
        yield server.getsockname()[1]
        if serve is not None:
            thread.join()


def answer_api_versions(connection: socket.socket) -> None:
    (size,) = struct.unpack(">i", connection.recv(4))
    key, version, correlation_id = struct.unpack_from(">hhi", connection.recv(size))
    assert (key, version) == (18, 0)
    connection.sendall(struct.pack(">iihi", 10, correlation_id, 0, 0))


def test_a_broker_that_answers_or_refuses_lives() -> None:
    with listener(answer_api_versions) as port:
        assert broker_answers(port)
    with listener(lambda connection: connection.close()) as port:
        assert broker_answers(port)


def test_a_broker_that_only_its_system_accepts_for_hangs() -> None:
    (nobody,) = free_ports(1)
    with listener(None) as port:
        assert not broker_answers(port)
        assert not any_broker_answers([nobody, port])
        with listener(answer_api_versions) as other:
            assert any_broker_answers([nobody, port, other])


class _Full(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_too_many_connections_is_an_answer() -> None:
    with HTTPServer(("127.0.0.1", 0), _Full) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/healthz"
        assert http_answers(url)
        assert not http_serves(url)
        server.shutdown()
        thread.join()


def test_the_backend_is_judged_by_its_brokers_not_by_the_control_api(tmp_path: Path) -> None:
    identity = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 1, 19092, 19192)
    (api_port,) = free_ports(1)
    with listener(answer_api_versions) as port:
        settings = Settings(data_dir=tmp_path, brokers=1, broker_port=port, api_port=api_port)
        backend = child_specs(settings, DataFolder(tmp_path), identity)[0]
        assert backend.healthy is not None
        assert backend.healthy()
    assert not backend.healthy()


def test_each_broker_of_its_own_process_is_asked(tmp_path: Path) -> None:
    identity = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 3, 19092, 19192)
    folder = DataFolder(tmp_path)
    folder.run.mkdir(parents=True)
    base = free_ports(20)[0]
    settings = Settings(
        data_dir=tmp_path, process_per_broker=True, broker_port=base, controller_port=base + 5, api_port=base + 10
    )
    specs = {spec.name: spec for spec in child_specs(settings, folder, identity)}
    assert all(specs[f"broker-{node}"].healthy is not None for node in (1, 2, 3))
    healthy = specs["broker-2"].healthy
    assert healthy is not None
    assert not healthy()


@pytest.mark.outside
def test_a_process_that_has_never_answered_is_given_time_to_recover_its_logs(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "run").mkdir()
    alive = True
    spec = ChildSpec("broker-1", ["sleep", "60"], {}, "here", stop_timeout_s=5.0, healthy=lambda: alive)
    child = Child(spec, tmp_path / "logs")
    child.start(0.0)
    try:
        assert hung_after_s(child) == BEGINS_WITHIN_S
        assert child.probe(1.0)
        assert hung_after_s(child) == HUNG_AFTER_S
        alive = False
        assert not child.probe(2.0)
        assert not child.probe(70.0)
        assert child.silent_s(70.0) == pytest.approx(68.0)
    finally:
        child.stop(1.0)
    assert not child.running


@pytest.mark.outside
def test_a_process_that_hangs_is_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "HUNG_AFTER_S", 0.0)
    monkeypatch.setattr(up, "HUNG_STOP_S", 0.2)
    identity = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 1, 19092, 19192)
    folder = DataFolder(tmp_path)
    for path in (folder.run, folder.logs):
        path.mkdir(parents=True)
    said = io.StringIO()
    settings = Settings(data_dir=tmp_path, brokers=1, ui=False, pipeline=False)
    supervisor = up.Supervisor(settings, folder, identity, Console(file=said, width=200))
    answers = iter([True, False, False])
    spec = ChildSpec("broker-2", ["sleep", "60"], {}, "here", stop_timeout_s=60.0, healthy=lambda: next(answers))
    child = Child(spec, folder.logs)
    child.start(100.0)
    assert child.process is not None
    child.process.send_signal(signal.SIGSTOP)
    # A process that is not yet stopped takes the SIGTERM first, as the lower number.
    os.waitid(os.P_PID, child.process.pid, os.WSTOPPED | os.WNOWAIT)
    for now_s in (101.0, 102.0, 103.0):
        supervisor._watch_one(child, now_s, probing=True)
    assert child.exit_code == -signal.SIGKILL
    supervisor._watch_one(child, 104.0, probing=True)
    supervisor._watch_one(child, 106.0, probing=False)
    assert child.running
    child.stop(0.2)
    assert said.getvalue().splitlines() == [
        "broker-2 has not answered for 0 s and is restarted",
        "broker-2 was killed by signal 9; starting it again in 1 s",
    ]
