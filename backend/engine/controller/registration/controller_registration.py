"""A controller registers, so that the metadata says where each one listens (Kafka's class of this name, KIP-919)."""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.cluster_bootstrap import register_controller
from backend.engine.controller.commands.command import CommandQueue, ControllerResult
from backend.engine.controller.image.metadata_image import ControllerRegistration, MetadataImage
from backend.engine.ports import tasks
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError

# Pause between two checks whether the metadata has this controller's registration.
REGISTRATION_CHECK_MS: Final = 1000

_log = logging.getLogger(__name__)


class RegisteringController(CommandQueue, Protocol):
    """The controller of this node, which may be a standby."""

    @property
    def is_active(self) -> bool: ...

    @property
    def leader_id(self) -> int:
        """The active controller's node id, or -1."""
        ...


class ControllerRegistrationManager:
    """Registers with the active controller over `channel`, or by a command when this controller is the active one."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: RegisteringController,
        registration: ControllerRegistration,
        channel: ControllerChannel | None,
    ) -> None:
        self._config = config
        self._controller = controller
        self._registration = registration
        self._channel = channel

    def command(self, image: MetadataImage) -> ControllerResult[Any]:
        """Registers the controller unless the image has it."""
        own = self._registration
        if image.controllers.get(own.id) == own:
            return ControllerResult((), None)
        return register_controller(image, self._request())

    def _request(self) -> m.ControllerRegistrationRequest:
        own, request = self._registration, m.ControllerRegistrationRequest
        return request(
            controller_id=own.id,
            incarnation_id=own.incarnation_id,
            listeners=[
                request.Listeners(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=endpoint.security_protocol,
                )
                for endpoint in own.endpoints
            ],
            features=[
                request.Features(
                    name=feature.name, min_supported_version=feature.min_level, max_supported_version=feature.max_level
                )
                for feature in own.features
            ],
        )

    async def run(self) -> None:
        """Registers while the metadata has another registration; brokers and tools look listeners up there."""
        while True:
            if self._controller.image.controllers.get(self._registration.id) != self._registration:
                try:
                    if self._controller.is_active:
                        await self._controller.submit("register controller", self.command)
                    elif self._channel is not None and self._controller.leader_id >= 0:
                        timeout_ms = self._config.controller_quorum_request_timeout_ms
                        await self._channel.send(self._request(), 0, timeout_ms=timeout_ms)
                except KafkaError as error:
                    _log.debug("Controller %d is not registered yet: %s", self._config.id, error)
            await tasks.sleep_ms(REGISTRATION_CHECK_MS)
