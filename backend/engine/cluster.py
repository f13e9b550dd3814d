"""N nodes in one process, each with its own listeners and folders; they share only the network.

Also what `ebbline broker` runs: one node from a file with Kafka's property names.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.engine.broker import Broker, StartRefused
from backend.engine.common.log_context import configure_logging
from backend.engine.config import BrokerConfig, ConfigError, parse_properties
from backend.engine.log.file_names import META_PROPERTIES_FILE
from backend.engine.ports import Ports, system_ports, tasks
from backend.engine.ports.disk import OsDisk
from backend.engine.ports.program import BROKER_FILES, Ended, raise_file_limit, run_until_signalled
from backend.runtime.private_files import close_to_others

LOOPBACK: Final = "127.0.0.1"
NODES_MAX: Final = 9
# Stops last: the others' controller may be there.
CONTROLLER_NODE: Final = 1
METADATA_FACTOR: Final = "rlmm.config.remote.log.metadata.topic.replication.factor"
EXIT_REFUSED: Final = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """The folders, ports and settings of the nodes 1..N of one cluster.

    ``settings`` holds Kafka's properties for all of them, ``node_settings`` those of single nodes.
    """

    cluster_id: str
    log_dirs: Mapping[int, str]
    ports: Mapping[int, int]
    controller_port: int
    # Voter → port of its controller listener; only node 1 at `controller_port` when nothing is said.
    voter_ports: Mapping[int, int] = field(default_factory=dict)
    metrics_ports: Mapping[int, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def controller_ports(self) -> Mapping[int, int]:
        """Voter → port of its controller listener."""
        return self.voter_ports or {CONTROLLER_NODE: self.controller_port}

    def properties(self, node_id: int) -> dict[str, str]:
        """One node's properties: the voters are broker and controller, the others are brokers."""
        controllers = self.controller_ports
        nodes = len(self.ports)
        replicas, min_isr = str(min(3, nodes)), str(min(2, nodes))
        listeners = f"PLAINTEXT://{LOOPBACK}:{self.ports[node_id]}"
        if node_id in controllers:
            listeners += f",CONTROLLER://{LOOPBACK}:{controllers[node_id]}"
        own = {
            "node.id": str(node_id),
            "process.roles": "broker,controller" if node_id in controllers else "broker",
            "listeners": listeners,
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{voter}@{LOOPBACK}:{port}" for voter, port in controllers.items()),
            "log.dirs": self.log_dirs[node_id],
            "ebbline.cluster.id": self.cluster_id,
            "ebbline.events.topic.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": min_isr,
            METADATA_FACTOR: replicas,
            "rlmm.config.remote.log.metadata.topic.min.isr": min_isr,
        }
        if node_id in self.metrics_ports:
            own["ebbline.metrics.listener"] = f"{LOOPBACK}:{self.metrics_ports[node_id]}"
        return own | dict(self.settings) | dict(self.node_settings.get(node_id, {}))

    def check_replicas(self) -> None:
        """StartRefused where nothing could ever be tiered: no broker can come that the layout does not name."""
        nodes = len(self.ports)
        for node_id in self.ports:
            own = self.properties(node_id)
            factor = own[METADATA_FACTOR]
            # A value that is no number is refused where it is read.
            too_many = factor.isdecimal() and int(factor) > nodes
            if own.get("remote.log.storage.system.enable") == "true" and too_many:
                raise StartRefused(
                    f"{METADATA_FACTOR} is {factor}, and this cluster has {nodes} broker"
                    f"{'s' if nodes > 1 else ''}: set it, and rlmm.config.remote.log.metadata.topic.min.isr, to {nodes}"
                    " at most, or start more brokers."
                )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports.values())


