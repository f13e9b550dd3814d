"""The controller role of a node: the controller on its copy of the metadata, and its listeners."""

from __future__ import annotations

from collections.abc import Callable

from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.apis.services import Services
from backend.engine.broker.controller_partition_marker import ControllerImage, ControllerPartitionMarker
from backend.engine.broker.log_end_client import LogEndClient
from backend.engine.broker.unclean_recovery import UncleanRecoveryManager
from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import controller_security, inter_broker_security
from backend.engine.config.listeners import (
    SECURITY_PROTOCOL_IDS,
    controller_listeners,
    inter_broker_listener_name,
    voter_addresses,
)
from backend.engine.controller.image.metadata_image import ControllerRegistration, Endpoint, SupportedFeature
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.quorum_controller import Controller
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.connection_quotas import ConnectionQuotas
from backend.engine.net.listener import Listener
from backend.engine.net.peer_controller_channel import PeerControllerChannel
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports, tasks

FEATURES = tuple(SupportedFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items())


class ControllerServer:
    """Bind, then start, then close."""

    def __init__(self, ports: Ports, config: BrokerConfig, on_fatal: Callable[[str], None]) -> None:
        self._on_fatal = on_fatal
        self._ports = ports
        self._config = config
        slots = ConnectionQuotas()
        self._listeners = [
            Listener(ports, config, address, "controller", slots) for address in controller_listeners(config)
        ]
        self._endpoints: tuple[Endpoint, ...] = ()
        self._channel: PeerControllerChannel | None = None
        self.controller: Controller | None = None
        self._marking: ControllerPartitionMarker | None = None
        self._client: ClusterClient | None = None
        self._recovery: tasks.Task[None] | None = None

    def bind(self) -> None:
        """Takes the ports. OSError when one is taken."""
        self._endpoints = tuple(
            Endpoint(
                listener.address.name,
                listener.address.host,
                listener.bind(),
                SECURITY_PROTOCOL_IDS[listener.address.security_protocol],
            )
            for listener in self._listeners
        )

    async def start(self, services: Services, metadata: NodeMetadata) -> None:
        """Leads or stands by, and serves; an only voter's controller is active when this returns."""
        config = self._config
        voters = voter_addresses(config)
        if len(voters) > 1:
            self._channel = PeerControllerChannel(
                self._ports,
                tuple(voters.values()),
                client_id=f"controller-{config.id}",
                security=PeerSecurity.of(controller_security(config)),
            )
        controller = Controller(
            self._ports,
            config,
            metadata,
            registration=ControllerRegistration(config.id, self._ports.random.uuid(), self._endpoints, FEATURES),
            channel=self._channel,
            on_failure=self._on_fatal,
        )
        self.controller = services.controller = controller
        self._client = ClusterClient(
            self._ports,
            ControllerImage(controller),
            inter_broker_listener_name(config),
            client_id=f"controller-{config.id}-log-ends",
            security=PeerSecurity.of(inter_broker_security(config)),
        )
        services.log_ends = questions = LogEndClient(self._client)
        await controller.start()
        recovery = UncleanRecoveryManager(self._ports.clock, config, controller, questions, services)
        self._recovery = tasks.spawn(recovery.run(), name=f"unclean recovery of controller {config.id}")
        for listener in self._listeners:
            listener.start(services)
        if config.remote_log_storage_system_enable and "broker" not in (config.process_roles or ()):
            self._marking = ControllerPartitionMarker(self._ports, config, controller, services.controller_channel)

    async def close(self) -> None:
        """Serves no more and refuses what waits."""
        if self._marking is not None:
            await self._marking.close()
            self._marking = None
        for listener in self._listeners:
            await listener.close()
        await tasks.cancel(self._recovery)
        if self._client is not None:
            self._client.close()
        if self.controller is not None:
            await self.controller.stop()
        if self._channel is not None:
            self._channel.close()
