"""The cost of watching 10,000 partitions with three replicas, and how old what is seen of them is.

A process per broker. 20 partitions get a record each second; the others rest. Only on request (ONLY=observe): making
the topics alone takes minutes.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from backend.control.observer.sampling.moving_partitions import TIERED_MOVES_FOR_MS
from tests.benchmarks.peers import cpu_s_of
from tests.e2e.up_process import UpProcess
from tests.incidents.rigs.processes import KeptDown

TOPICS, TOPICS_QUICK = 500, 50
PARTITIONS: Final = 20
TOPICS_PER_REQUEST: Final = 10
OPTIONS: Final = ("--no-ui", "--no-pipeline", "--no-demo", "--process-per-broker")
BROKERS: Final = (1, 2, 3)
# More than a whole round, which begins every 150 s.
WATCH_S, WATCH_QUICK_S = 170.0, 40.0
# `ebbline up` starts a backend again that does not answer for a minute.
ALONE_S: Final = 40.0
TIMEOUT_S: Final = 400.0


def measure_observe(*, quick: bool) -> dict[str, float]:
    """Figures by name. Raises RuntimeError when the cluster does not come so far."""
    topics = TOPICS_QUICK if quick else TOPICS
    with (
        tempfile.TemporaryDirectory(prefix="ebbline-observe-") as folder,
        UpProcess(Path(folder) / "data", options=OPTIONS) as up,
    ):
        _make_topics(up, topics)
        _wait(lambda: (_cluster(up)["totals"] or {"partitions": 0})["partitions"] >= topics * PARTITIONS, "sampled")
        with _records(up):
            # A partition that is new moves for a while, whatever is written.
            time.sleep(5 if quick else TIERED_MOVES_FOR_MS / 1000)
            watched = _watch(up, WATCH_QUICK_S if quick else WATCH_S)
            told_s = _told_s(up)
    size = f"{topics * PARTITIONS} partitions x 3"
    return {f"{size}: {name}": value for name, value in {**watched, "broker away told, s (target: 5)": told_s}.items()}


def _watch(up: UpProcess, watch_s: float) -> dict[str, float]:
    backend, brokers = up.pid("backend"), [up.pid(f"broker-{n}") for n in BROKERS]
    began_s, observer_s, brokers_s = time.monotonic(), cpu_s_of(backend), sum(map(cpu_s_of, brokers))
    time.sleep(watch_s)
    wall_s = time.monotonic() - began_s
    observer = (cpu_s_of(backend) - observer_s) / wall_s
    watched = (sum(map(cpu_s_of, brokers)) - brokers_s) / wall_s
    oldest_s = _oldest_s(up, watch_s / 2)  # its requests cost the backend as much as the observer
    # Stopped, not ended: `ebbline up` would start it again.
    os.kill(backend, signal.SIGSTOP)
    try:
        time.sleep(2)
        began_s, brokers_s = time.monotonic(), sum(map(cpu_s_of, brokers))
        time.sleep(ALONE_S)
        alone = (sum(map(cpu_s_of, brokers)) - brokers_s) / (time.monotonic() - began_s)
    finally:
        os.kill(backend, signal.SIGCONT)
    return {
        "offsets of a moving partition, oldest, s (target: 30)": oldest_s,
        "observer, % of a core (target: 25)": 100 * observer,
        "added to each broker, % of a core (target: 5)": 100 * (watched - alone) / len(BROKERS),
        "a round, s": _observer(up)["detail"]["round_duration_ms"] / 1000,
    }


def _oldest_s(up: UpProcess, watch_s: float) -> float:
    """The oldest that the offsets of a partition that moves were, as the API has them."""
    ages_s: list[float] = []
    deadline_s = time.monotonic() + watch_s
    while time.monotonic() < deadline_s:
        ages_s.append(time.time() - _partition(up)["sampled_ms"] / 1000)
        time.sleep(1)
    return max(ages_s)


def _told_s(up: UpProcess) -> float:
    """From the kill of a broker until it is a finding."""
    time.sleep(10)  # the backend has just been stopped for a while
    began_s = time.monotonic()
    down = KeptDown(lambda: up.pid("broker-3"), "broker-3.properties")
    try:
        _wait(lambda: _get(up, "/v1/findings", slug="broker-away")["items"], "the broker is told to be away")
        return time.monotonic() - began_s
    finally:
        down.release()


@contextmanager
def _records(up: UpProcess) -> Iterator[None]:
    ended = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": up.bootstrap, "acks": "all", "log_level": 0})
        while not ended.wait(1.0):
            for partition in range(PARTITIONS):
                producer.produce("t-0", b"v" * 200, partition=partition)
            producer.flush(5)

    thread = threading.Thread(target=produce, name="records")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _make_topics(up: UpProcess, topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    began_s = time.monotonic()
    for first in range(0, topics, TOPICS_PER_REQUEST):
        config = {"remote.storage.enable": "true"}
        numbers = range(first, min(first + TOPICS_PER_REQUEST, topics))
        requested = [NewTopic(f"t-{n}", PARTITIONS, len(BROKERS), config=config) for n in numbers]
        for future in admin.create_topics(requested, request_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)
    print(f"  {topics} topics were made in {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)


def _get(up: UpProcess, path: str, **params: str) -> Any:
    headers = {"Authorization": f"Bearer {up.operator_token}"}
    return httpx.get(f"{up.api_url}{path}", params=params, headers=headers, timeout=60).raise_for_status().json()


def _cluster(up: UpProcess) -> Any:
    return _get(up, "/v1/cluster")


def _observer(up: UpProcess) -> Any:
    return next(process for process in _cluster(up)["processes"] if process["process"] == "observer")


def _partition(up: UpProcess) -> Any:
    rows = _get(up, "/v1/partitions", topic="t-0")["items"]
    return next(row for row in rows if (row["topic"], row["partition"]) == ("t-0", 0))


def _wait(reached: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not reached():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not within {TIMEOUT_S:.0f} s: {what}")
        time.sleep(0.2)