class Cluster:
    """Starts, stops and kills the nodes of a layout on the running loop. Each start takes new ports."""

    def __init__(
        self, layout: ClusterLayout, *, make_ports: Callable[[int], Ports] = lambda _node_id: system_ports()
    ) -> None:
        if not 1 <= len(layout.ports) <= NODES_MAX:
            raise ValueError(f"A cluster has 1 to {NODES_MAX} nodes, not {len(layout.ports)}")
        self.layout = layout
        self._make_ports = make_ports
        self.brokers: dict[int, Broker] = {}
        self._ending: dict[int, tasks.Task[None]] = {}

    async def start(self) -> None:
        """All nodes serve. When one cannot, the others are not waited for but stopped, and its error is raised.

        StartRefused also where the settings ask for more brokers than the layout has.
        """
        self.layout.check_replicas()
        starting = [
            tasks.start(self.start_broker(node_id), name=f"start of node {node_id}") for node_id in self.layout.ports
        ]
        try:
            await tasks.gather(starting)
        except BaseException:
            # Without the controller's node the others would wait for it for a minute.
            for task in starting:
                await tasks.cancel(task)
            await self.stop()
            raise

    async def start_broker(self, node_id: int) -> None:
        """Starts a node that is not running; one that is still ending has ended first."""
        if (ending := self._ending.get(node_id)) is not None:
            await tasks.first([ending])
        if node_id in self.brokers:
            raise ValueError(f"Broker {node_id} is running already")
        config = BrokerConfig.parse(self.layout.properties(node_id))
        broker = self.brokers[node_id] = Broker(config, make_ports=lambda: self._make_ports(node_id))
        try:
            await broker.start()
        except BaseException:
            del self.brokers[node_id]
            raise

    async def stop_broker(self, node_id: int) -> None:
        """Hands leadership over, writes everything down, stops."""
        await self._end(node_id, self.brokers.pop(node_id).stop())

    async def kill_broker(self, node_id: int) -> None:
        """Ends a node as a crash would: no leadership moves, nothing is flushed, there is no clean-shutdown marker."""
        await self._end(node_id, self.brokers.pop(node_id).kill())

    async def _end(self, node_id: int, ending: Coroutine[Any, Any, None]) -> None:
        """Ends a node to its end, also when the caller is cancelled: half of one would keep its ports, and answer
        nobody.
        """
        task = self._ending[node_id] = tasks.start(ending, name=f"end of node {node_id}")

        def ended(ending: tasks.Task[None]) -> None:
            if self._ending.get(node_id) is ending:
                del self._ending[node_id]

        task.add_done_callback(ended)
        await tasks.shield(task)

    async def stop(self) -> None:
        """Stops every node that runs, the controller's last.

        They end together: no leadership moves, and no ISR shrinks to the broker that happens to be the last
        one, whose disk alone would then decide. First no node proposes a change of an ISR any more, then no node
        serves, then there is no controller that could miss a broker, and only then the logs are closed, which may take
        long.
        """
        if self._ending:
            await tasks.gather_settled(list(self._ending.values()))
        stopping = [self.brokers[node_id] for node_id in sorted(self.brokers, reverse=True)]
        for broker in stopping:
            await broker.freeze_isr()
        await tasks.gather(broker.leave(hands_over=False) for broker in stopping)
        for broker in stopping:
            await broker.leave_quorum()
        for node_id in sorted(self.brokers, reverse=True):
            try:
                await self.stop_broker(node_id)
            except Exception as error:
                # The other nodes still have to be stopped in order.
                _log.error("Broker %d did not stop cleanly: %s", node_id, error, exc_info=error)


def run_broker(properties_path: str) -> int:
    """`ebbline broker`: one node from a properties file until a signal ends it; its exit code.

    SIGTERM and SIGINT: it hands its leadership over. `WHOLE_CLUSTER_ENDS`: nobody is left to take it.
    A node that cannot start, or cannot go on, says why in one line on stderr and gives 1.
    """
    configure_logging(logging.StreamHandler(), "INFO")

    async def program(ended: Ended) -> int:
        signalled = tasks.spawn(ended.wait(), name="wait for a signal")
        try:
            return await _run(properties_path, ended, signalled)
        except (ConfigError, StartRefused) as error:
            sys.stderr.write(f"ebbline: {error}\n")
            return EXIT_REFUSED
        finally:
            await tasks.cancel(signalled)

    return run_until_signalled(program)


async def _run(properties_path: str, ended: Ended, signalled: tasks.Task[bool]) -> int:
    files = raise_file_limit()
    if 0 <= files < BROKER_FILES:
        raise ConfigError(
            f"This machine lets a process open {files} files and connections, and {BROKER_FILES} are needed here: raise"
            " the limit (`ulimit -n 4096` in this shell, or nofile in /etc/security/limits.conf)."
        )
    config = BrokerConfig.parse(read_properties(properties_path))
    for log_dir in {*config.data_dirs, config.metadata_dir}:
        # Of an earlier version, which left them open to every user of the machine; any other folder is not ours.
        if OsDisk().exists(f"{log_dir}/{META_PROPERTIES_FILE}") and (line := close_to_others(log_dir)) is not None:
            _log.warning("%s", line)
    broker = Broker(config)
    starting = tasks.start(broker.start(), name=f"start of node {broker.node_id}")
    await tasks.first([starting, signalled, broker.failed])
    if not starting.done():
        await tasks.cancel(starting)
        return _exit_code(broker)
    starting.result()
    await tasks.first([signalled, broker.failed])
    if ended.whole_cluster:
        await broker.stop_with_all()
    else:
        await broker.stop()
    return _exit_code(broker)


def _exit_code(broker: Broker) -> int:
    """The exit code, once stderr has the reason of a node that could not go on."""
    if not broker.failed.done():
        return 0
    sys.stderr.write(f"ebbline: Node {broker.node_id} cannot go on: {broker.failed.result()}\n")
    return EXIT_REFUSED


def read_properties(path: str) -> dict[str, str]:
    """A properties file's content. Raises ConfigError when it cannot be read."""
    try:
        return parse_properties(OsDisk().read(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The settings file {path} cannot be read: {error}") from error
