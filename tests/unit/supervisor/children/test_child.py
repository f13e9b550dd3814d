"""One supervised process: restarts with back-off, the report of its end, its log file."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.engine.common.log_context import LOG_FORMAT, NodeFilter, PrintableFormatter, logging_as_node
from backend.engine.config.broker_config import BrokerConfig
from backend.supervisor.children.child import HEALTHY_AFTER_S, Child, ChildSpec, LogFile, backoff_s, said_to_wait


def child(folder: Path, program: str, *, waits_for_start: bool = False) -> Child:
    (folder / "run").mkdir(exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    command = [sys.executable, "-c", program]
    spec = ChildSpec(
        "pipeline", command, environment={}, address="here", stop_timeout_s=10.0, waits_for_start=waits_for_start
    )
    return Child(spec, folder / "logs")


def wait_for_end(pipeline: Child) -> None:
    assert pipeline.process is not None
    pipeline.process.wait(30)


def test_pauses_between_restarts_double_up_to_half_a_minute() -> None:
    assert [backoff_s(restart) for restart in range(1, 8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff_s(500) == 30.0


def test_a_crash_loop_is_slowed_down_and_a_healthy_time_forgives(tmp_path: Path) -> None:
    pipeline = child(tmp_path, "")
    pipeline.started_at_s = 100.0
    assert [pipeline.note_exit(101.0) for _ in range(3)] == [1.0, 2.0, 4.0]
    assert pipeline.next_start_at_s == 105.0
    assert pipeline.note_exit(100.0 + HEALTHY_AFTER_S) == 1.0


@pytest.mark.outside
def test_an_end_is_told_with_its_code_and_last_line(tmp_path: Path) -> None:
    pipeline = child(tmp_path, "import sys; print('no such topic'); sys.exit(3)")
    pipeline.start(time.monotonic())
    wait_for_end(pipeline)
    pipeline.stop()
    assert pipeline.how_it_ended() == "ended with code 3 (no such topic)"
    assert (tmp_path / "logs" / "pipeline.log").read_text() == "no such topic\n"


@pytest.mark.outside
def test_what_a_terminal_would_obey_is_neither_told_nor_logged(tmp_path: Path) -> None:
    pipeline = child(tmp_path, r"import sys; print('it says \x1b]0;pwned\x07\x9b2J\u202e\tand more'); sys.exit(3)")
    pipeline.start(time.monotonic())
    wait_for_end(pipeline)
    pipeline.stop()
    assert pipeline.how_it_ended().isprintable()
    assert (tmp_path / "logs" / "pipeline.log").read_text().rstrip("\n").isprintable()


@pytest.mark.outside
def test_a_kill_is_told_as_what_it_is(tmp_path: Path) -> None:
    pipeline = child(tmp_path, "import time; time.sleep(60)")
    pipeline.start(time.monotonic())
    assert pipeline.process is not None
    pipeline.process.send_signal(signal.SIGKILL)
    wait_for_end(pipeline)
    assert pipeline.how_it_ended() == "was killed by signal 9"
    pipeline.stop()


@pytest.mark.outside
def test_a_child_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    pipeline = child(
        tmp_path,
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
    )
    object.__setattr__(pipeline.spec, "stop_timeout_s", 0.2)
    pipeline.start(time.monotonic())
    while pipeline.last_line != "deaf":
        time.sleep(0.01)
    pipeline.stop()
    assert pipeline.exit_code == -signal.SIGKILL
    assert not (tmp_path / "run" / "pipeline.pid").exists()


@pytest.mark.outside
def test_a_child_starts_and_stops_although_its_folder_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = child(tmp_path, "import time; print('here', flush=True); time.sleep(60)")
    (tmp_path / "run").rmdir()
    (tmp_path / "logs").rmdir()
    pipeline.start(time.monotonic())
    while pipeline.last_line != "here":
        time.sleep(0.01)
    pipeline.stop()
    assert capsys.readouterr().err == ""


def test_lines_that_cannot_be_written_are_lost_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LogFile(tmp_path / "no" / "folder.log")
    for _ in range(2):
        log.emit(logging.LogRecord("x", logging.INFO, "", 0, "line", None, None))
    assert capsys.readouterr().err == ""


WAITS = "import sys; line = sys.stdin.readline(); print('told' if line else 'alone')"


@pytest.mark.outside
def test_a_child_that_waits_to_be_told_begins_then(tmp_path: Path) -> None:
    pipeline = child(tmp_path, WAITS, waits_for_start=True)
    pipeline.start(time.monotonic())
    assert pipeline.process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        pipeline.process.wait(0.5)
    pipeline.release()
    pipeline.release()  # a second time says nothing more
    wait_for_end(pipeline)
    pipeline.stop()
    assert pipeline.last_line == "told"


@pytest.mark.outside
def test_telling_a_child_that_has_ended_or_never_began_is_no_error(tmp_path: Path) -> None:
    pipeline = child(tmp_path, "", waits_for_start=True)
    pipeline.release()
    pipeline.start(time.monotonic())
    wait_for_end(pipeline)
    pipeline.release()
    pipeline.stop()
    assert pipeline.exit_code == 0


def test_a_child_may_take_longer_to_start_than_the_nodes_in_it() -> None:
    """Else it is stopped a moment before it says what it waited for."""
    spec = ChildSpec("backend", ["true"], {}, "", stop_timeout_s=1.0)
    assert spec.start_timeout_s * 1000 > BrokerConfig.parse({"node.id": "1"}).initial_broker_registration_timeout_ms


def written(message: str, level: int = logging.WARNING) -> str:
    """As a node writes the message into its log."""
    record = logging.LogRecord("backend.engine.controller.start_wait", level, "", 0, message, None, None)
    with logging_as_node(2):
        NodeFilter().filter(record)
    return PrintableFormatter(LOG_FORMAT).format(record)


def test_whom_a_node_waits_for_is_found_in_its_log() -> None:
    message = "Controller 2: the cluster starts; 3 partitions (t-0) get a leader later: waits for broker 3"
    assert said_to_wait(written(message)) == message
    assert said_to_wait(message) is None
    assert said_to_wait(written("A client waits for nothing", logging.INFO)) is None
    assert said_to_wait(written("Broker 2 is registered with epoch 7")) is None


@pytest.mark.outside
def test_a_child_keeps_what_it_says_it_waits_for(tmp_path: Path) -> None:
    line = written("Node 2 waits for a leader of the metadata quorum. Not heard: voter 1; start it.")
    pipeline = child(tmp_path, f"print({line!r}); print('and goes on')")
    pipeline.start(time.monotonic())
    wait_for_end(pipeline)
    pipeline.stop()
    assert pipeline.waits == "Node 2 waits for a leader of the metadata quorum. Not heard: voter 1; start it."
    assert pipeline.last_line == "and goes on"
