"""Brokers as an operator runs them: one `ebbline broker --config FILE` each, on free ports, over the network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from backend.engine.cluster import ClusterLayout
from backend.engine.config import format_properties
from backend.protocol import messages as m
from tests.cluster.held_snapshots import HOLD
from tests.engine_cluster import layout
from tests.waiting import wait_until
from tests.wire import ask

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
METADATA_VERSION: Final = 12


@dataclass(frozen=True)
class View:
    """A partition as one broker's Metadata answer tells it."""

    leader: int
    leader_epoch: int
    isr: frozenset[int]


class BrokerProcesses:
    """Nodes 1..N of one cluster, node 1 with the controller; a context manager that starts all."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        tiering: bool = False,
        settings: Mapping[str, str] | None = None,
        voters: int = 1,
        program: str = "backend.cli.entry",
    ) -> None:
        self.folder = folder
        self._program = program
        self.layout = layout(folder, brokers=brokers, tiering=tiering, settings=settings, voters=voters)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._admin: AdminClient | None = None
        self.use(self.layout)

    def use(self, changed: ClusterLayout) -> None:
        """Nodes that start from now on have the properties of this layout."""
        self.layout = changed
        for node_id in changed.ports:
            self._config_path(node_id).write_text(format_properties(changed.properties(node_id)))

    def _config_path(self, node_id: int) -> Path:
        return self.folder / f"server-{node_id}.properties"

    @property
    def bootstrap(self) -> str:
        return self.layout.bootstrap_servers

    @property
    def admin(self) -> AdminClient:
        """One client for all questions: its answers need it alive."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def __enter__(self) -> Self:
        try:
            for node_id in self.layout.ports:
                self.spawn(node_id)
            self.wait_for(*self.layout.ports)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def stop_all(self) -> None:
        """SIGTERM to all that run, at once."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._admin = None

    def runs(self, node_id: int) -> bool:
        """Whether the process has not ended."""
        return self._processes[node_id].poll() is None

    def spawn(self, node_id: int) -> None:
        """Starts a node without waiting for it."""
        with self.log_path(node_id).open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                [sys.executable, "-m", self._program, "broker", "--config", str(self._config_path(node_id))],
                env=os.environ | {HOLD: str(self.hold_path(node_id))},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def hold_path(self, node_id: int) -> Path:
        """While this file exists no snapshot of the node gets beyond its header (`held_snapshots`)."""
        return self.folder / f"hold-{node_id}"

    def log_path(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.log"

    def log(self, node_id: int) -> str:
        """The output of a node."""
        return self.log_path(node_id).read_text(errors="replace")

    def pid(self, node_id: int) -> int:
        return self._processes[node_id].pid

    def kill(self, node_id: int) -> None:
        """kill -9."""
        os.kill(self.pid(node_id), signal.SIGKILL)
        self._processes.pop(node_id).wait()

    def stop(self, node_id: int) -> int:
        """SIGTERM, as an operator would; the exit code."""
        process = self._processes.pop(node_id)
        process.terminate()
        return process.wait(STOP_TIMEOUT_S)

    def ended(self, node_id: int) -> int:
        """The exit code of a node that ends by itself."""
        return self._processes.pop(node_id).wait(START_TIMEOUT_S)

    def wait_for(self, *node_ids: int) -> None:
        """Returns once the metadata that clients get name exactly these brokers."""
        wait_until(f"brokers {node_ids} serve", lambda: self._served() == set(node_ids), START_TIMEOUT_S)

    def _served(self) -> set[int]:
        for node_id, process in self._processes.items():
            assert process.poll() is None, f"node {node_id} ended: {self.log(node_id)[-2000:]}"
        try:
            return set(self.admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return set()

    def views(self, topic: str) -> list[list[View]]:
        """The topic's partitions as every node that should run knows them; one that does not answer knows none."""
        return [self._view(self.layout.ports[node_id], topic) for node_id in self._processes]

    def _view(self, port: int, topic: str) -> list[View]:
        request = m.MetadataRequest(topics=[m.MetadataRequest.Topics(name=topic)])
        try:
            [topic_metadata] = ask(port, request, METADATA_VERSION, m.MetadataResponse).topics
        except OSError:
            return []
        rows = sorted(topic_metadata.partitions, key=lambda row: row.partition_index)
        return [View(row.leader_id, row.leader_epoch, frozenset(row.isr_nodes)) for row in rows]
