"""The broker role of a node: metadata, replicas, remote tier, groups, and the listeners for clients and other brokers.

All parts are made together and start in the order in which they need each other: the metadata is followed, the broker
registers, the first image opens the logs, the controller unfences the broker, and the listeners serve the connections
that have come meanwhile. Before that clients would learn of a cluster without this broker, and perhaps of none.

Kafka: `BrokerServer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from backend.engine.apis.services import Services
from backend.engine.broker.broker_gauges import add_broker_gauges
from backend.engine.broker.broker_metadata_publisher import BrokerMetadataPublisher
from backend.engine.broker.controller_server import FEATURES
from backend.engine.broker.peer_connections import PeerConnections
from backend.engine.broker.remote_tier import RemoteTier, metadata_listener
from backend.engine.broker.role_listeners import RoleListeners
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.metadata_loader import MetadataLoader
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.registration.broker_lifecycle import BrokerLifecycle, no_controller
from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.engine.net.event_publisher import EVENTS_TOPIC, EventPublisher
from backend.engine.net.topic_producer import TopicProducer
from backend.engine.ports import Ports, tasks
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.replica_manager import ReplicaManager

# A controller that is gone must not hold up a stop for longer.
LEAVE_TIMEOUT_MS: Final = 5_000
EVENTS_FLUSH_MS: Final = 1000

_log = logging.getLogger(__name__)


class BrokerServer:
    """Start once, then stop or kill."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        listeners: RoleListeners,
        services: Services,
        metadata: NodeMetadata,
        on_fatal: Callable[[str], None],
    ) -> None:
        """`listeners` are bound; `services` get the parts of this role. Raises ConfigError."""
        self._config = config
        self._listeners = listeners
        self._services = services
        self._metadata = metadata
        self._peers = PeerConnections(ports, config, services.metadata)
        self.lifecycle = BrokerLifecycle(
            ports,
            config,
            self._peers.channel("lifecycle"),
            cluster_id=services.cluster_id,
            endpoints=listeners.endpoints(),
            log_dirs=list(services.log_manager.directories.directory_ids.values()),
            features=FEATURES,
            applied_offset=lambda: services.metadata.applied_offset,
            previous_epoch=services.log_manager.directories.previous_broker_epoch,
            offline_log_dirs=lambda: services.log_manager.directories.failed_directory_ids,
            quorum_waits_for=lambda: metadata.raft.waits_for,
        )
        services.producer_ids = ProducerIdManager(
            services.controller_channel, node_id=config.id, broker_epoch=lambda: self.lifecycle.broker_epoch
        )
        self.events = EventPublisher(
            ports,
            config.id,
            services.metadata,
            services.controller_channel,
            TopicProducer(ports, self._peers.client("events"), EVENTS_TOPIC, services.producer_ids.next_id),
            replication_factor=config.ebbline_events_topic_replication_factor,
        )
        services.events = self.events
        applied = AppliedMetadata(config)
        self._remote = _remote_tier(config, services, applied, self._peers, on_fatal)
        services.remote_log_manager = None if self._remote is None else self._remote.manager
        services.replica_manager = ReplicaManager(
            applied,
            ports=ports,
            log_manager=services.log_manager,
            controller_channel=self._peers.channel("isr"),
            connect_to_leader=self._peers.connect_to_leader,
            events=self.events,
            metrics=services.metrics,
            remote_logs=services.remote_log_manager,
        )
        _make_coordinators(config, services, applied, self._peers)
        self._publisher = BrokerMetadataPublisher(config, services, applied, self.lifecycle, listeners, self._remote)
        self._loader = MetadataLoader(metadata.committed, services.metadata, [self._publisher], node_id=config.id)
        self._publishing_events: tasks.Task[None] | None = None

    async def start(self) -> None:
        """Returns once the controller lets clients know this broker."""
        services = self._services
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

        if not await self._services.metadata.wait_for(shows, timeout_ms):
            _log.warning("Broker %d serves, although its metadata does not show it after %d ms", self._config.id,
                         timeout_ms)  # fmt: skip

    @property
    def epoch(self) -> int:
        """Of the present registration; -1 before the first."""
        return self.lifecycle.broker_epoch

    async def keep_isr(self) -> None:
        """Proposes no ISR any more."""
        await self._services.replica_manager.keep_isr()

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
        services = self._services
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


def _remote_tier(
    config: BrokerConfig,
    services: Services,
    applied: AppliedMetadata,
    peers: PeerConnections,
    on_fatal: Callable[[str], None],
) -> RemoteTier | None:
    """None when remote.log.storage.system.enable is false. Raises ConfigError."""
    if not config.remote_log_storage_system_enable:
        return None
    through = metadata_listener(config)
    return RemoteTier(
        services,
        applied,
        peers.channel("rlmm"),
        peers.client("rlmm-producer", through),
        peers.client("rlmm-consumer", through),
        peers.client("partition-remover", through),
        on_fatal,
    )


def _make_coordinators(
    config: BrokerConfig, services: Services, applied: AppliedMetadata, peers: PeerConnections
) -> None:
    services.transaction_coordinator = TransactionCoordinator(
        clock=services.ports.clock,
        replica_manager=services.replica_manager,
        producer_ids=services.producer_ids,
        send_to_broker=peers.client("transaction-markers").send_to_broker,
        unreadable_records=services.metrics.unreadable_records,
    )
    services.transaction_verifier = TransactionVerifier(
        services.ports.clock, peers.client("transaction-checks").send_to_broker, lambda: applied.image
    )
    services.group_coordinator = GroupCoordinator(
        config=config,
        ports=services.ports,
        replica_manager=services.replica_manager,
        verifier=services.transaction_verifier,
        unreadable_records=services.metrics.unreadable_records,
    )
