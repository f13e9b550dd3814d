"""The two systems under measurement, started and stopped the way their users do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

ORACLE = Path(__file__).parents[1] / "oracle" / "apache_kafka.py"
EBBLINE_PORT_BASE, KAFKA_PORT_BASE = 21092, 22092
EBBLINE_BOOTSTRAP = ",".join(f"127.0.0.1:{EBBLINE_PORT_BASE + n}" for n in range(3))
START_TIMEOUT_S = 180.0
# The longest, 2 GB at 20 MB/s.
CLIENT_TIMEOUT_S = 100.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def files(folder: Path, pattern: str) -> list[Path]:
    """All below a folder, in which a system may be removing others meanwhile."""
    while True:
        with suppress(FileNotFoundError):
            return list(folder.rglob(pattern))


def cpu_s_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_S


class PeerUnavailable(Exception):
    """The system cannot run here; the message says why."""


@dataclass
class Peer:
    """A running cluster of three brokers with tiered storage."""

    name: str
    bootstrap: str
    remote: Path
    pids: list[int]
    start_s: float
    # Figures of client work that one run gives several of.
    figures_by_key: dict[str, dict[str, float]] = field(default_factory=dict)

    def resident_mb(self) -> float:
        """Resident memory of all broker processes."""
        total_kb = 0
        for pid in self.pids:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total_kb += int(line.split()[1])
        return total_kb / 1e3

    def cpu_s(self) -> float:
        """CPU seconds of all broker processes so far."""
        return sum(cpu_s_of(pid) for pid in self.pids)

    def create_topic(self, name: str, *, partitions: int, replicas: int, config: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config or {})
        admin.create_topics([topic])[name].result(timeout=60.0)

    def delete_topic(self, name: str) -> None:
        """Makes room on the disk for the next work; not every work has made its topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        with suppress(KafkaException):
            admin.delete_topics([name])[name].result(timeout=60.0)

    def client(self, *words: str, module: str = "client") -> dict[str, float]:
        """Runs one piece of client work; its JSON."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"tests.benchmarks.{module}", words[0], self.bootstrap, *words[1:]],
                capture_output=True,
                text=True,
                timeout=CLIENT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{' '.join(words)} did not end within {CLIENT_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(words)} failed: {done.stderr.strip()[-400:]}")
        result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return result

    def remote_log_bytes(self, topic: str) -> int:
        """Bytes of the topic's `.log` objects in the remote tier (both use the same layout)."""
        return sum(path.stat().st_size for path in files(self.remote, f"{topic}-*/*.log"))


def _wait_until_listening(bootstrap: str, deadline_s: float) -> None:
    """Returns when all brokers accept connections.

    librdkafka pauses for up to seconds after a connection that failed: it would measure its own pauses.
    """
    for address in bootstrap.split(","):
        host, port = address.split(":")
        while time.monotonic() < deadline_s:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
                break
            time.sleep(0.005)


def _first_acknowledged(bootstrap: str, started_s: float) -> float:
    """Seconds from the start until a record sent with acks=all is acknowledged."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    _wait_until_listening(bootstrap, deadline_s)
    while time.monotonic() < deadline_s:
        try:
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            topic = NewTopic("first", num_partitions=1, replication_factor=3)
            admin.create_topics([topic])["first"].result(timeout=5.0)
            break
        except TimeoutError:
            continue  # nobody listens yet
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                break  # an earlier request did it, its answer came too late
            time.sleep(0.05)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    producer.produce("first", b"x")
    if producer.flush(START_TIMEOUT_S):
        raise PeerUnavailable(f"the cluster at {bootstrap} acknowledged nothing in {START_TIMEOUT_S:.0f} s")
    return time.monotonic() - started_s


@contextmanager
def up(data: Path, *options: str) -> Iterator[Path]:
    """`ebbline up` on a data folder without demo, dashboard and pipeline; yields the folder of its process ids."""
    environment = os.environ | {
        "EBBLINE_BROKER_PORT": str(EBBLINE_PORT_BASE),
        "EBBLINE_CONTROLLER_PORT": str(EBBLINE_PORT_BASE + 100),
        "EBBLINE_METRICS_PORT": str(EBBLINE_PORT_BASE + 200),
        "EBBLINE_API_PORT": str(EBBLINE_PORT_BASE + 300),
    }
    # A user's Python keeps compiled modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "backend.cli.entry", "up", "--data", str(data)]
    process = subprocess.Popen(
        [*command, "--no-demo", "--no-ui", "--no-pipeline", *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield data / "run"
    finally:
        process.terminate()
        process.wait(60)


def wait_until_ready() -> None:
    """Returns when the control API of `up` is ready."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{EBBLINE_PORT_BASE + 300}/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"ebbline was not ready within {START_TIMEOUT_S:.0f} s")


def metrics() -> dict[str, float]:
    """The numbers of the control plane of `up` that have no labels, those that are known."""
    exposition = httpx.get(f"http://127.0.0.1:{EBBLINE_PORT_BASE + 300}/metrics", timeout=20).text
    families = text_string_to_metric_families(exposition)
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


@contextmanager
def ebbline() -> Iterator[Peer]:
    """Three brokers in one process, as `ebbline up` runs them."""
    with tempfile.TemporaryDirectory(prefix="ebbline-bench-") as folder:
        data = Path(folder) / "data"
        # As after any first start: modules are compiled.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "backend", "spark"], check=True)
        started_s = time.monotonic()
        with up(data) as run:
            start_s = _first_acknowledged(EBBLINE_BOOTSTRAP, started_s)
            wait_until_ready()
            pid = int((run / "backend.pid").read_text())
            yield Peer("ebbline", EBBLINE_BOOTSTRAP, data / "remote", [pid], start_s)


@contextmanager
def apache_kafka() -> Iterator[Peer]:
    """Apache Kafka 4.3.1: three brokers, LocalTieredStorage. Raises PeerUnavailable without Java or the jars."""
    oracle = [sys.executable, str(ORACLE)]
    jars = subprocess.run([*oracle, "jars"], capture_output=True, text=True, check=False)
    if jars.returncode != 0:
        raise PeerUnavailable((jars.stderr or jars.stdout).strip().splitlines()[-1])
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as folder:
        cluster = Path(folder) / "cluster"
        started_s = time.monotonic()
        up = subprocess.run(
            [*oracle, "up", "--dir", str(cluster), "--brokers", "3", "--port-base", str(KAFKA_PORT_BASE), "--tiered"],
            capture_output=True,
            text=True,
            check=False,
        )
        if up.returncode != 0:
            raise PeerUnavailable((up.stderr or up.stdout).strip().splitlines()[-1])
        try:
            facts = json.loads((cluster / "cluster.json").read_text())
            start_s = _first_acknowledged(facts["bootstrap"], started_s)
            pids = [broker["pid"] for broker in facts["brokers"]]
            yield Peer("Apache Kafka", facts["bootstrap"], cluster / "remote", pids, start_s)
        finally:
            subprocess.run([*oracle, "down", "--dir", str(cluster)], capture_output=True, check=False)
