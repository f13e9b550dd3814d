"""One node: every part of a broker (and of the controller, on a combined node) made, connected, started and stopped.

The composition root: no other module constructs these parts. Nodes of one process share nothing; their messages to
each other go through the network port. Order of start and stop: Kafka's `BrokerServer` and `ControllerServer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from backend.engine.apis.api_declaration import ListenerKind
from backend.engine.apis.services import BrokerServices, Services
from backend.engine.broker.broker_parts import NodeParts, broker_services_of, make_broker_parts, services_of
from backend.engine.broker.broker_server import BrokerServer
from backend.engine.broker.cluster_id import cluster_id_of
from backend.engine.broker.controller_channels import ControllerChannels
from backend.engine.broker.controller_server import ControllerServer
from backend.engine.broker.quorum_gauges import add_quorum_gauges
from backend.engine.broker.raft_manager import RaftManager, open_raft
from backend.engine.broker.role_listeners import RoleListeners
from backend.engine.broker.start_errors import START_ERRORS, StartRefused, describe_error
from backend.engine.common.event_sink import NullEventSink
from backend.engine.common.log_context import logging_as_node
from backend.engine.config import BrokerConfig, set_without_effect
from backend.engine.config.listener_security import check_security
from backend.engine.config.listeners import check
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.log.log_config import LogManagerConfig
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.metrics import BrokerMetrics, MetricsServer, serve_metrics
from backend.engine.ports import Ports, system_ports, tasks
from backend.protocol.errors import KafkaError

_log = logging.getLogger(__name__)


def _ignored(reason: str) -> None:
    """A node without the broker role has no logs in its directories."""


class Broker:
    """One node by its settings. Start once; then stop, or kill.

    ``ports`` belong to the caller; without them those of ``make_ports`` are made at the start and closed at the end.
    """

    def __init__(
        self, config: BrokerConfig, *, ports: Ports | None = None, make_ports: Callable[[], Ports] = system_ports
    ) -> None:
        self.config = config
        self._make_ports = make_ports
        self._given_ports = ports
        self._ports: Ports | None = None
        self._services: Services | None = None
        self._log_manager: LogManager | None = None
        self._raft: RaftManager | None = None
        self._listeners: list[RoleListeners] = []
        self._controller: ControllerServer | None = None
        self._broker: BrokerServer | None = None
        self._channels: ControllerChannels | None = None
        self._metrics_server: MetricsServer | None = None
        self._left = self._left_quorum = False
        # Set with the reason once the node must not go on.
        self.failed: tasks.Future[str] = tasks.future()

    def _on_fatal(self, reason: str) -> None:
        _log.critical("Node %d cannot go on: %s", self.config.id, reason)
        if not self.failed.done():
            self.failed.set_result(reason)

    @property
    def node_id(self) -> int:
        return self.config.id

    @property
    def started(self) -> bool:
        """Whether the node's parts can be looked into."""
        return self._services is not None

    @property
    def services(self) -> Services:
        """The node's parts; only after the start."""
        assert self._services is not None, "not started"
        return self._services

    @property
    def broker_services(self) -> BrokerServices:
        """The same of a node that has the broker role."""
        assert isinstance(self._services, BrokerServices), "not started, or without the broker role"
        return self._services

    @property
    def server(self) -> BrokerServer:
        """The broker role; only after the start of a node that has it."""
        assert self._broker is not None, "not started, or without the broker role"
        return self._broker

    async def start(self) -> None:
        """Returns once clients are served. Raises StartRefused, or what went wrong; nothing is left half-open."""
        try:
            check(self.config)
            check_security(self.config)
            with logging_as_node(self.config.id):
                await self._start()
        except BaseException as error:
            await self.kill()
            if isinstance(error, START_ERRORS):
                raise StartRefused(f"Node {self.config.id} cannot start: {describe_error(error)}") from error
            raise

    async def _start(self) -> None:
        config = self.config
        ports = self._ports = self._given_ports or self._make_ports()
        roles = config.process_roles or ()
        idle = set_without_effect(config)
        if idle:
            _log.warning("Node %d: has no effect yet, although it is set: %s", config.id, ", ".join(idle))
        # Ports first: a start that fails on them must not have written anything.
        controller_listeners = self._bind("controller") if "controller" in roles else None
        broker_listeners = self._bind("broker") if "broker" in roles else None
        metrics = BrokerMetrics(config.id)
        if config.ebbline_metrics_listener:
            host, _, port = config.ebbline_metrics_listener.rpartition(":")
            self._metrics_server = serve_metrics(metrics, host, int(port))
        cluster_id = await cluster_id_of(ports, config)
        on_all_dirs_failed = self._on_fatal if "broker" in roles else _ignored
        log_manager = LogManager(
            ports, LogManagerConfig.of(config), config.data_dirs, on_all_dirs_failed=on_all_dirs_failed
        )
        log_manager.directories.open_dirs(cluster_id, config.id)
        self._log_manager = log_manager
        self._channels = ControllerChannels(ports, config)
        self._raft = await open_raft(ports, config, cluster_id, log_manager.directories)
        await self._raft.start(self._on_fatal)
        metadata = self._raft.metadata
        self._channels.start(metadata.raft)
        add_quorum_gauges(metrics, metadata, ports.clock)
        node = NodeParts(
            config=config,
            cluster_id=cluster_id,
            ports=ports,
            metadata=MetadataCache(),
            log_manager=log_manager,
            controller_channel=self._channels.channel(),
            controller_channels=self._channels,
            metrics=metrics,
        )
        services = self._services = self._make_roles(node, metadata, broker_listeners, controller_listeners)
        if self._controller is not None:
            await self._controller.start(services)
        if self._broker is not None:
            await self._broker.start()
        _log.info("Node %d of cluster %s is ready as %s", config.id, cluster_id, " and ".join(roles))

    def _make_roles(
        self, node: NodeParts, metadata: NodeMetadata, broker: RoleListeners | None, controller: RoleListeners | None
    ) -> Services:
        """Makes all parts before the first of them starts. The broker's come first: the controller uses its events."""
        config, ports = node.config, node.ports
        parts = None if broker is None else make_broker_parts(node, broker, metadata, self._on_fatal)
        if controller is not None:
            events = NullEventSink() if parts is None else parts.events
            self._controller = ControllerServer(ports, config, controller, metadata, events, self._on_fatal)
        if broker is None or parts is None:
            return services_of(node, self._controller)
        services = broker_services_of(node, parts, self._controller)
        self._broker = BrokerServer(config, broker, parts, services, metadata)
        return services

    def _bind(self, kind: ListenerKind) -> RoleListeners:
        assert self._ports is not None
        listeners = RoleListeners(self._ports, self.config, kind)
        self._listeners.append(listeners)
        listeners.bind()
        return listeners

    async def freeze_isr(self) -> None:
        """From now on no ISR changes because of this node: the whole cluster is about to stop."""
        if self._controller is not None:
            self._controller.controller.freeze_isr()
        if self._broker is not None:
            await self._broker.freeze_isr()

    async def leave(self, *, hands_over: bool = True) -> None:
        """The broker role's part of a stop: hands leadership over and serves no more. The controller role goes on."""
        with logging_as_node(self.config.id):
            await self._leave(hands_over=hands_over)

    async def _leave(self, *, hands_over: bool = True) -> None:
        if self._broker is not None and not self._left:
            self._left = True
            await self._attempt("stop serving", self._broker.stop(hands_over=hands_over))

    async def leave_quorum(self) -> None:
        """The controller role's part of a stop: this node leads, votes and decides no more."""
        with logging_as_node(self.config.id):
            await self._leave_quorum()

    async def _leave_quorum(self) -> None:
        if self._raft is not None and not self._left_quorum:
            self._left_quorum = True
            await self._attempt("leave the metadata quorum", self._raft.resign())
            if self._controller is not None:
                await self._attempt("stop its controller", self._controller.close())

    async def stop(self) -> None:
        """Hands leadership over, answers what waits, writes everything down. A step that fails is logged; the rest is
        done.
        """
        with logging_as_node(self.config.id):
            await self._stop()

    async def stop_with_all(self) -> None:
        """As `stop`, while every other node of the cluster stops too: no leadership moves, and each ISR stays."""
        with logging_as_node(self.config.id):
            await self.freeze_isr()
            await self._leave(hands_over=False)
            # No controller that misses a broker is left while logs are being closed.
            await self._leave_quorum()
            await self._stop()

    async def _stop(self) -> None:
        broker, logs, raft = self._broker, self._log_manager, self._raft
        epoch = -1 if broker is None else broker.epoch
        await self._leave()
        if logs is not None:
            await self._attempt("close its logs", logs.shutdown(epoch))
        await self._leave_quorum()
        if raft is not None:
            await self._attempt("close its metadata log", raft.close())
        await self._close_listeners()
        self._release()
        _log.info("Node %d has stopped", self.config.id)

    async def kill(self) -> None:
        """Ends as a crash would: no leadership moves, and nothing is flushed or marked clean."""
        if self._broker is not None:
            await self._attempt("end its broker", self._broker.kill())
        if self._controller is not None:
            await self._attempt("end its controller", self._controller.close())
        await self._close_listeners()
        if self._raft is not None:
            await self._attempt("end its metadata log", self._raft.kill())
        if self._log_manager is not None:
            self._log_manager.abandon()
        self._release()

    async def _close_listeners(self) -> None:
        """Frees the ports also of a start that ends before there is a broker or a controller, which close their own."""
        for listeners in self._listeners:
            await self._attempt("close its listeners", listeners.close())

    async def _attempt(self, what: str, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except (KafkaError, OSError) as error:
            # A disk that is gone: the sentence says which.
            _log.error("Node %d could not %s: %s", self.config.id, what, error)
        except Exception as error:
            # The remaining steps of the stop follow, whatever fails in this one.
            _log.error("Node %d could not %s: %s", self.config.id, what, error, exc_info=error)

    def _release(self) -> None:
        if self._channels is not None:
            self._channels.close()
            self._channels = None
        if self._metrics_server is not None:
            self._metrics_server.close()
            self._metrics_server = None
        if self._ports is not None and self._given_ports is None:
            self._ports.workers.close()
        self._listeners = []
        self._ports = self._broker = self._log_manager = self._controller = self._raft = None
