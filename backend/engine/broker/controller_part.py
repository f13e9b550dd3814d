"""The controller role of a node: its place in the metadata quorum, the controller on it, and its listeners."""

from __future__ import annotations

from collections.abc import Callable

from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.apis.services import Services
from backend.engine.broker.controller_marking import ControllerMarking
from backend.engine.config import BrokerConfig
from backend.engine.config.listeners import SECURITY_PROTOCOL_IDS, controller_listeners, voter_addresses
from backend.engine.config.security import controller_security
from backend.engine.controller.driver import Controller
from backend.engine.controller.image import ControllerRegistration, Endpoint, SupportedFeature
from backend.engine.net.controller_channel import PeerControllerChannel
from backend.engine.net.listener import Listener
from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports
from backend.engine.raft.metadata_log import MetadataLog, open_metadata_log
from backend.engine.raft.node import Address, RaftNode

FEATURES = tuple(SupportedFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items())


class ControllerPart:
    """Bind, then start, then close or abandon."""

    def __init__(self, ports: Ports, config: BrokerConfig, on_fatal: Callable[[str], None]) -> None:
        self._on_fatal = on_fatal
        self._ports = ports
        self._config = config
        self._listeners = [Listener(ports, config, address, "controller") for address in controller_listeners(config)]
        self._endpoints: tuple[Endpoint, ...] = ()
        self._log: MetadataLog | None = None
        self._raft: RaftNode | None = None
        self._clients: list[PeerClient] = []
        self._channel: PeerControllerChannel | None = None
        self.controller: Controller | None = None
        self._marking: ControllerMarking | None = None

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

    async def start(self, services: Services, cluster_id: str) -> None:
        """Takes its place in the quorum and serves; an only voter leads when this returns."""
        config = self._config
        self._log = await open_metadata_log(self._ports, config)
        voters = voter_addresses(config)
        others = [voter for voter in voters if voter != config.id]
        raft = self._raft = RaftNode(
            self._ports,
            config,
            self._log,
            cluster_id=cluster_id,
            peers={voter: self._client(voters[voter], "votes") for voter in others},
            fetchers={voter: self._client(voters[voter], "log") for voter in others},
            addresses={voter: Address(*address) for voter, address in voters.items()},
            directory_id=next(iter(services.log_manager.directory_ids.values())),
        )
        if others:
            self._channel = PeerControllerChannel(
                self._ports,
                tuple(voters.values()),
                client_id=f"controller-{config.id}",
                security=PeerSecurity.of(controller_security(config)),
            )
        controller = Controller(
            self._ports,
            self._config,
            raft,
            cluster_id=cluster_id,
            registration=ControllerRegistration(self._config.id, self._ports.random.uuid(), self._endpoints, FEATURES),
            channel=self._channel,
            on_failure=self._on_fatal,
        )
        self.controller = services.controller = controller
        await raft.start()
        await controller.start()
        for listener in self._listeners:
            listener.start(services)
        if self._config.remote_log_storage_system_enable and "broker" not in (self._config.process_roles or ()):
            self._marking = ControllerMarking(self._ports, self._config, controller, services.controller_channel)

    async def _serve_no_more(self) -> None:
        if self._marking is not None:
            await self._marking.close()
            self._marking = None
        for listener in self._listeners:
            await listener.close()

    def _client(self, address: tuple[str, int], purpose: str) -> PeerClient:
        """Requests of one connection wait for each other: a vote must not wait behind a fetch."""
        security = PeerSecurity.of(controller_security(self._config))
        client_id = f"controller-{self._config.id}-{purpose}"
        made = PeerClient(self._ports, *address, client_id=client_id, security=security)
        self._clients.append(made)
        return made

    def _close_clients(self) -> None:
        for client in self._clients:
            client.close()
        if self._channel is not None:
            self._channel.close()

    async def close(self) -> None:
        """Gives leadership up, serves no more, and leaves the log flushed and closed."""
        if self._raft is not None:
            await self._raft.stop()
        await self._serve_no_more()
        if self.controller is not None:
            await self.controller.stop()
        self._close_clients()
        if self._log is not None:
            self._log.close()
            self._log = None

    async def kill(self) -> None:
        """Serves no more; the log is let go of as it is."""
        await self._serve_no_more()
        if self.controller is not None:
            await self.controller.stop()
        if self._raft is not None:
            await self._raft.kill()
        self._close_clients()
        if self._log is not None:
            self._log.abandon()
            self._log = None
