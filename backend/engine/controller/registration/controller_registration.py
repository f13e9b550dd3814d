"""A controller makes itself known: the metadata tells where each one listens (KIP-919)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.cluster import register_controller
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.image.metadata_image import ControllerRegistration, MetadataImage
from backend.engine.ports import tasks
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError

if TYPE_CHECKING:
    from backend.engine.controller.quorum_controller import Controller

# A standby looks so often whether the metadata tells where it listens.
REGISTRATION_CHECK_MS: Final = 1000

_log = logging.getLogger(__name__)


class ControllerRegistrationManager:
    """`channel` is the way to the active controller, where there can be another."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: Controller,
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
                request.Listeners(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in own.endpoints
            ],
            features=[
                request.Features(
                    name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level
                )
                for one in own.features
            ],
        )

    async def run(self) -> None:
        """Until the metadata shows where this controller listens: then brokers and tools find it when it leads."""
        while True:
            if self._controller.image.controllers.get(self._registration.id) != self._registration:
                try:
                    if self._controller.is_active:
                        await self._controller.submit("register controller", self.command)
                    elif self._channel is not None and self._controller.raft.leader_id >= 0:
                        timeout_ms = self._config.controller_quorum_request_timeout_ms
                        await self._channel.send(self._request(), 0, timeout_ms=timeout_ms)
                except KafkaError as error:
                    _log.debug("Controller %d is not registered yet: %s", self._config.id, error)
            await tasks.sleep_ms(REGISTRATION_CHECK_MS)
