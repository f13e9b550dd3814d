"""The controller role of a node: the controller on its copy of the metadata, and its listeners.

Kafka: `ControllerServer`.
"""

from __future__ import annotations

from collections.abc import Callable

from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.apis.services import Services
from backend.engine.broker.controller_partition_marker import ControllerImage, ControllerPartitionMarker
from backend.engine.broker.log_end_client import LogEndClient
from backend.engine.broker.role_listeners import RoleListeners
from backend.engine.broker.unclean_recovery import UncleanRecoveryManager
from backend.engine.common.event_sink import EventSink
from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import controller_security, inter_broker_security
from backend.engine.config.listeners import inter_broker_listener_name, voter_addresses
from backend.engine.controller.image.metadata_image import ControllerRegistration, SupportedFeature
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.quorum_controller import Controller
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.peer_controller_channel import PeerControllerChannel
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports, tasks

FEATURES = tuple(SupportedFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items())


class ControllerServer:
    """Start once, then close."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        listeners: RoleListeners,
        metadata: NodeMetadata,
        events: EventSink,
        on_fatal: Callable[[str], None],
    ) -> None:
        """`listeners` are bound."""
        self._ports = ports
        self._config = config
        self._listeners = listeners
        self._channel = _channel_to_other_voters(ports, config)
        self.controller = Controller(
            ports,
            config,
            metadata,
            registration=ControllerRegistration(config.id, ports.random.uuid(), listeners.endpoints(), FEATURES),
            channel=self._channel,
            on_failure=on_fatal,
        )
        self._client = ClusterClient(
            ports,
            ControllerImage(self.controller),
            inter_broker_listener_name(config),
            client_id=f"controller-{config.id}-log-ends",
            security=PeerSecurity.of(inter_broker_security(config)),
        )
        self.log_ends = LogEndClient(self._client)
        self._recovery = UncleanRecoveryManager(ports.clock, config, self.controller, self.log_ends, events)
        self._recovering: tasks.Task[None] | None = None
        self._marker: ControllerPartitionMarker | None = None

    async def start(self, services: Services) -> None:
        """Leads or stands by, and serves `services`; an only voter's controller is active when this returns."""
        config = self._config
        await self.controller.start()
        self._recovering = tasks.spawn(self._recovery.run(), name=f"unclean recovery of controller {config.id}")
        self._listeners.start(services)
        if config.remote_log_storage_system_enable and "broker" not in (config.process_roles or ()):
            self._marker = ControllerPartitionMarker(self._ports, config, self.controller, services.controller_channel)

    async def close(self) -> None:
        """Serves no more and refuses requests that wait."""
        if self._marker is not None:
            await self._marker.close()
            self._marker = None
        await self._listeners.close()
        await tasks.cancel(self._recovering)
        self._client.close()
        await self.controller.stop()
        if self._channel is not None:
            self._channel.close()


def _channel_to_other_voters(ports: Ports, config: BrokerConfig) -> PeerControllerChannel | None:
    """None for an only voter."""
    voters = voter_addresses(config)
    if len(voters) == 1:
        return None
    return PeerControllerChannel(
        ports,
        tuple(voters.values()),
        client_id=f"controller-{config.id}",
        security=PeerSecurity.of(controller_security(config)),
    )
