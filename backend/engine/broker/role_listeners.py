"""The listeners of one role of a node, whose ports are taken before anything is written to its disk."""

from __future__ import annotations

from collections.abc import Mapping

from backend.engine.apis.api_declaration import ListenerKind
from backend.engine.apis.services import Services
from backend.engine.config import BrokerConfig
from backend.engine.config.listeners import (
    SECURITY_PROTOCOL_IDS,
    broker_listeners,
    controller_listeners,
    inter_broker_listener_name,
    parse_listeners,
)
from backend.engine.controller.image.metadata_image import Endpoint
from backend.engine.net.connection_quotas import ConnectionQuotas
from backend.engine.net.listener import Listener
from backend.engine.ports import Ports


class RoleListeners:
    """Bind, then start, then close."""

    def __init__(self, ports: Ports, config: BrokerConfig, kind: ListenerKind) -> None:
        self._config = config
        self._kind = kind
        addresses = broker_listeners(config) if kind == "broker" else controller_listeners(config)
        of_brokers = inter_broker_listener_name(config) if kind == "broker" and len(addresses) > 1 else None
        self._quotas = ConnectionQuotas(of_brokers)
        self._listeners = [Listener(ports, config, address, kind, self._quotas) for address in addresses]
        self._ports: dict[str, int] = {}

    def bind(self) -> None:
        """Takes the ports. OSError when one is taken."""
        for listener in self._listeners:
            self._ports[listener.address.name] = listener.bind()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses to register: advertised.listeners of a broker, else where the bound listeners are."""
        config = self._config
        advertised = () if self._kind == "controller" else config.advertised_listeners or ()
        by_name = {
            address.name: address
            for address in parse_listeners("advertised.listeners", advertised, config.listener_security_protocol_map)
        }
        endpoints = []
        for listener in self._listeners:
            address = by_name.get(listener.address.name, listener.address)
            port = address.port or self._ports[address.name]
            protocol = SECURITY_PROTOCOL_IDS[address.security_protocol]
            endpoints.append(Endpoint(address.name, address.host, port, protocol))
        return tuple(endpoints)

    def start(self, services: Services) -> None:
        """Serves the connections that wait, and every new one."""
        for listener in self._listeners:
            listener.start(services)

    def reload_stores(self, dynamic: Mapping[str, str]) -> None:
        """Reads key stores and trust stores again, by the broker's dynamic settings."""
        for listener in self._listeners:
            listener.reload(dynamic)

    def apply_connection_limits(self) -> None:
        """Limits of connections have changed: connections that wait for room may get it."""
        self._quotas.notify_free()

    async def close(self) -> None:
        """Frees the ports."""
        for listener in self._listeners:
            await listener.close()
