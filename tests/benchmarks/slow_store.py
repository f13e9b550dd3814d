"""Producers beside an object store that takes two seconds a call: no effect, if reads of the tier block nobody.

    python -m tests.benchmarks.slow_store FOLDER

runs a cluster whose store is made slow and fast again by the lines `slow` and `fast` on its standard input. Apache
Kafka's LocalTieredStorage has no such switch, so this is about ebbline alone.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from backend.engine.ports.object_store import ObjectStore
from backend.engine.remote.storage.object_store_manager import ObjectStoreRemoteStorageManager
from backend.protocol.buffers import Buffer
from tests.engine_cluster import EngineCluster

DELAY_S = 2.0
COLD_READERS = 50
LOOK_UPS = 200
# A broker's p99 differs by a quarter from one run to the next: the situations take turns, and their medians count. At
# 200 records a second 5 s each, with 2 s for the readers to come and go: 10 times 7 s.
ROUNDS, ROUNDS_QUICK = 3, 1
RECORDS, RECORDS_QUICK = 1_000, 600
COLD_BYTES = 24 << 20
TIMEOUT_S = 120.0
SETTINGS = {
    # All look-ups are to be pending: the default queue of 100 would refuse some.
    "remote.log.reader.max.pending.tasks": str(2 * LOOK_UPS),
    "log.message.timestamp.after.max.ms": str(2**62),
}
COLD = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}


class SlowStore:
    """A store whose reads can be made slow."""

    slow = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, key: str) -> bytes:
        self._wait()
        return self._store.get(key)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        self._wait()
        return self._store.get_range(key, start, size)

    def _wait(self) -> None:
        if SlowStore.slow:
            time.sleep(DELAY_S)

    def put_file(self, key: str, path: str) -> None:
        self._store.put_file(key, path)

    def put(self, key: str, data: Buffer) -> None:
        self._store.put(key, data)

    def size(self, key: str) -> int:
        return self._store.size(key)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return self._store.list(prefix)


def serve(folder: Path) -> None:
    """Runs the cluster until standard input ends."""
    with EngineCluster(folder, tiering=True, settings=SETTINGS) as cluster:
        for node in cluster.cluster.brokers:
            manager = cluster.broker(node).services.remote_log_manager
            assert manager is not None
            storage = manager.storage
            assert isinstance(storage, ObjectStoreRemoteStorageManager)
            storage._store = SlowStore(storage._store)
        print(json.dumps({"bootstrap": cluster.bootstrap, "remote": str(cluster.remote_folder)}), flush=True)
        for line in sys.stdin:
            SlowStore.slow = line.strip() == "slow"
            print("ok", flush=True)
        SlowStore.slow = False


class _Process:
    """A subprocess that reads lines and responds with lines."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._running = subprocess.Popen(
            [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._words} ended with {self._running.wait()}")
        return line

    def send_line(self, line: str) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write(line + "\n")
        self._running.stdin.flush()
        self.line()

    def end(self) -> str:
        """Its last words."""
        rest, _ = self._running.communicate(timeout=TIMEOUT_S)
        return rest.strip()


@contextmanager
def _load(kind: str, bootstrap: str, count: int) -> Iterator[dict[str, Any]]:
    """Clients at work; what they did is there afterwards."""
    clients = _Process("tests.benchmarks.tier_client", kind, bootstrap, "cold", str(count))
    did: dict[str, Any] = {}
    try:
        clients.line()
        # Everybody has asked once.
        time.sleep(1.0)
        yield did
    finally:
        did |= json.loads(clients.end().splitlines()[-1])


def measure_slow_store(*, quick: bool) -> dict[str, float]:
    """Produce latency by situation, and the ratios to the quiet broker."""
    values_by_figure: dict[str, list[float]] = {}
    did: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="ebbline-bench-") as folder:
        server = _Process("tests.benchmarks.slow_store", folder)
        try:
            facts = json.loads(server.line())
            bootstrap = facts["bootstrap"]
            _make_topics(bootstrap, Path(facts["remote"]))

            def produce(name: str) -> None:
                words = ("tests.benchmarks.tier_client", "produce", bootstrap, "hot")
                result = json.loads(_Process(*words, str(RECORDS_QUICK if quick else RECORDS)).end().splitlines()[-1])
                for key, value in result.items():
                    values_by_figure.setdefault(f"produce, {name}: {key}", []).append(value)
                    print(f"  ebbline: produce, {name}: {key}: {value:.2f}", file=sys.stderr, flush=True)

            with _load("cold-readers", bootstrap, COLD_READERS) as did["cold reads"]:
                produce(f"{COLD_READERS} cold readers")
            for _ in range(ROUNDS_QUICK if quick else ROUNDS):
                produce("quiet")
                server.send_line("slow")
                with _load("cold-readers", bootstrap, COLD_READERS) as did["cold reads, slow store"]:
                    produce(f"{COLD_READERS} cold readers, store takes 2 s")
                with _load("searchers", bootstrap, LOOK_UPS) as did["look-ups, slow store"]:
                    produce(f"{LOOK_UPS} pending look-ups, store takes 2 s")
                server.send_line("fast")
        finally:
            server.end()
    figures = {name: statistics.median(values) for name, values in values_by_figure.items()}
    for name, outcome in did.items():
        figures |= {f"{name}: {key}": float(value) for key, value in outcome.items()}
    return figures | ratios(figures)


def ratios(figures: dict[str, float]) -> dict[str, float]:
    """The cost of the slow store to producers: beside the same readers of a fast one, and beside the quiet broker."""
    quiet = figures["produce, quiet: p99_ms"]
    cold = f"produce, {COLD_READERS} cold readers"
    slow, searched = f"{cold}, store takes 2 s", f"produce, {LOOK_UPS} pending look-ups, store takes 2 s"
    return {
        f"{cold}: p99 over quiet": figures[f"{cold}: p99_ms"] / quiet,
        f"{slow}: p99 over quiet (target: 1.2)": figures[f"{slow}: p99_ms"] / quiet,
        f"{slow}: p99 over a fast store (target: 1.2)": figures[f"{slow}: p99_ms"] / figures[f"{cold}: p99_ms"],
        f"{searched}: p99 over quiet (target: 1.2)": figures[f"{searched}: p99_ms"] / quiet,
    }


def _make_topics(bootstrap: str, remote: Path) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic("hot", num_partitions=1, replication_factor=1),
              NewTopic("cold", num_partitions=1, replication_factor=1, config=COLD)]  # fmt: skip
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    words = ("tests.benchmarks.client", "produce", bootstrap, "cold", str(COLD_BYTES // 1024), "1024", "1")
    _Process(*words).end()
    deadline_s = time.monotonic() + TIMEOUT_S
    logs = remote.parent / "brokers"
    while len(list(logs.rglob("cold-0/*.log"))) > 2 or not list(remote.rglob("cold-0-*/*.log")):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the topic's records did not go to {remote} within {TIMEOUT_S:.0f} s")
        time.sleep(0.2)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
