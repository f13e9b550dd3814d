"""One listening port of a node: accepts connections up to a limit, closes idle ones, stops them all.

Above a limit of `max.connections` new connections wait unread for others to go, as in Kafka; above that of one address
they are closed.

TLS and SASL of the port are made ready before it is bound.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Mapping
from typing import Any, Final

from backend.engine.apis.api_declaration import ListenerKind
from backend.engine.apis.services import Services
from backend.engine.apis.support.forwarding import image_of_kind
from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.listener_security import (
    has_sasl,
    has_tls,
    sasl_server_settings,
    tls_settings,
    with_stores,
)
from backend.engine.config.listeners import ListenerAddress
from backend.engine.net.authentication import Authentication
from backend.engine.net.connection_quotas import ConnectionLimits, ConnectionQuotas, limits_of
from backend.engine.net.server_connection import ServerConnection
from backend.engine.ports import Ports, tasks
from backend.engine.ports.network import Connection, FrameHandler, Server, Transport
from backend.engine.ports.tls import ServerTls, TlsSettingsError

# Beside max.connections, and what the port leaves of the process's descriptors: an idle connection takes about 4 KB, so
# this many take 80 MB.
CONNECTIONS_MAX: Final = 20_000
# So many may wait for a connection to go: what Kafka's socket.listen.backlog.size keeps by default.
WAITING_MAX: Final = 50
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

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        address: ListenerAddress,
        kind: ListenerKind,
        slots: ConnectionQuotas | None = None,
    ) -> None:
        """`slots` are those that this listener shares with others."""
        self.address = address
        self.kind = kind
        self._ports = ports
        self._config = config
        self._services: Services | None = None
        self._server: Server | None = None
        self._tls: ServerTls | None = None
        self._connections: dict[int, ServerConnection] = {}
        # Accepted, not read yet.
        self._waiting: dict[int, tuple[ServerConnection, Connection]] = {}
        self._slots = slots or ConnectionQuotas()
        self._handlers: set[tasks.Task[Any]] = set()
        self._next_id = 0
        self._idle_timer: tasks.TimerHandle | None = None
        sasl = has_sasl(address.security_protocol)
        self._sasl = sasl_server_settings(config, address.name) if sasl else None

    def bind(self) -> int:
        """Takes the port, so that peers may connect; returns it. OSError when the address is taken, ConfigError when
        keys or certificates cannot be used.
        """
        address, config = self.address, self._config
        # A client that has not authenticated sends small requests only.
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
        """Reads the key store and the trust store again, for connections that come from now on.

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
        self._slots.on_free.append(self._let_in)
        self._server.start()
        self._check_idle_later()

    def _accept(self, connection: Connection) -> FrameHandler:
        services = self._services
        assert services is not None, "nobody is accepted before the start"
        host = connection.peer.rpartition(":")[0]
        limits = self._limits(services)
        if self._must_go(host, limits):
            self._refused(services, connection.peer)
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
        if self._slots.is_free(self.address.name, limits):
            self._serve(services, made)
        else:
            connection.pause_reading()
            self._waiting[made.id] = (made, connection)
        return made

    def _limits(self, services: Services) -> ConnectionLimits:
        dynamic = services.metadata.image.broker_config(services.node_id)
        return limits_of(self._config, dynamic, self.address.name)

    def _must_go(self, host: str, limits: ConnectionLimits) -> bool:
        """Whether one more connection of an address is too many, or one more of anybody, served or waiting."""
        too_many = len(self._connections) >= CONNECTIONS_MAX or len(self._waiting) >= WAITING_MAX
        return too_many or self._slots.of_host[host] >= limits.of_host(host)

    def _refused(self, services: Services, peer: str) -> None:
        services.metrics.refused_connections += 1
        _log.warning(
            "Listener %s of node %d refused %s: %d connections are open already, %d of all wait",
            self.address.name, services.node_id, peer, len(self._connections), len(self._waiting),
        )  # fmt: skip

    def _serve(self, services: Services, made: ServerConnection) -> None:
        self._connections[made.id] = made
        services.metrics.open_connections += 1
        self._slots.acquire(self.address.name, made.client_host)
        if self.address.name == self._slots.protected:
            self._slots.notify_free()

    def _let_in(self) -> None:
        """Serves those who wait while there is room, and closes what is too much."""
        services = self._services
        if services is None:
            return
        limits = self._limits(services)
        while self._waiting and self._slots.is_free(self.address.name, limits):
            made, connection = self._waiting.pop(next(iter(self._waiting)))
            if self._slots.of_host[made.client_host] >= limits.of_host(made.client_host):
                self._refused(services, connection.peer)
                connection.close()
                continue
            self._serve(services, made)
            made.begin()
            connection.resume_reading()
        excess = self._slots.total - limits.total
        if excess > 0 and self.address.name != self._slots.protected:
            oldest = heapq.nsmallest(excess, self._connections.values(), key=lambda accepted: accepted.last_active_ms)
            for accepted in oldest:
                accepted.close()

    def _too_soon_ms(self, services: Services, connection: Connection) -> int:
        """Above 0: its address has made its connections for now; this one is closed after that time (KIP-612)."""
        image = services.metadata.image
        if not image.client_quotas:
            return 0
        host = connection.peer.rpartition(":")[0]
        return services.client_quotas.connected(image, host, self._ports.clock.monotonic_ms())

    def _forget(self, connection_id: int) -> None:
        self._waiting.pop(connection_id, None)
        closed = self._connections.pop(connection_id, None)
        if closed is None:
            return
        if self._services is not None:
            self._services.metrics.open_connections -= 1
        self._slots.release(self.address.name, closed.client_host)

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
        if self._let_in in self._slots.on_free:
            self._slots.on_free.remove(self._let_in)
        for waiting, _ in list(self._waiting.values()):
            waiting.close()
        for connection in list(self._connections.values()):
            connection.close()
        for handler in list(self._handlers):
            await tasks.cancel(handler)
