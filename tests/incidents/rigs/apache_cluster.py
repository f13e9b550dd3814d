"""A real Apache Kafka for incidents: three brokers, secured for the product, with a store that can fail."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.incidents.expectations import RigForm
from tests.incidents.rigs import faulty_store
from tests.incidents.rigs.small_disks import CannotPlay
from tests.oracle import apache_kafka
from tests.ports import free_ports

BROKERS: Final = (1, 2, 3)
KAFKA_VARIABLE: Final = "EBBLINE_INCIDENTS_KAFKA"
"""Names the version of Apache Kafka on which incidents are played, where it is not the newest."""
# Beside the brokers' own ports: the listener of the product, with a password.
OUTSIDE_OFFSET: Final = 40
PORTS: Final = 60
CREDENTIALS: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ebbline",
    "sasl.password": "watches",
}
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # All who come by the other listeners: brokers, controllers, and the incidents' clients.
    "super.users": "User:ANONYMOUS",
}
SECURITY: Final = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.outside.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' user_{CREDENTIALS["sasl.username"]}="{CREDENTIALS["sasl.password"]}";',
    **AUTHORIZER,
}
STOPPED_S: Final = 30.0


def kafka_version() -> str:
    """The version on which incidents are played."""
    return os.environ.get(KAFKA_VARIABLE, apache_kafka.DEFAULT_VERSION)


class ApacheCluster:
    """The processes and folders of the cluster, by `tests/oracle/apache_kafka.py`."""

    def __init__(self, folder: Path, form: RigForm) -> None:
        self.folder = folder
        self.faults = folder.with_name("store.faults")
        # So that the last digit of an exporter's port is its broker's id, which the product's setting wants.
        first = free_ports(PORTS + 10)[0]
        self.base = first + (1 - first) % 10
        self._form = form

    def start(self) -> None:
        try:
            version = kafka_version()
            libs = apache_kafka.resolve_jars(version, None)
            classes = faulty_store.compiled(libs, self.folder.with_name("store-plugin"))
            words = ["up", "--dir", str(self.folder), "--version", version, "--brokers", "3", "--tiered", "--exporter"]
            # Without the second compiler a broker starts in half the time, on cores that it shares with what is tested.
            words += ["--jvm-arg=-XX:TieredStopAtLevel=1"]
            words += ["--port-base", str(self.base), "--controllers", str(self._form.controllers)]
            words += [*self._settings(classes), *self._own_settings()]
            arguments = apache_kafka.build_parser().parse_args(words)
            apache_kafka.command_up(arguments)
        except apache_kafka.Unavailable as reason:
            raise CannotPlay(f"Apache Kafka is unavailable: {reason}") from reason

    def _settings(self, classes: Path) -> Iterator[str]:
        settings = {**SECURITY, **faulty_store.settings(classes, self.faults)}
        if self._voters and not self._form.controllers:
            settings |= {"process.roles": "broker,controller", "controller.quorum.voters": self._voters}
        for name, value in settings.items():
            yield from ("--set", f"{name}={value}")

    @property
    def _voters(self) -> str:
        """Each broker is one; "": only the first, as the oracle makes it."""
        if self._form.controllers:
            return ""
        return ",".join(f"{broker}@127.0.0.1:{self._controller_port(broker)}" for broker in BROKERS)

    def _controller_port(self, broker: int) -> int:
        return self.base + apache_kafka.CONTROLLER_PORT_OFFSET + broker - 1

    def _own_settings(self) -> Iterator[str]:
        for broker in BROKERS:
            places = f"PLAINTEXT://127.0.0.1:{self.base + broker - 1},OUTSIDE://127.0.0.1:{self._outside(broker)}"
            controller = "" if self._form.controllers else f",CONTROLLER://127.0.0.1:{self._controller_port(broker)}"
            yield from ("--set-broker", f"{broker}:listeners={places}{controller}")
            yield from ("--set-broker", f"{broker}:advertised.listeners={places}")
        if self._form.two_directories:
            home = self.folder / "broker-3"
            yield from ("--set-broker", f"3:log.dirs={home / 'data'},{home / 'data-b'}")
        for node in range(self._form.controllers):
            for name, value in AUTHORIZER.items():
                yield from ("--set-broker", f"{len(BROKERS) + 1 + node}:{name}={value}")

    def _outside(self, broker: int) -> int:
        return self.base + OUTSIDE_OFFSET + broker

    @property
    def outside(self) -> str:
        """Bootstrap servers of the product."""
        return ",".join(f"127.0.0.1:{self._outside(broker)}" for broker in BROKERS)

    @property
    def metrics(self) -> str:
        """The product's setting for the exporters' pages."""
        return f"http://127.0.0.1:{(self.base + apache_kafka.EXPORTER_PORT_OFFSET) // 10}{{id}}/metrics"

    # --- nodes
    def load(self) -> dict[str, Any]:
        return apache_kafka.load_cluster(self.folder)

    def pid(self, node: int) -> int:
        pid = apache_kafka.find_broker(self.load(), node)["pid"]
        assert isinstance(pid, int), f"node {node} does not run"
        return pid

    def end(self, *nodes: int, how: signal.Signals = signal.SIGKILL) -> None:
        """All at once; those that do not run stay so."""
        cluster = self.load()
        chosen = [apache_kafka.find_broker(cluster, node) for node in nodes]
        for node in chosen:
            if apache_kafka.is_running(node):
                os.kill(node["pid"], how)
        for node in chosen:
            apache_kafka.end_process(node, how)
        apache_kafka.save_cluster(self.folder, cluster)

    def begin(self, *nodes: int, wait: bool = True) -> None:
        """Starts nodes; brokers are waited for."""
        cluster = self.load()
        chosen = [apache_kafka.find_broker(cluster, node) for node in nodes]
        for node in chosen:
            apache_kafka.start_process(cluster, node)
            apache_kafka.save_cluster(self.folder, cluster)
        if wait:
            apache_kafka.wait_until_ready(cluster, chosen, metadata_topic=False)

    def has_fenced(self, broker: int) -> bool:
        """Whether a dedicated controller says in its log that it has fenced the broker."""
        logs = (Path(node["log"]) for node in self.load()["controllers"])
        return any(f"Fencing broker {broker} " in log.read_text(errors="replace") for log in logs)

    def away(self) -> list[int]:
        """Nodes that do not run, controllers first."""
        cluster = self.load()
        nodes = [*cluster["controllers"], *cluster["brokers"]]
        return [node["id"] for node in nodes if not apache_kafka.is_running(node)]

    def new_disk(self, broker: int) -> None:
        """Of a broker that does not run: empty, and formatted for this cluster, with another directory id."""
        cluster = self.load()
        node = apache_kafka.find_broker(cluster, broker)
        shutil.rmtree(node["log_dir"])
        apache_kafka.format_storage(cluster, node)

    def close(self) -> None:
        if (self.folder / "cluster.json").exists():
            cluster = self.load()
            nodes = [node["id"] for node in apache_kafka.nodes_of(cluster)]
            self.end(*nodes)
            deadline = time.monotonic() + STOPPED_S
            while len(self.away()) < len(nodes) and time.monotonic() < deadline:
                time.sleep(0.1)
