"""Telling the remote tier of deleted partitions from a node that is a controller and no broker.

Such a node has no remote log manager; it reaches the partitions of ``__remote_log_metadata`` as any client does, with
its own image for a map. On a combined node the broker's part does this.
"""

from __future__ import annotations

from backend.engine.broker.partition_marker import PartitionMarker
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import inter_broker_security
from backend.engine.config.listeners import inter_broker_listener_name
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.commands.producer_id_control import BLOCK_IDS
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.metadata_topic_client import MetadataTopicClient
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports, tasks
from backend.engine.remote.metadata.metadata_scan import MetadataScan
from backend.protocol import messages as m

NO_BROKER_EPOCH = -1


class ControllerImage(MetadataCache):
    """The controller's own image, always the newest."""

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self._controller = controller

    @property
    def image(self) -> MetadataImage:
        return self._controller.image


class ControllerPartitionMarker:
    """Start with the controller, close before it."""

    def __init__(self, ports: Ports, config: BrokerConfig, controller: Controller, channel: ControllerChannel) -> None:
        self._controller = controller
        self._node_id = config.id
        image = ControllerImage(controller)
        self._client = ClusterClient(
            ports,
            image,
            inter_broker_listener_name(config),
            client_id=f"controller-{config.id}-partition-marker",
            security=PeerSecurity.of(inter_broker_security(config)),
        )
        self._topic = MetadataTopicClient(ports, image, channel, self._client, self._client, self._new_producer_id)
        marker = PartitionMarker(
            controller,
            self._topic,
            MetadataScan(self._topic),
            node_id=config.id,
            clock=ports.clock,
            delete_vanished=config.ebbline_delete_vanished_topics,
        )
        self._running = tasks.spawn(marker.run(), name=f"partition marker of node {config.id}")

    async def _new_producer_id(self) -> int:
        """The first of a block that no other producer gets."""

        def command(image: MetadataImage) -> ControllerResult[int]:
            start = image.next_producer_id
            record = m.ProducerIdsRecord(
                broker_id=self._node_id, broker_epoch=NO_BROKER_EPOCH, next_producer_id=start + BLOCK_IDS
            )
            return checked_result([record], start)

        return await self._controller.submit("allocate a producer id", command)

    async def close(self) -> None:
        await tasks.cancel(self._running)
        await self._topic.close()
        self._client.close()
