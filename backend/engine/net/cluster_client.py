"""Requests to the brokers of the own cluster, found through the broker's own metadata instead of Metadata requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import OPEN, PeerSecurity
from backend.engine.ports import Ports
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

if TYPE_CHECKING:
    from backend.engine.controller.metadata.metadata_cache import MetadataCache


class ClusterClient:
    """One connection to each broker that is needed. A long poll holds it: fetches need a separate client."""

    def __init__(
        self,
        ports: Ports,
        metadata: MetadataCache,
        listener_name: str,
        *,
        client_id: str,
        security: PeerSecurity = OPEN,
    ) -> None:
        self._ports = ports
        self._metadata = metadata
        self._listener_name = listener_name
        self._client_id = client_id
        self._security = security
        self._peers: dict[int, PeerClient] = {}

    def leader(self, topic: str, partition: int) -> int:
        """Broker id of the partition's leader. KafkaError: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE."""
        registration = self._metadata.image.partition(topic, partition)
        if registration is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {topic}-{partition} does not exist")
        if registration.leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {topic}-{partition} has no leader")
        return registration.leader

    def peer(self, broker_id: int) -> PeerClient:
        """The client of a registered broker. KafkaError BROKER_NOT_AVAILABLE when it is not registered."""
        registration = self._metadata.image.brokers.get(broker_id)
        endpoint = None if registration is None else registration.endpoint(self._listener_name)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} has no listener {self._listener_name}"
            )
        client = self._peers.get(broker_id)
        if client is not None and (client.host, client.port) == (endpoint.host, endpoint.port):
            return client
        if client is not None:
            client.close()
        made = PeerClient(self._ports, endpoint.host, endpoint.port, client_id=self._client_id, security=self._security)
        self._peers[broker_id] = made
        return made

    async def send_to_broker(self, broker_id: int, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The broker's answer; errors as `PeerClient.send`, and those of `peer`."""
        return await self.peer(broker_id).send(request, version, timeout_ms=timeout_ms)

    async def send_to_leader(
        self, topic: str, partition: int, request: Message, version: int, *, timeout_ms: float
    ) -> Message:
        """The answer of the partition's leader; errors as `PeerClient.send`, and those of `leader` and `peer`."""
        return await self.send_to_broker(self.leader(topic, partition), request, version, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Drops every connection."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
