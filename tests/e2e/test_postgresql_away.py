"""`ebbline up` on PostgreSQL: a server that stops, one that hangs; two clusters in one database, one folder twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from backend.store import migrate
from tests.e2e.test_trouble_up import BARE, Said, count, produce
from tests.e2e.up_process import UpProcess
from tests.effort import effort
from tests.migrations.postgresql import NoPostgreSQL, Server, frozen, new_database, running_server
from tests.waiting import wait_until

OPTIONS = effort(BARE, ("--no-ui",))
# As `backend/store/connection/limits.py` has them, 3 s for /readyz, 8 s for a call and a command, and as long again
# for a machine that has other work; a pipeline is killed 20 s after its SIGTERM.
READY_S, CALL_S, COMMAND_S, STOP_S = 9.0, 20.0, 30.0, 90.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with running_server() as started:
            yield started
    except NoPostgreSQL as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def up(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    made = UpProcess(tmp_path_factory.mktemp("up") / "data", options=OPTIONS)
    made.environment = {"EBBLINE_DATABASE_URL": new_database(server.url, "first")}
    with made:
        produce(made, 100)
        yield made


def ready(up: UpProcess) -> httpx.Response:
    return httpx.get(f"{up.api_url}/readyz", timeout=60, verify=False)


def is_ready(up: UpProcess) -> bool:
    try:
        return ready(up).status_code == 200
    except httpx.HTTPError:
        return False


def operator(up: UpProcess, path: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {up.operator_token}"}
    return httpx.get(f"{up.api_url}{path}", headers=headers, timeout=60, verify=False)


def test_a_backend_that_is_killed_while_the_server_is_stopped_serves_without_it(server: Server, up: UpProcess) -> None:
    before = up.pid("backend")
    server.stop()
    try:
        os.kill(before, signal.SIGKILL)
        wait_until("another backend has started", lambda: up.pid("backend") != before, 60)
        produce(up, 100)
        wait_until("/readyz says so", lambda: "does not answer" in said_of_database(up), 60)
        assert up.process is not None
        assert up.process.poll() is None
    finally:
        server.start()
    after = up.pid("backend")
    wait_until("it is ready", lambda: is_ready(up), 60)
    assert up.pid("backend") == after, "it was not started again for it"
    assert count(up) == 200
    assert "Traceback" not in up.log("backend")


def said_of_database(up: UpProcess) -> str:
    try:
        return str(ready(up).json()["checks"]["database"])
    except httpx.HTTPError:
        return ""


def test_two_clusters_in_one_database_see_nothing_of_each_other(server: Server, up: UpProcess, tmp_path: Path) -> None:
    other = UpProcess(tmp_path / "data", options=BARE, brokers=1)
    other.environment = up.environment
    with other:
        ids = {operator(up_process, "/v1/cluster").json()["cluster_id"] for up_process in (up, other)}
        assert len(ids) == 2
        wait_until("its topic is on the pages of the one", lambda: "trouble" in topics(up))
        assert "trouble" not in topics(other)
        assert wait_until("its broker is seen", lambda: brokers(other)) == [1]
        assert brokers(up) == [1, 2, 3]
        assert other.operator_token != up.operator_token
        headers = {"Authorization": f"Bearer {other.operator_token}"}
        assert httpx.get(f"{up.api_url}/v1/cluster", headers=headers, timeout=60, verify=False).status_code == 401


def test_a_second_folder_for_a_cluster_that_is_watched_with_this_database_is_refused(
    server: Server, up: UpProcess, tmp_path: Path
) -> None:
    attach = (*BARE, "--attach", up.bootstrap)
    environment = {"EBBLINE_DATABASE_URL": new_database(server.url, "shared")}
    with UpProcess(tmp_path / "one", options=attach, environment=environment) as first:
        url = environment["EBBLINE_DATABASE_URL"]
        wait_until("it has given a sign of life", lambda: "observer" in migrate.running(url))
        second = UpProcess(tmp_path / "two", options=attach, environment=environment)
        try:
            said, _ = second.spawn().communicate(timeout=60)
        finally:
            code = second.stop()
        assert code == 2, said
        assert said.startswith("ebbline: Another `ebbline up` watches this cluster with the database postgresql://")
        assert not second.data.exists()
        assert operator(first, "/v1/cluster").status_code == 200
        first.stop()
        first.start()  # its own folder goes on


def topics(up: UpProcess) -> set[str]:
    return {row["topic"] for row in operator(up, "/v1/partitions?tiered=false").json()["items"]}


def brokers(up: UpProcess) -> list[int]:
    return [row["broker_id"] for row in operator(up, "/v1/brokers").json()["items"]]


def test_a_folder_that_is_in_use_is_refused_and_left_alone(up: UpProcess) -> None:
    second = UpProcess(up.data, options=BARE)
    second.environment = up.environment
    said, _ = second.spawn().communicate(timeout=60)
    assert second.process is not None
    assert second.process.returncode == 2, said
    assert "Another `ebbline up` is using" in " ".join(said.split())
    assert is_ready(up)
    produce(up, 10)


def test_a_server_that_hangs_is_told_within_seconds_and_ctrl_c_ends_all_the_same(server: Server, up: UpProcess) -> None:
    assert up.process is not None
    said = Said(up)
    with frozen(server):
        wait_until("/readyz says so", lambda: within(READY_S, lambda: ready(up).status_code) == 503, 10)
        assert within(CALL_S, lambda: operator(up, "/v1/cluster").status_code) == 503
        assert within(COMMAND_S, lambda: ebbline(up, "status")) == 3
        produce(up, 10)
        assert within(STOP_S, up.stop) == 0
    assert "Traceback" not in said.all() + up.log("backend")
    up.start()
    assert count(up) >= 220
    assert up.stop() == 0


def within(limit_s: float, ask: Callable[[], int]) -> int:
    """The answer, which comes in time."""
    began_s = time.monotonic()
    answer = ask()
    taken_s = time.monotonic() - began_s
    assert taken_s < limit_s, f"{taken_s:.1f} s"
    return answer


def ebbline(up: UpProcess, *words: str) -> int:
    command = [sys.executable, "-m", "backend.cli.entry", *words, "--data", str(up.data)]
    environment = {**os.environ, **up.environment, "EBBLINE_API_PORT": str(up.base + 30)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "does not answer" in done.stderr
    return done.returncode
