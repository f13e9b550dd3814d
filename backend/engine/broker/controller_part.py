"""The controller role of a node: the metadata log, the controller on it, and its listeners."""

from __future__ import annotations

from collections.abc import Callable

from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.apis.services import Services
from backend.engine.broker.controller_marking import ControllerMarking
from backend.engine.config import BrokerConfig
from backend.engine.config.listeners import SECURITY_PROTOCOL_IDS, controller_listeners
from backend.engine.controller.driver import Controller
from backend.engine.controller.image import ControllerRegistration, Endpoint, SupportedFeature
from backend.engine.net.listener import Listener
from backend.engine.ports import Ports
from backend.engine.raft.metadata_log import MetadataLog, open_metadata_log

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
        """Replays the metadata log, leads, serves."""
        self._log = await open_metadata_log(self._ports, self._config)
        controller = Controller(
            self._ports,
            self._config,
            self._log,
            cluster_id=cluster_id,
            registration=ControllerRegistration(self._config.id, self._ports.random.uuid(), self._endpoints, FEATURES),
            on_failure=self._on_fatal,
        )
        self.controller = services.controller = controller
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

    async def close(self) -> None:
        """Serves no more and leaves the log flushed and closed."""
        await self._serve_no_more()
        if self.controller is not None:
            await self.controller.stop()
        if self._log is not None:
            self._log.close()
            self._log = None

    async def kill(self) -> None:
        """Serves no more; the log is let go of as it is."""
        await self._serve_no_more()
        if self.controller is not None:
            await self.controller.stop()
        if self._log is not None:
            self._log.abandon()
            self._log = None
