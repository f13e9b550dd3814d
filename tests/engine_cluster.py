"""A cluster of the engine's brokers in this process, on free ports, on the loop of a separate thread.

For tests with blocking clients::

    with EngineCluster(tmp_path, brokers=3) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

`call` runs a coroutine on the cluster's loop and gives its result.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from backend.engine.broker import Broker
from backend.engine.cluster import ClusterLayout
from backend.startup.fault_injector import FaultInjector
from tests.ports import free_ports
from tests.waiting import wait_until

T = TypeVar("T")

CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
CALL_TIMEOUT_S: Final = 60.0

# Kafka's intervals would make every test wait; these are the ones of the brokers the fixtures come from.
FAST: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "replica.fetch.backoff.ms": "200",
}


# Of clusters whose test does not say whether they have the tier: "on" gives it to them.
TIERING_VARIABLE: Final = "EBBLINE_TEST_TIERING"


def has_tier(tiering: bool | None) -> bool:
    """The test's own choice, else (None) that of the run's variable: no tier by default, as in Kafka."""
    return os.environ.get(TIERING_VARIABLE) == "on" if tiering is None else tiering


def tiered(folder: Path) -> dict[str, str]:
    """Settings of tiered storage with its objects below a folder."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "500",
        "remote.partition.remover.task.interval.ms": "500",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "rsm.config.dir": str(folder),
    }


def layout(
    folder: Path,
    *,
    brokers: int = 3,
    tiering: bool | None = None,
    settings: Mapping[str, str] | None = None,
    racks: Mapping[int, str] | None = None,
    voters: int = 1,
) -> ClusterLayout:
    """A cluster below a folder, on free ports."""
    ports = free_ports(brokers + voters)
    nodes = range(1, brokers + 1)
    return ClusterLayout(
        cluster_id=CLUSTER_ID,
        log_dirs={node: str(folder / "brokers" / str(node) / "log") for node in nodes},
        ports=dict(zip(nodes, ports, strict=False)),
        controller_port=ports[brokers],
        voter_ports=dict(zip(range(1, voters + 1), ports[brokers:], strict=True)) if voters > 1 else {},
        settings={**FAST, **(tiered(folder / "remote") if has_tier(tiering) else {}), **(settings or {})},
        node_settings={node: {"broker.rack": rack} for node, rack in (racks or {}).items()},
    )


class EngineCluster:
    """Blocking handle of a cluster; a context manager."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        tiering: bool | None = None,
        settings: Mapping[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
        made: ClusterLayout | None = None,
        voters: int = 1,
    ) -> None:
        """A layout that is `made` already is taken as it is."""
        self.folder = folder
        self.layout = made or layout(
            folder, brokers=brokers, tiering=tiering, settings=settings, racks=racks, voters=voters
        )
        self.loop = asyncio.new_event_loop()
        self.fault_injector = FaultInjector(self.layout)
        self.cluster = self.fault_injector.cluster
        self._thread = threading.Thread(target=self.loop.run_forever, name="engine-cluster", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.call(self.cluster.start())
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call(self.cluster.stop())
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @property
    def bootstrap(self) -> str:
        return self.layout.bootstrap_servers

    def bootstrap_of(self, node_id: int) -> str:
        return f"127.0.0.1:{self.layout.ports[node_id]}"

    @property
    def remote_folder(self) -> Path:
        return self.folder / "remote"

    def broker(self, node_id: int) -> Broker:
        return self.cluster.brokers[node_id]

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_TIMEOUT_S) -> T:
        """Runs a coroutine on the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def ask(self, question: Callable[[], T]) -> T:
        """Calls a function on the cluster's loop, where brokers may be looked into."""

        async def answer() -> T:
            return question()

        return self.call(answer())

    def start_broker(self, node_id: int) -> None:
        self.call(self.cluster.start_broker(node_id))

    def stop_broker(self, node_id: int) -> None:
        self.call(self.cluster.stop_broker(node_id))

    def kill_broker(self, node_id: int) -> None:
        self.call(self.cluster.kill_broker(node_id))

    def wait_until(self, what: str, question: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Asks on the loop until the answer is yes; fails with ``what`` when it never is."""
        wait_until(what, lambda: self.ask(question), timeout_s)
