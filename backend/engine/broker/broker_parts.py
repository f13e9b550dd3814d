"""The parts of a node, made before anything is served: those of every node, and those of the broker role.

Kafka: the first half of `BrokerServer.startup`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager, QuotaWindows
from backend.engine.apis.services import BrokerServices, Services
from backend.engine.apis.table import api_table
from backend.engine.broker.controller_channels import ControllerChannels
from backend.engine.broker.controller_server import FEATURES, ControllerServer
from backend.engine.broker.peer_connections import PeerConnections
from backend.engine.broker.remote_tier import RemoteTier, metadata_listener
from backend.engine.broker.role_listeners import RoleListeners
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.event_sink import NullEventSink
from backend.engine.config import BrokerConfig
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.registration.broker_lifecycle import BrokerLifecycle
from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.metrics import BrokerMetrics
from backend.engine.net.event_publisher import EVENTS_TOPIC, EventPublisher
from backend.engine.net.topic_producer import TopicProducer
from backend.engine.ports import Ports
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.replica_manager import ReplicaManager


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """The parts of every node, whatever its roles."""

    config: BrokerConfig
    cluster_id: str
    ports: Ports
    metadata: MetadataCache
    log_manager: LogManager
    controller_channel: ControllerChannel
    controller_channels: ControllerChannels
    metrics: BrokerMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The parts of the broker role, connected and not started."""

    peers: PeerConnections
    lifecycle: BrokerLifecycle
    producer_ids: ProducerIdManager
    events: EventPublisher
    applied: AppliedMetadata
    remote: RemoteTier | None  # None unless remote.log.storage.system.enable
    replica_manager: ReplicaManager
    transaction_coordinator: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    group_coordinator: GroupCoordinator


def make_broker_parts(
    node: NodeParts, listeners: RoleListeners, metadata: NodeMetadata, on_fatal: Callable[[str], None]
) -> BrokerParts:
    """`listeners` are bound. Raises ConfigError."""
    config, ports, metrics = node.config, node.ports, node.metrics
    peers = PeerConnections(ports, config, node.metadata)
    lifecycle = BrokerLifecycle(
        ports,
        config,
        node.controller_channels.channel("lifecycle"),
        cluster_id=node.cluster_id,
        endpoints=listeners.endpoints(),
        log_dirs=list(node.log_manager.directories.directory_ids.values()),
        features=FEATURES,
        applied_offset=lambda: node.metadata.applied_offset,
        previous_epoch=node.log_manager.directories.previous_broker_epoch,
        offline_log_dirs=lambda: node.log_manager.directories.failed_directory_ids,
        quorum_waits_for=lambda: metadata.raft.waits_for,
    )
    producer_ids = ProducerIdManager(
        node.controller_channel, node_id=config.id, broker_epoch=lambda: lifecycle.broker_epoch
    )
    events = EventPublisher(
        ports,
        config.id,
        node.metadata,
        node.controller_channel,
        TopicProducer(ports, peers.client("events"), EVENTS_TOPIC, producer_ids.next_id),
        replication_factor=config.ebbline_events_topic_replication_factor,
    )
    applied = AppliedMetadata(config)
    remote = _remote_tier(node, applied, peers, events, producer_ids, on_fatal)
    replica_manager = ReplicaManager(
        applied,
        ports=ports,
        log_manager=node.log_manager,
        controller_channel=node.controller_channels.channel("isr"),
        connect_to_leader=peers.connect_to_leader,
        events=events,
        metrics=metrics,
        remote_logs=None if remote is None else remote.manager,
    )
    verifier = TransactionVerifier(
        ports.clock, peers.client("transaction-checks").send_to_broker, lambda: applied.image
    )
    return BrokerParts(
        peers=peers,
        lifecycle=lifecycle,
        producer_ids=producer_ids,
        events=events,
        applied=applied,
        remote=remote,
        replica_manager=replica_manager,
        transaction_coordinator=TransactionCoordinator(
            clock=ports.clock,
            replica_manager=replica_manager,
            producer_ids=producer_ids,
            send_to_broker=peers.client("transaction-markers").send_to_broker,
            unreadable_records=metrics.unreadable_records,
        ),
        transaction_verifier=verifier,
        group_coordinator=GroupCoordinator(
            config=config,
            ports=ports,
            replica_manager=replica_manager,
            verifier=verifier,
            unreadable_records=metrics.unreadable_records,
        ),
    )


def _remote_tier(
    node: NodeParts,
    applied: AppliedMetadata,
    peers: PeerConnections,
    events: EventPublisher,
    producer_ids: ProducerIdManager,
    on_fatal: Callable[[str], None],
) -> RemoteTier | None:
    """None when remote.log.storage.system.enable is false. Raises ConfigError."""
    config = node.config
    if not config.remote_log_storage_system_enable:
        return None
    through = metadata_listener(config)
    return RemoteTier(
        applied,
        cluster_id=node.cluster_id,
        ports=node.ports,
        metadata=node.metadata,
        metrics=node.metrics,
        events=events,
        next_producer_id=producer_ids.next_id,
        channel=node.controller_channels.channel("rlmm"),
        produce_client=peers.client("rlmm-producer", through),
        fetch_client=peers.client("rlmm-consumer", through),
        removal_client=peers.client("partition-remover", through),
        on_fatal=on_fatal,
    )


def services_of(node: NodeParts, controller: ControllerServer | None) -> Services:
    """The services of a node without the broker role."""
    return Services(
        node_id=node.config.id,
        cluster_id=node.cluster_id,
        config=node.config,
        ports=node.ports,
        metadata=node.metadata,
        log_manager=node.log_manager,
        controller_channel=node.controller_channel,
        events=NullEventSink(),
        metrics=node.metrics,
        remote_log_manager=None,
        controller=None if controller is None else controller.controller,
        log_ends=None if controller is None else controller.log_ends,
        apis=api_table(),
        client_quotas=ClientQuotaManager(QuotaWindows.of(node.config)),
    )


def broker_services_of(node: NodeParts, parts: BrokerParts, controller: ControllerServer | None) -> BrokerServices:
    """The services of a node with the broker role."""
    return BrokerServices(
        node_id=node.config.id,
        cluster_id=node.cluster_id,
        config=node.config,
        ports=node.ports,
        metadata=node.metadata,
        log_manager=node.log_manager,
        controller_channel=node.controller_channel,
        events=parts.events,
        metrics=node.metrics,
        remote_log_manager=None if parts.remote is None else parts.remote.manager,
        controller=None if controller is None else controller.controller,
        log_ends=None if controller is None else controller.log_ends,
        apis=api_table(),
        client_quotas=ClientQuotaManager(QuotaWindows.of(node.config)),
        replica_manager=parts.replica_manager,
        group_coordinator=parts.group_coordinator,
        transaction_coordinator=parts.transaction_coordinator,
        transaction_verifier=parts.transaction_verifier,
        producer_ids=parts.producer_ids,
    )
