"""One listening port of a node: accepts connections up to a limit, closes idle ones, stops them all.

What protects the port (TLS, SASL) is made ready before it is bound.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from backend.engine.apis.context import ListenerKind
from backend.engine.apis.forwarding import image_of_kind
from backend.engine.apis.services import Services
from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.listeners import ListenerAddress
from backend.engine.config.security import (
    has_sasl,
    has_tls,
    sasl_server_settings,
    tls_settings,
    with_stores,
)
from backend.engine.net.authentication import Authentication
from backend.engine.net.server_connection import ServerConnection
from backend.engine.ports import Ports, tasks
from backend.engine.ports.network import Connection, FrameHandler, Server, Transport
from backend.engine.ports.tls import ServerTls, TlsSettingsError
from backend.protocol.messages import Message

# Beside max.connections, and what the port leaves of the process's descriptors: an idle connection takes about 4 KB, so
# this many take 80 MB.
CONNECTIONS_MAX: Final = 20_000
_LIMITS: Final = ("max.connections", "max.connections.per.ip")
# Idle connections are looked for this many times within their time.
_IDLE_CHECKS: Final = 10

_log = logging.getLogger(__name__)


class _Refused:
    """The upper side of a connection that was closed at once."""

    def on_frame(self, frame: bytearray) -> None:
        return None

    def on_closed(self, error: BaseException | None) -> None:
        return None


class Listener:
    """Serves one address of one node: bind first, start once the node's services are complete."""

    def __init__(self, ports: Ports, config: BrokerConfig, address: ListenerAddress, kind: ListenerKind) -> None:
        self.address = address
        self.kind = kind
        self._ports = ports
        self._config = config
        self._services: Services | None = None
        self._server: Server | None = None
        self._tls: ServerTls | None = None
        self._connections: dict[int, ServerConnection] = {}
        self._by_host: Counter[str] = Counter()
        self._handlers: set[tasks.Task[Message | None]] = set()
        self._next_id = 0
        self._idle_timer: tasks.TimerHandle | None = None
        sasl = has_sasl(address.security_protocol)
        self._sasl = sasl_server_settings(config, address.name) if sasl else None

    def bind(self) -> int:
        """Takes the port, so that peers may connect; returns it. OSError when the address is taken, ConfigError when
        keys or certificates cannot be used.
        """
        address, config = self.address, self._config
        # Whoever has not said who he is sends small requests only.
        frame_bytes_max = config.socket_request_max_bytes if self._sasl is None else config.sasl_server_max_receive_size
        try:
            self._server = self._ports.network.listen(
                address.host,
                address.port,
                self._accept,
                frame_bytes_max=frame_bytes_max,
                transport=self._transport(),
            )
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{address.host}:{address.port}") from error
        return self._server.port

    def _transport(self) -> Transport | None:
        address = self.address
        if not has_tls(address.security_protocol):
            return None
        try:
            self._tls = ServerTls(tls_settings(self._config, address.name, address.security_protocol))
        except TlsSettingsError as error:
            raise ConfigError(str(error)) from error
        return self._tls

    def reload(self, dynamic: Mapping[str, str]) -> None:
        """Reads the key store and the trust store anew, for connections that come from now on.

        `dynamic` are the broker's dynamic settings. Stores that cannot be used leave things as they are.
        """
        if self._tls is None:
            return
        address = self.address
        try:
            settings = tls_settings(with_stores(self._config, dynamic), address.name, address.security_protocol)
            self._tls.reload(settings)
        except (ConfigError, TlsSettingsError) as error:
            _log.error("Listener %s goes on with the certificate that it has: %s", address.name, error)
        else:
            _log.info("Listener %s has read its key store and trust store", address.name)

    def _authentication(self, services: Services) -> Authentication | None:
        if self._sasl is None:
            return None
        return Authentication(
            self._sasl,
            lambda mechanism, user: image_of_kind(services, self.kind).scram_credential(mechanism, user),
            lambda: self._ports.random.uuid().hex(),
            self._ports.clock.monotonic_ms,
        )

    def start(self, services: Services) -> None:
        """Serves those who connected meanwhile and from now on."""
        assert self._server is not None, "bind first"
        self._services = services
        self._server.start()
        self._check_idle_later()

    def _accept(self, connection: Connection) -> FrameHandler:
        services = self._services
        assert services is not None, "nobody is accepted before the start"
        host = connection.peer.rpartition(":")[0]
        count = self._over_limit(services, host)
        if count is not None:
            services.metrics.refused_connections += 1
            _log.warning(
                "Listener %s of node %d refused %s: %d connections are open already",
                self.address.name, services.node_id, connection.peer, count,
            )  # fmt: skip
            connection.close()
            return _Refused()
        too_soon_ms = self._too_soon_ms(services, connection)
        if too_soon_ms:
            services.metrics.refused_connections += 1
            connection.pause_reading()
            tasks.call_later(too_soon_ms, connection.close)
            return _Refused()
        self._next_id += 1
        made = ServerConnection(
            services,
            connection,
            self._next_id,
            self.address.name,
            self.kind,
            self._forget,
            self._handlers,
            self._authentication(services),
        )
        self._connections[made.id] = made
        self._by_host[host] += 1
        services.metrics.open_connections += 1
        return made

    def _over_limit(self, services: Services, host: str) -> int | None:
        """How many connections there are where one more is too many, of all addresses or of this one."""
        dynamic = services.metadata.image.broker_config(services.node_id)
        limits = self._config.overlay({name: dynamic[name] for name in _LIMITS if name in dynamic})
        count, of_host = len(self._connections), self._by_host[host]
        if count >= min(limits.max_connections, CONNECTIONS_MAX):
            return count
        return of_host if of_host >= limits.max_connections_per_ip else None

    def _too_soon_ms(self, services: Services, connection: Connection) -> int:
        """Above 0: its address has made its connections for now; this one is closed after that time (KIP-612)."""
        image = services.metadata.image
        if not image.client_quotas:
            return 0
        host = connection.peer.rpartition(":")[0]
        return services.client_quotas.connected(image, host, self._ports.clock.monotonic_ms())

    def _forget(self, connection_id: int) -> None:
        gone = self._connections.pop(connection_id, None)
        if gone is None:
            return
        self._by_host[gone.client_host] -= 1
        if not self._by_host[gone.client_host]:
            del self._by_host[gone.client_host]
        if self._services is not None:
            self._services.metrics.open_connections -= 1

    def _check_idle_later(self) -> None:
        if self._config.connections_max_idle_ms > 0:
            self._idle_timer = tasks.call_later(self._config.connections_max_idle_ms / _IDLE_CHECKS, self._close_idle)

    def _close_idle(self) -> None:
        limit_ms = self._ports.clock.monotonic_ms() - self._config.connections_max_idle_ms
        for connection in list(self._connections.values()):
            if connection.idle_since_before(limit_ms):
                connection.close()
        self._check_idle_later()

    def stop_accepting(self) -> None:
        """Frees the port; open connections go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """Frees the port, drops every connection and ends the handlers that still run for them."""
        self.stop_accepting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self._connections.values()):
            connection.close()
        for handler in list(self._handlers):
            await tasks.cancel(handler)
