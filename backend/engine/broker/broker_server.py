"""The broker role of a node: metadata, replicas, remote tier, groups, and the listeners for clients and other brokers.

Parts come to life in the order in which they need each other: the metadata is followed, the broker registers, the
first image tells which logs there are and how they are set up, the controller unfences the broker, the listeners answer
who has connected meanwhile. Until then clients would be told of a cluster without this broker, and perhaps of none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from backend.engine.apis.services import Services
from backend.engine.broker.broker_gauges import add_broker_gauges
from backend.engine.broker.controller_server import FEATURES
from backend.engine.broker.remote_tier import RemoteTier, metadata_listener
from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.listener_security import (
    controller_security,
    inter_broker_security,
    is_store_setting,
    listener_security,
)
from backend.engine.config.listeners import (
    SECURITY_PROTOCOL_IDS,
    broker_listeners,
    controller_addresses,
    inter_broker_listener_name,
    parse_listeners,
)
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    EMPTY_IMAGE,
    Endpoint,
    MetadataImage,
)
from backend.engine.controller.metadata.metadata_loader import MetadataLoader
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.registration.broker_lifecycle import BrokerLifecycle, no_controller
from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.engine.log.config import CleanerConfig
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.connection_quotas import ConnectionQuotas
from backend.engine.net.event_publisher import EVENTS_TOPIC, EventPublisher
from backend.engine.net.listener import Listener
from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_controller_channel import PeerControllerChannel
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.net.topic_producer import TopicProducer
from backend.engine.ports import Ports, tasks
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.replica_manager import ReplicaManager
from backend.tiering.ids import TopicPartition

# A controller that is gone must not hold up a stop for longer.
LEAVE_TIMEOUT_MS: Final = 5_000
EVENTS_FLUSH_MS: Final = 1000

_log = logging.getLogger(__name__)


class BrokerServer:
    """Bind, then start, then stop or kill."""

    def __init__(self, ports: Ports, config: BrokerConfig, on_fatal: Callable[[str], None]) -> None:
        self._ports = ports
        self._on_fatal = on_fatal
        self._config = config
        self._applied = AppliedMetadata(config)
        addresses = broker_listeners(config)
        self._slots = ConnectionQuotas(inter_broker_listener_name(config) if len(addresses) > 1 else None)
        self._listeners = [Listener(ports, config, address, "broker", self._slots) for address in addresses]
        self._peer_security = PeerSecurity.of(inter_broker_security(config))
        self._controller_security = PeerSecurity.of(controller_security(config))
        self._bound: dict[str, int] = {}
        self._channels: list[PeerControllerChannel] = []
        self._clients: list[ClusterClient] = []
        self._loader: MetadataLoader | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._remote: RemoteTier | None = None
        self._events: EventPublisher | None = None
        self._publishing: tasks.Task[None] | None = None
        self._registered: tasks.Future[int] = tasks.future()
        self._shown_registered = tasks.Event()
        self._first_image: tasks.Future[None] = tasks.future()
        self._metadata: NodeMetadata | None = None
        self._services: Services | None = None
        self._removed_set_aside: set[str] = set()

    @property
    def lifecycle(self) -> BrokerLifecycle:
        assert self._lifecycle is not None, "not started"
        return self._lifecycle

    @property
    def events(self) -> EventPublisher:
        assert self._events is not None, "not started"
        return self._events

    def bind(self) -> None:
        """Takes the ports. OSError when one is taken."""
        for listener in self._listeners:
            self._bound[listener.address.name] = listener.bind()

    def _endpoints(self) -> tuple[Endpoint, ...]:
        """What this broker tells others: advertised.listeners, or where it listens."""
        config = self._config
        advertised = parse_listeners(
            "advertised.listeners", config.advertised_listeners or (), config.listener_security_protocol_map
        )
        by_name = {address.name: address for address in advertised}
        found = []
        for listener in self._listeners:
            address = by_name.get(listener.address.name, listener.address)
            port = address.port or self._bound[address.name]
            found.append(Endpoint(address.name, address.host, port, SECURITY_PROTOCOL_IDS[address.security_protocol]))
        return tuple(found)

    async def start(self, services: Services, metadata: NodeMetadata) -> None:
        """Returns once the controller lets clients know this broker."""
        self._services = services
        self._metadata = metadata
        self._make_parts(services, metadata)
        assert self._loader is not None
        assert self._lifecycle is not None
        self._loader.start()
        epoch = await self._lifecycle.start()
        self._registered.set_result(epoch)
        await self._first_image_applied()
        add_broker_gauges(services)
        await self._lifecycle.unfence()
        await self._shown_unfenced(services)
        for listener in self._listeners:
            listener.start(services)
        if self._remote is not None:
            await self._remote.start()
        self._publishing = tasks.spawn(self.events.run(), name=f"events of broker {self._config.id}")
        _log.info("Broker %d serves with epoch %d", self._config.id, epoch)

    async def _shown_unfenced(self, services: Services) -> None:
        """Returns once this broker's own image has it among those that clients may use."""
        epoch, timeout_ms = self.lifecycle.broker_epoch, self._config.initial_broker_registration_timeout_ms

        def shows(image: MetadataImage) -> bool:
            own = image.broker(self._config.id)
            return own is not None and own.epoch >= epoch and not own.fenced

        if not await services.metadata.wait_for(shows, timeout_ms):
            _log.warning("Broker %d serves, although its metadata does not show it after %d ms", self._config.id,
                         timeout_ms)  # fmt: skip

    async def _first_image_applied(self) -> None:
        """Waits for metadata up to a limit, and then for as long as its logs need to be opened."""
        assert self._metadata is not None
        try:
            timeout_ms = self._config.initial_broker_registration_timeout_ms
            await tasks.wait_for(self._shown_registered.wait(), timeout_ms)
        except tasks.Timeout:
            waits_for = self._metadata.raft.waits_for
            raise no_controller(self._config, "to be told the cluster's metadata", None, waits_for) from None
        await tasks.shield(self._first_image)

    def _make_parts(self, services: Services, metadata: NodeMetadata) -> None:
        config, ports, node_id = self._config, self._ports, self._config.id
        listener_name = inter_broker_listener_name(config)
        services.producer_ids = ProducerIdManager(
            services.controller_channel, node_id=node_id, broker_epoch=lambda: self.lifecycle.broker_epoch
        )
        events_client = self._client(services, listener_name, "events")
        services.events = self._events = EventPublisher(
            ports,
            node_id,
            services.metadata,
            services.controller_channel,
            TopicProducer(ports, events_client, EVENTS_TOPIC, services.producer_ids.next_id),
            replication_factor=config.ebbline_events_topic_replication_factor,
        )
        if config.remote_log_storage_system_enable:
            through = metadata_listener(config)
            security = PeerSecurity.of(listener_security(config, through))
            self._remote = RemoteTier(
                services,
                lambda: self._applied.config,
                self._channel("rlmm"),
                self._client(services, through, "rlmm-producer", security),
                self._client(services, through, "rlmm-consumer", security),
                self._client(services, through, "partition-remover", security),
                self._on_fatal,
            )
            services.remote_log_manager = self._remote.manager
        services.replica_manager = self._replicas = ReplicaManager(
            self._applied,
            ports=ports,
            log_manager=services.log_manager,
            controller_channel=self._channel("isr"),
            connect_to_leader=lambda host, port: PeerClient(
                ports, host, port, client_id=f"broker-{node_id}-fetcher", security=self._peer_security
            ),
            events=services.events,
            metrics=services.metrics,
            remote_logs=services.remote_log_manager,
        )
        replicas = self._replicas
        services.transaction_coordinator = self._transactions = TransactionCoordinator(
            clock=ports.clock,
            replica_manager=replicas,
            producer_ids=services.producer_ids,
            send_to_broker=self._client(services, listener_name, "transaction-markers").send_to_broker,
            passed_over=services.metrics.passed_over,
        )
        services.transaction_verifier = TransactionVerifier(
            ports.clock,
            self._client(services, listener_name, "transaction-checks").send_to_broker,
            lambda: self._applied.image,
        )
        services.log_manager.on_all_dirs_failed = self._on_fatal
        services.group_coordinator = self._groups = GroupCoordinator(
            config=config,
            ports=ports,
            replica_manager=replicas,
            verifier=services.transaction_verifier,
            passed_over=services.metrics.passed_over,
        )
        self._loader = MetadataLoader(metadata.committed, services.metadata, node_id=node_id)
        self._loader.add_listener("replicas", self._on_metadata)
        self._loader.on_applied = self._on_applied
        self._lifecycle = BrokerLifecycle(
            ports,
            config,
            self._channel("lifecycle"),
            cluster_id=services.cluster_id,
            endpoints=self._endpoints(),
            log_dirs=list(services.log_manager.directory_ids.values()),
            features=FEATURES,
            applied_offset=lambda: services.metadata.applied_offset,
            previous_epoch=services.log_manager.previous_broker_epoch,
            offline_log_dirs=lambda: services.log_manager.failed_directory_ids,
            quorum_waits_for=lambda: metadata.raft.waits_for,
        )

    def _channel(self, purpose: str) -> PeerControllerChannel:
        """Requests of one channel wait for each other, so each purpose has its own."""
        made = PeerControllerChannel(
            self._ports,
            controller_addresses(self._config),
            client_id=f"broker-{self._config.id}-{purpose}",
            security=self._controller_security,
        )
        self._channels.append(made)
        return made

    def _client(
        self, services: Services, listener_name: str, purpose: str, security: PeerSecurity | None = None
    ) -> ClusterClient:
        client_id = f"broker-{self._config.id}-{purpose}"
        made = ClusterClient(
            self._ports,
            services.metadata,
            listener_name,
            client_id=client_id,
            security=security or self._peer_security,
        )
        self._clients.append(made)
        return made

    def _reload_stores(self, old: MetadataImage, new: MetadataImage) -> None:
        """Setting a value again, too, reads the files anew (KAFKA-14136)."""
        before, now = (image.config(BROKER_RESOURCE, str(self._config.id)) for image in (old, new))
        if before is now or not any(is_store_setting(name) for name in (*before, *now)):
            return
        for listener in self._listeners:
            listener.reload(now)

    def _apply_connection_limits(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = (
            old.config(BROKER_RESOURCE, name) is not new.config(BROKER_RESOURCE, name)
            for name in (str(self._config.id), CLUSTER_DEFAULT)
        )
        if any(changed):
            self._slots.settle()

    async def _on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        services, replicas, groups = self._services, self._replicas, self._groups
        transactions = self._transactions
        assert services is not None
        assert replicas is not None
        assert groups is not None
        assert transactions is not None
        if self._first_image.done():
            if self._first_image.exception() is not None:
                # The start has failed: nothing may run with what was not opened.
                return
            await _in_turns(replicas.on_metadata(old, new))
            groups.on_metadata(old, new)
            transactions.on_metadata(new)
            services.config = replicas.config
            services.log_manager.cleaner.reconfigure(CleanerConfig.of(replicas.config))
            if self._remote is not None:
                await self._remote.apply_settings()
            self._reload_stores(old, new)
            self._apply_connection_limits(old, new)
            await self._remove_set_aside(services, replicas)
            return
        await tasks.shield(self._registered)
        own = new.broker(self._config.id)
        if own is None or own.epoch != self.lifecycle.broker_epoch:
            # Until it shows this life the image speaks of the one before, which may have led with data we lack.
            return
        self._shown_registered.set()
        try:
            _refuse_tiered_topics(self._config, new)
            # What a topic's settings say decides how its logs are opened.
            self._applied.image = new
            overlaid = self._config.overlay(new.broker_config(self._config.id))
            services.log_manager.cleaner.reconfigure(CleanerConfig.of(overlaid))
            await services.log_manager.load_all(
                replicas.topic_config,
                partial(_directory_of, new, self._config.id),
                partial(_has_others, new, self._config.id),
            )
            services.log_manager.start()
            replicas.start()
            self._reload_stores(EMPTY_IMAGE, new)
            await _in_turns(replicas.on_metadata(EMPTY_IMAGE, new))
            groups.start()
            groups.on_metadata(EMPTY_IMAGE, new)
            transactions.start()
            transactions.on_metadata(new)
            services.config = replicas.config
            await self._remove_set_aside(services, replicas)
        except Exception as error:
            # Without its logs the broker must not serve: the start ends with this.
            self._first_image.set_exception(error)
            raise
        self._first_image.set_result(None)

    async def _remove_set_aside(self, services: Services, replicas: ReplicaManager) -> None:
        """Set-aside folders that an operator has named go, each once: names are not used again."""
        wanted = [name for name in replicas.config.ebbline_remove_set_aside if name not in self._removed_set_aside]
        if wanted:
            self._removed_set_aside.update(wanted)
            await services.log_manager.remove_set_aside(wanted)

    def _on_applied(self, old: MetadataImage, new: MetadataImage) -> None:
        """Who leaves, and the remote tier of a deleted topic, wait until every broker has applied it."""
        if len(new.topics) < len(old.topics) or any(
            broker.in_controlled_shutdown and broker is not old.broker(broker.id) for broker in new.brokers.values()
        ):
            self.lifecycle.report_soon()

    @property
    def epoch(self) -> int:
        """Of the present registration; -1 before the first."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    async def keep_isr(self) -> None:
        """Proposes no ISR any more."""
        if self._replicas is not None:
            await self._replicas.keep_isr()

    async def stop(self, *, hands_over: bool = True) -> None:
        """Leaves in order, having handed over what it leads; the logs stay open."""
        if self._events is not None:
            await self._events.flush(EVENTS_FLUSH_MS)
        if self._lifecycle is not None and self._config.controlled_shutdown_enable and hands_over:
            await self._lifecycle.leave(LEAVE_TIMEOUT_MS)
        await self._end()

    async def kill(self) -> None:
        """Ends without a word to anybody."""
        await self._end()

    async def _end(self) -> None:
        # The remote tier's own requests end while this broker still answers.
        if self._remote is not None:
            await self._remote.close()
        for listener in self._listeners:
            await listener.close()
        await tasks.cancel(self._publishing)
        if self._lifecycle is not None:
            await self._lifecycle.stop()
        if self._loader is not None:
            await self._loader.stop()
        if self._groups is not None:
            await self._groups.shutdown()
        if self._transactions is not None:
            await self._transactions.shutdown()
        if self._replicas is not None:
            await self._replicas.shutdown()
        for client in self._clients:
            client.close()
        for channel in self._channels:
            channel.close()


def _refuse_tiered_topics(config: BrokerConfig, image: MetadataImage) -> None:
    """Without the remote tier a tiered topic would look as if it began where its local part does."""
    if config.remote_log_storage_system_enable:
        return
    tiered = sorted(
        topic.name
        for topic in image.topics.values()
        if image.topic_config(topic.name).get("remote.storage.enable") == "true"
    )
    if tiered:
        raise ConfigError(
            f"remote.log.storage.system.enable is false, but {len(tiered)} topics are tiered ({', '.join(tiered[:3])}"
            f"{', …' if len(tiered) > 3 else ''}); delete them or switch their remote.storage.enable off before"
            " disabling tiered storage"
        )


def _directory_of(image: MetadataImage, broker_id: int, partition: TopicPartition) -> bytes | None:
    """Where the controller has the broker's replica of a partition; None when it has none."""
    registration = image.partition(partition.topic, partition.partition)
    return None if registration is None else registration.directory_of(broker_id)


def _has_others(image: MetadataImage, broker_id: int, partition: TopicPartition) -> bool:
    """Whether the partition has replicas on this broker and on another one."""
    registration = image.partition(partition.topic, partition.partition)
    return registration is not None and broker_id in registration.replicas and len(registration.replicas) > 1


async def _in_turns(steps: Iterator[None]) -> None:
    """Carries out all steps; between them heartbeats go out and requests are answered."""
    for _ in steps:
        await tasks.sleep_ms(0)
