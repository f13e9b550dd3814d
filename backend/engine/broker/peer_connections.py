"""A broker's connections to other brokers, one for each purpose."""

from __future__ import annotations

from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import inter_broker_security, listener_security
from backend.engine.config.listeners import inter_broker_listener_name
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports


class PeerConnections:
    """Requests of one connection wait for each other, so no two purposes share one."""

    def __init__(self, ports: Ports, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._ports = ports
        self._config = config
        self._metadata = metadata
        self._broker_security = PeerSecurity.of(inter_broker_security(config))
        self._clients: list[ClusterClient] = []

    def client(self, purpose: str, listener_name: str | None = None) -> ClusterClient:
        """Connections to brokers through the listener, by default that of inter.broker.listener.name."""
        through = listener_name or inter_broker_listener_name(self._config)
        security = (
            self._broker_security
            if listener_name is None
            else PeerSecurity.of(listener_security(self._config, listener_name))
        )
        client_id = f"broker-{self._config.id}-{purpose}"
        client = ClusterClient(self._ports, self._metadata, through, client_id=client_id, security=security)
        self._clients.append(client)
        return client

    def connect_to_leader(self, host: str, port: int) -> PeerClient:
        """A fetcher's own connection, which it closes itself."""
        client_id = f"broker-{self._config.id}-fetcher"
        return PeerClient(self._ports, host, port, client_id=client_id, security=self._broker_security)

    def close(self) -> None:
        """Closes all but the fetchers' connections."""
        for client in self._clients:
            client.close()
