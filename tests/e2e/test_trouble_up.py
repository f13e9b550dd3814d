"""`ebbline up` while it runs: signals at any time, children that crash, brokers that are killed, a folder that goes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.up_process import UpProcess
from tests.ports import free_ports
from tests.waiting import wait_until

BARE = ("--no-ui", "--no-pipeline", "--no-demo")
END_WAIT_S = 90


class Said:
    """The output of a running `ebbline up` so far."""

    def __init__(self, up: UpProcess) -> None:
        assert up.process is not None
        assert up.process.stdout is not None
        self._stream = up.process.stdout
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            self._lines.extend(self._stream)

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def wait_for(self, words: str) -> None:
        # A line may be folded where the terminal ends.
        wait_until(words, lambda: words in " ".join(self.text.split()), 120)

    def all(self) -> str:
        """Everything, once the process has ended."""
        self._thread.join(END_WAIT_S)
        return self.text


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def ended(up: UpProcess) -> int:
    assert up.process is not None
    return up.process.wait(END_WAIT_S)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    made = UpProcess(tmp_path / "data", options=BARE)
    yield made
    made.stop()
    made.close_output()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_ends_it_in_order(up: UpProcess, number: signal.Signals) -> None:
    process = up.spawn()
    said = Said(up)
    wait_until("the backend to be started", lambda: (up.data / "run" / "backend.pid").exists(), 60)
    backend = up.pid("backend")
    process.send_signal(number)
    assert ended(up) == 0
    assert "Traceback" not in said.all()
    assert "Stopped. The data stays in" in said.all()
    assert not Path(f"/proc/{backend}").exists()
    assert "Traceback" not in up.log("backend")


def test_a_second_ctrl_c_does_no_harm_and_the_data_is_there_next_time(up: UpProcess) -> None:
    up.start()
    said = Said(up)
    produce(up, 100)
    assert up.process is not None
    up.process.send_signal(signal.SIGINT)
    wait_until("the stop to begin", lambda: "Stopping backend" in said.text, 30)
    up.process.send_signal(signal.SIGINT)
    assert ended(up) == 0
    assert "Traceback" not in said.all()
    assert all(port_is_free(up.base + at) for at in (0, 1, 2, 10, 30))
    up.start()
    assert count(up) == 100


def test_a_child_that_crashes_is_started_again_ever_later_and_the_rest_goes_on(tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "streamlit.py").write_text("raise SystemExit('the dashboard is broken')")
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-demo"))
    up.environment = {"PYTHONPATH": str(shadow)}
    process = up.spawn()
    said = Said(up)
    try:
        for pause_s in (1, 2, 4):
            said.wait_for(f"starting it again in {pause_s} s")
        assert "app ended with code 1" in said.text
        assert "the dashboard is broken" in said.text
        assert httpx.get(f"{up.api_url}/readyz", timeout=10).status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
    assert ended(up) == 0
    assert "Traceback" not in said.all()
    up.close_output()


def test_a_backend_that_is_refused_is_named_with_its_reason(up: UpProcess) -> None:
    up.start()
    assert up.stop() == 0
    # Found only once the backend runs.
    meta = up.data / "brokers" / "2" / "log" / "meta.properties"
    meta.write_bytes(b"\xff\x00 no properties")
    process = up.spawn()
    said, _ = process.communicate(timeout=END_WAIT_S)
    assert process.returncode == 1
    assert "The backend did not start" in said
    assert str(meta) in said
    assert "Traceback" not in said


def test_a_folder_that_is_deleted_meanwhile_does_not_hold_up_the_stop(up: UpProcess) -> None:
    up.start()
    said = Said(up)
    produce(up, 100)
    gone = up.data.with_name("gone")
    up.data.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    assert up.process is not None
    up.process.send_signal(signal.SIGINT)
    assert ended(up) in (0, 1)
    assert "is killed" not in said.all()
    assert "Traceback" not in said.all()
    assert port_is_free(up.base)


def test_a_process_per_broker_is_the_same_cluster(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with UpProcess(data, options=BARE) as up:
        produce(up, 100)
    up = UpProcess(data, options=(*BARE, "--process-per-broker"))
    with up:
        assert count(up) == 100
        pids = {name: up.pid(name) for name in ("broker-1", "broker-2", "broker-3", "backend")}
        assert len(set(pids.values())) == 4
        # Until then the start is not over, and what ends in it ends `ebbline up`.
        assert up.process is not None
        assert up.process.stdout is not None
        assert any("Ctrl-C stops everything" in line for line in up.process.stdout)
        os.kill(pids["broker-2"], signal.SIGKILL)
        produce(up, 100)
        wait_until(
            "broker 2 is back in sync",
            # Records that were produced since are acknowledged without it, or after its restart.
            lambda: up.pid("broker-2") != pids["broker-2"] and in_sync(up) == {1, 2, 3},
            timeout_s=90,
        )
        assert count(up) == 200
        assert {name: up.pid(name) for name in ("broker-1", "broker-3", "backend")}.items() <= pids.items()
        wait_until("metrics of all brokers", lambda: scraped_brokers(up) == {1, 2, 3}, 60)
    assert port_is_free(up.base)
    for node in (1, 2, 3):
        assert (data / "brokers" / str(node) / "log" / ".kafka_cleanshutdown").exists()


def scraped_brokers(up: UpProcess) -> set[int]:
    """Brokers whose series are among those of the control API."""
    text = httpx.get(f"{up.api_url}/metrics", timeout=30, verify=False).text
    return {node for node in (1, 2, 3) if f'ebbline_malformed_frames_total{{broker="{node}"}} 0' in text}


@pytest.mark.parametrize("option", [("--client-properties", "file"), ("--allow-changes",)])
def test_options_of_an_attached_cluster_need_one(tmp_path: Path, option: tuple[str, ...]) -> None:
    up = UpProcess(tmp_path / "data", options=(*BARE, *option))
    said, _ = up.spawn().communicate(timeout=60)
    assert up.process is not None
    assert up.process.returncode == 2
    assert said == "ebbline: --client-properties, --broker-metrics and --allow-changes belong to --attach: add it.\n"
    assert not up.data.exists()


def test_a_cluster_that_does_not_answer_is_not_attached(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    up = UpProcess(tmp_path / "data", options=(*BARE, "--attach", f"127.0.0.1:{port}"))
    said, _ = up.spawn().communicate(timeout=60)
    assert up.process is not None
    assert up.process.returncode == 2
    assert said.startswith(f"ebbline: The cluster at 127.0.0.1:{port} cannot be attached.")
    assert said.count("\n") == 1
    assert not up.data.exists()


def in_sync(up: UpProcess) -> set[int]:
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    return set(admin.list_topics("trouble", timeout=30).topics["trouble"].partitions[0].isrs)


def produce(up: UpProcess, records: int) -> None:
    """Into a topic of one partition on all brokers, acknowledged by the in-sync ones."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    if "trouble" not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic("trouble", 1, 3)])["trouble"].result(30)
    failed: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error.str())

    producer = Producer({"bootstrap.servers": up.bootstrap, "acks": "all", "log_level": 0})
    for number in range(records):
        producer.produce("trouble", b"value-%d" % number, on_delivery=delivered)
    assert producer.flush(90) == 0
    assert failed == []


def count(up: UpProcess) -> int:
    """Records a consumer gets."""
    consumer = Consumer(
        {"bootstrap.servers": up.bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    )
    end = consumer.get_watermark_offsets(TopicPartition("trouble", 0), timeout=30)[1]
    consumer.assign([TopicPartition("trouble", 0, 0)])
    consumed = 0
    while consumed < end:
        messages = consumer.consume(end - consumed, timeout=30)
        assert messages, f"{consumed} of {end} records"
        assert all(message.error() is None for message in messages)
        consumed += len(messages)
    consumer.close()
    return consumed
