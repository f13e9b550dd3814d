"""The broker role of a node: metadata, replicas, remote tier, groups, and the listeners for clients and other brokers.

All parts are made together (`broker_parts`) and start in the order in which they need each other: the metadata is
followed, the broker registers, the first image opens the logs, the controller unfences the broker, and the listeners
serve the connections that have come meanwhile. Before that clients would learn of a cluster without this broker, and
perhaps of none.

Kafka: `BrokerServer`.
"""

from __future__ import annotations

import logging
from typing import Final

from backend.engine.apis.services import BrokerServices
from backend.engine.broker.broker_gauges import add_broker_gauges
from backend.engine.broker.broker_metadata_publisher import BrokerMetadataPublisher
from backend.engine.broker.broker_parts import BrokerParts
from backend.engine.broker.role_listeners import RoleListeners
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.metadata_loader import MetadataLoader
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.registration.broker_lifecycle import no_controller
from backend.engine.ports import tasks

# A controller that is gone must not hold up a stop for longer.
LEAVE_TIMEOUT_MS: Final = 5_000
EVENTS_FLUSH_MS: Final = 1000

_log = logging.getLogger(__name__)


class BrokerServer:
    """Start once, then stop or kill."""

    def __init__(
        self,
        config: BrokerConfig,
        listeners: RoleListeners,
        parts: BrokerParts,
        services: BrokerServices,
        metadata: NodeMetadata,
    ) -> None:
        """`listeners` are bound; `services` have the same parts."""
        self._config = config
        self._listeners = listeners
        self.services = services
        self._metadata = metadata
        self._peers = parts.peers
        self.lifecycle = parts.lifecycle
        self.events = parts.events
        self._remote = parts.remote
        self._publisher = BrokerMetadataPublisher(
            config, services, parts.applied, parts.lifecycle, listeners, parts.remote
        )
        self._loader = MetadataLoader(metadata.committed, services.metadata, [self._publisher], node_id=config.id)
        self._publishing_events: tasks.Task[None] | None = None

    async def start(self) -> None:
        """Returns once the controller lets clients know this broker."""
        services = self.services
        self._loader.start()
        epoch = await self.lifecycle.start()
        self._publisher.registered()
        await self._first_image_applied()
        add_broker_gauges(services)
        await self.lifecycle.unfence()
        await self._shown_unfenced()
        self._listeners.start(services)
        if self._remote is not None:
            await self._remote.start(services.controller)
        self._publishing_events = tasks.spawn(self.events.run(), name=f"events of broker {self._config.id}")
        _log.info("Broker %d serves with epoch %d", self._config.id, epoch)

    async def _first_image_applied(self) -> None:
        try:
            await self._publisher.first_image_applied(self._config.initial_broker_registration_timeout_ms)
        except tasks.Timeout:
            waits_for = self._metadata.raft.waits_for
            raise no_controller(self._config, "to be told the cluster's metadata", None, waits_for) from None

    async def _shown_unfenced(self) -> None:
        """Returns once this broker's own image has it among those that clients may use."""
        epoch, timeout_ms = self.lifecycle.broker_epoch, self._config.initial_broker_registration_timeout_ms

        def shows(image: MetadataImage) -> bool:
            own = image.broker(self._config.id)
            return own is not None and own.epoch >= epoch and not own.fenced

        if not await self.services.metadata.wait_for(shows, timeout_ms):
            _log.warning("Broker %d serves, although its metadata does not show it after %d ms", self._config.id,
                         timeout_ms)  # fmt: skip

    @property
    def epoch(self) -> int:
        """Of the present registration; -1 before the first."""
        return self.lifecycle.broker_epoch

    async def freeze_isr(self) -> None:
        """Proposes no ISR any more."""
        await self.services.replica_manager.freeze_isr()

    async def stop(self, *, hands_over: bool = True) -> None:
        """Leaves in order, after its leadership has gone to other brokers; the logs stay open."""
        await self.events.flush(EVENTS_FLUSH_MS)
        if self._config.controlled_shutdown_enable and hands_over:
            await self.lifecycle.leave(LEAVE_TIMEOUT_MS)
        await self._end()

    async def kill(self) -> None:
        """Ends without a word to anybody."""
        await self._end()

    async def _end(self) -> None:
        services = self.services
        # The remote tier's own requests end while this broker still answers.
        if self._remote is not None:
            await self._remote.close()
        await self._listeners.close()
        await tasks.cancel(self._publishing_events)
        await self.lifecycle.stop()
        await self._loader.stop()
        await services.group_coordinator.shutdown()
        await services.transaction_coordinator.shutdown()
        await services.replica_manager.shutdown()
        self._peers.close()
