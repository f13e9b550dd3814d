"""1,000 topics of 6 partitions: how long they take to create and to come back, and what they cost while idle."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from backend.control.observer.sampling.sampling_interval import round_interval_ms
from tests.benchmarks.peers import EBBLINE_BOOTSTRAP, cpu_s_of, metrics, up, wait_until_ready

TOPICS, TOPICS_QUICK = 1_000, 100
PARTITIONS = 6
TOPICS_PER_REQUEST = 50
IDLE_S = 20.0
IDLE_QUICK_S = 5.0
TIMEOUT_S = 100.0


def measure_many_topics(*, quick: bool) -> dict[str, float]:
    """Figures by name, for one process with RF 1 and for a process per broker with RF 3."""
    count = TOPICS_QUICK if quick else TOPICS
    figures: dict[str, float] = {}
    for name, replicas, options in (
        ("RF 1, one process", 1, ()),
        ("RF 3, a process per broker", 3, ("--process-per-broker",)),
    ):
        with tempfile.TemporaryDirectory(prefix="ebbline-bench-") as folder:
            for what, value in _measure(
                Path(folder) / "data", count, replicas, options, IDLE_QUICK_S if quick else IDLE_S
            ).items():
                figures[f"{count} topics x {PARTITIONS}, {name}: {what}"] = value
                print(f"  ebbline: {count} topics, {name}: {what}: {value:.2f}", file=sys.stderr, flush=True)
    return figures


def _measure(data: Path, count: int, replicas: int, options: tuple[str, ...], idle_s: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    with up(data, *options) as run:
        wait_until_ready()
        admin = AdminClient({"bootstrap.servers": EBBLINE_BOOTSTRAP, "log_level": 0})
        started_s = time.monotonic()
        for first in range(0, count, TOPICS_PER_REQUEST):
            topics = [
                NewTopic(f"many-{number}", num_partitions=PARTITIONS, replication_factor=replicas)
                for number in range(first, min(first + TOPICS_PER_REQUEST, count))
            ]
            for future in admin.create_topics(topics, request_timeout=TIMEOUT_S).values():
                future.result(TIMEOUT_S)
        _wait_for_leaders(count)
        figures["create, s"] = time.monotonic() - started_s
        _wait_until_observed(count * PARTITIONS)
        time.sleep(idle_s / 4)
        round_s = round_interval_ms(0, count * PARTITIONS, count * PARTITIONS * replicas) / 1000
        rounds = metrics()["ebbline_observer_rounds"]
        before_s, before = time.monotonic(), _cpu_s(run)
        # The observer looks at so many partitions only now and then: one look is part of any such time.
        time.sleep(max(idle_s, round_s))
        figures["idle, % of a core (target: 5)"] = 100 * (_cpu_s(run) - before) / (time.monotonic() - before_s)
        figures["rounds of the observer meanwhile"] = metrics()["ebbline_observer_rounds"] - rounds
        figures["open descriptors of logs a replica (target: 1)"] = _open_logs(run, data) / _replicas(data)
    started_s = time.monotonic()
    with up(data, *options):
        _wait_for_leaders(count)
        figures["restart, s (target: 10)"] = time.monotonic() - started_s
    return figures


def _wait_for_leaders(count: int) -> None:
    """Waits until the metadata that a client gets have a leader for every partition."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            admin = AdminClient({"bootstrap.servers": EBBLINE_BOOTSTRAP, "log_level": 0})
            topics = admin.list_topics(timeout=10.0).topics
        except KafkaException:  # nobody listens yet
            time.sleep(0.1)
            continue
        leaders = [
            partition.leader
            for name, topic in topics.items()
            if name.startswith("many-")
            for partition in topic.partitions.values()
        ]
        if len(leaders) == count * PARTITIONS and min(leaders) > 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"not every partition of {count} topics had a leader within {TIMEOUT_S:.0f} s")


def _wait_until_observed(partitions: int) -> None:
    """Until the observer has seen and stored all of them: nothing is new after that, which is what idle means."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        own = metrics()
        if own.get("ebbline_cluster_partitions", 0) >= partitions and not own["ebbline_observer_rounds_waiting"]:
            return
        time.sleep(1.0)
    raise RuntimeError(f"the observer had not seen {partitions} partitions within {TIMEOUT_S:.0f} s")


def _cpu_s(run: Path) -> float:
    """CPU seconds of the brokers and the backend so far."""
    return sum(cpu_s_of(int(file.read_text())) for file in run.glob("*.pid"))


def _replicas(data: Path) -> int:
    """Replicas on all brokers, those of internal topics and of the metadata log included (which has no topic id)."""
    brokers = data / "brokers"
    return sum(1 for name in ("partition.metadata", "quorum-state") for _ in brokers.rglob(name))


def _open_logs(run: Path, data: Path) -> int:
    """Descriptors of segments and indexes that the brokers hold open."""
    count = 0
    for file in run.glob("*.pid"):
        for link in Path(f"/proc/{int(file.read_text())}/fd").iterdir():
            # One that is closed meanwhile counts no more.
            with suppress(OSError):
                opened = os.readlink(link)
                # The locks of the log directories are no logs.
                count += opened.startswith(str(data / "brokers")) and not opened.endswith("/.lock")
    return count
