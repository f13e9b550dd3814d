"""The remote tier of a broker: its log manager, with the metadata topic reached over the network."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from backend.engine.broker.partition_marker import PartitionMarker
from backend.engine.common.event_sink import EventSink
from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.listeners import broker_listeners, inter_broker_listener_name
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.metrics import BrokerMetrics
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.metadata_topic_client import MetadataTopicClient
from backend.engine.net.peer_controller_channel import PeerControllerChannel
from backend.engine.ports import Ports, tasks
from backend.engine.remote.assembly import open_remote_log_manager
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.remote.metadata.metadata_scan import MetadataScan
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC, MetadataClientSettings
from backend.engine.replica.applied_metadata import AppliedMetadata


def metadata_listener(config: BrokerConfig) -> str:
    """The listener by which the metadata manager reaches the brokers. ConfigError when no broker has it."""
    name = config.remote_log_metadata_manager_listener_name
    if not name:
        return inter_broker_listener_name(config)
    names = [listener.name for listener in broker_listeners(config)]
    if name.upper() not in names:
        raise ConfigError(
            f"remote.log.metadata.manager.listener.name is {name}, which is none of the listeners {', '.join(names)}"
        )
    return name.upper()


_log = logging.getLogger(__name__)


class RemoteTier:
    """Made with the broker's other parts, started once its listeners serve, closed before them."""

    def __init__(
        self,
        applied: AppliedMetadata,
        *,
        cluster_id: str,
        ports: Ports,
        metadata: MetadataCache,
        metrics: BrokerMetrics,
        events: EventSink,
        next_producer_id: Callable[[], Awaitable[int]],
        channel: PeerControllerChannel,
        produce_client: ClusterClient,
        fetch_client: ClusterClient,
        removal_client: ClusterClient,
        on_fatal: Callable[[str], None],
    ) -> None:
        settings = applied.config
        self._clock = ports.clock
        self._metadata = metadata
        self._applied = applied
        # Storage calls may take seconds: they have separate threads, as many as the pools may use at once.
        self._workers = ports.more_workers(_threads(settings))
        try:
            clients = MetadataClientSettings.parse(settings.prefixed(settings.remote_log_metadata_manager_impl_prefix))
            if clients.unused:
                _log.warning(
                    "These settings of the metadata topic's clients have no effect: %s", ", ".join(clients.unused)
                )
            topic = MetadataTopicClient(
                ports,
                metadata,
                channel,
                produce_client,
                fetch_client,
                next_producer_id,
                clients,
                metrics.unreadable_records,
            )
            self.manager: RemoteLogManager = open_remote_log_manager(
                broker_id=settings.id,
                cluster_id=cluster_id,
                log_dir=settings.data_dirs[0],
                config=lambda: applied.config,
                ports=ports,
                workers=self._workers,
                topic=topic,
                events=events,
                metrics=metrics,
                on_fatal=on_fatal,
            )
        except ValueError as error:
            self._workers.close()
            raise ConfigError(str(error)) from error
        self._removal_topic = MetadataTopicClient(
            ports,
            metadata,
            channel,
            removal_client,
            removal_client,
            next_producer_id,
            clients,
            metrics.unreadable_records,
        )
        self._removing: list[tasks.Task[None]] = []

    async def start(self, controller: Controller | None) -> None:
        """Begins to copy, expire and remove; `controller` is that of this node, if it has the role."""
        await self.manager.start()
        scan = MetadataScan(self._removal_topic)
        remover = self.manager.remover(self._removal_topic, scan, self._led, self._applied.config.data_dirs[0])
        self._removing.append(tasks.spawn(remover.run(), name=f"partition remover of broker {self._applied.node_id}"))
        if controller is not None:
            marker = PartitionMarker(
                controller,
                self._removal_topic,
                scan,
                node_id=self._applied.node_id,
                clock=self._clock,
                delete_vanished=self._applied.config.ebbline_delete_vanished_topics,
            )
            self._removing.append(tasks.spawn(marker.run(), name=f"partition marker of node {self._applied.node_id}"))

    def _led(self) -> list[int]:
        """Partitions of the metadata topic that this broker leads, as far as it knows."""
        topic = self._metadata.image.topic(METADATA_TOPIC)
        if topic is None:
            return []
        node_id = self._applied.node_id
        return [index for index, partition in topic.partitions.items() if partition.leader == node_id]

    async def apply_settings(self) -> None:
        """Takes over the settings in force: sizes of pools and of the index cache."""
        self._workers.grow(_threads(self._applied.config))
        await self.manager.apply_settings()

    async def close(self) -> None:
        """Copies under way end first, within their own time-out."""
        for task in self._removing:
            await tasks.cancel(task)
        await self._removal_topic.close()
        await self.manager.close()
        self._workers.close()


def _threads(settings: BrokerConfig) -> int:
    """As many as the pools may use at once, and one for the partition remover."""
    return (
        settings.remote_log_manager_copier_thread_pool_size
        + settings.remote_log_manager_expiration_thread_pool_size
        + settings.remote_log_reader_threads
        + 1
    )
