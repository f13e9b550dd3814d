"""Listener lists of a broker's settings as values (KIP-103), and what must hold between settings before a start."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from backend.engine.config.address_limits import check_address_limits
from backend.engine.config.broker_config import BrokerConfig
from backend.engine.config.setting_definition import ConfigError

SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})
# The prefix of a setting for one listener; the listener's name and the setting's follow.
LISTENER_PREFIX: Final = "listener.name."
MAX_CONNECTIONS: Final = "max.connections"


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """One ``NAME://host:port``."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def text(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"


def parse_listeners(setting: str, texts: tuple[str, ...], protocols: str) -> tuple[ListenerAddress, ...]:
    """The listeners of a setting such as ``listeners``. Raises ConfigError."""
    by_name = _protocols(protocols)
    addresses = []
    for text in texts:
        name, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit() or int(port) > 65_535:
            raise ConfigError(f"{setting} holds {text!r}, which is not of the form NAME://host:port")
        # A controller's listener needs no entry: Kafka maps it to PLAINTEXT when nothing else is said.
        addresses.append(
            ListenerAddress(name.upper(), host.strip("[]"), int(port), by_name.get(name.upper(), "PLAINTEXT"))
        )
    names = [listener.name for listener in addresses]
    if len(set(names)) < len(names):
        raise ConfigError(f"{setting} names a listener twice: {', '.join(texts)}")
    return tuple(addresses)


def _protocols(text: str) -> dict[str, str]:
    """listener.security.protocol.map: listener name → protocol. ConfigError."""
    protocols = {}
    for pair in text.replace(" ", "").split(","):
        name, colon, protocol = pair.partition(":")
        if not colon:
            continue
        if protocol.upper() not in SECURITY_PROTOCOL_IDS:
            raise ConfigError(
                f"listener.security.protocol.map gives {name} the protocol {protocol!r}; choose from"
                f" {', '.join(SECURITY_PROTOCOL_IDS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def security_protocol(config: BrokerConfig, listener_name: str) -> str:
    """The protocol of a listener, also of another node's. ConfigError."""
    return _protocols(config.listener_security_protocol_map).get(listener_name.upper(), "PLAINTEXT")


def listeners(config: BrokerConfig) -> tuple[ListenerAddress, ...]:
    """The addresses on which this node listens."""
    return parse_listeners("listeners", config.listeners, config.listener_security_protocol_map)


def controller_listener_names(config: BrokerConfig) -> tuple[str, ...]:
    return tuple(name.upper() for name in config.controller_listener_names or ())


def broker_listeners(config: BrokerConfig) -> tuple[ListenerAddress, ...]:
    """The listeners that serve clients and other brokers."""
    names = controller_listener_names(config)
    return tuple(listener for listener in listeners(config) if listener.name not in names)


def controller_listeners(config: BrokerConfig) -> tuple[ListenerAddress, ...]:
    """The listeners that serve the quorum and brokers' requests to the controller."""
    names = controller_listener_names(config)
    return tuple(listener for listener in listeners(config) if listener.name in names)


def inter_broker_listener_name(config: BrokerConfig) -> str:
    """The listener other brokers use: by name, else by protocol, else the first of the broker's own.

    A node that is a controller alone reaches brokers by it too.
    """
    if config.inter_broker_listener_name:
        return config.inter_broker_listener_name.upper()
    own = broker_listeners(config)
    if "security.inter.broker.protocol" in config.originals or not own:
        return config.security_inter_broker_protocol
    return own[0].name


def controller_addresses(config: BrokerConfig) -> tuple[tuple[str, int], ...]:
    """(host, port) of every controller the settings name. Raises ConfigError."""
    addresses = []
    for setting, texts in (
        ("controller.quorum.voters", config.controller_quorum_voters),
        ("controller.quorum.bootstrap.servers", config.controller_quorum_bootstrap_servers),
    ):
        for text in texts:
            host, colon, port = text.rpartition("@")[2].rpartition(":")
            if not colon or not port.isdigit():
                raise ConfigError(f"{setting} holds {text!r}, which does not end in host:port")
            addresses.append((host.strip("[]"), int(port)))
    return tuple(dict.fromkeys(addresses))


def voter_addresses(config: BrokerConfig) -> dict[int, tuple[str, int]]:
    """Node id → (host, port) of the metadata quorum's voters. Raises ConfigError."""
    addresses: dict[int, tuple[str, int]] = {}
    for text in config.controller_quorum_voters:
        node, at, address = text.partition("@")
        host, colon, port = address.rpartition(":")
        if not at or not node.strip().isdigit() or not colon or not port.isdigit():
            raise ConfigError(f"controller.quorum.voters holds {text!r}, which is not of the form id@host:port")
        if int(node) in addresses:
            raise ConfigError(f"controller.quorum.voters names node {int(node)} twice; give every node its own id")
        addresses[int(node)] = (host.strip("[]"), int(port))
    return addresses


def _check_voters(config: BrokerConfig) -> None:
    """A node with the controller role votes, and at the address that the others have for it."""
    voters = voter_addresses(config)
    if not voters:
        return
    if config.id not in voters:
        raise ConfigError(
            f"Node {config.id} has the controller role, but controller.quorum.voters names only {sorted(voters)}; add"
            " it there on every node, or take the role away"
        )
    port = voters[config.id][1]
    ports = [listener.port for listener in controller_listeners(config)]
    if port not in ports:
        raise ConfigError(
            f"controller.quorum.voters has node {config.id} at port {port}, but its controller listener is at"
            f" {', '.join(map(str, ports))}; is another node's id set here?"
        )


def check(config: BrokerConfig) -> None:
    """Raises ConfigError for settings that cannot start a node together."""
    if config.id < 0:
        raise ConfigError("node.id is not set; give every node its own id, 1 and up")
    if not config.process_roles:
        raise ConfigError("process.roles is not set; give broker, controller, or broker,controller")
    if not config.data_dirs:
        raise ConfigError("log.dirs is empty; name at least one folder")
    if not controller_addresses(config):
        raise ConfigError("No controller is named; set controller.quorum.voters or controller.quorum.bootstrap.servers")
    roles = config.process_roles
    if "controller" in roles and not controller_listeners(config):
        raise ConfigError("A node with the controller role needs a listener that controller.listener.names lists")
    if "broker" in roles:
        _check_broker(config)
    check_address_limits(config.max_connections_per_ip, config.max_connections_per_ip_overrides)
    for listener in listeners(config):
        _check_exposure(config, listener)
    if config.ebbline_metrics_listener and not _is_address(config.ebbline_metrics_listener):
        raise ConfigError(
            f"ebbline.metrics.listener is {config.ebbline_metrics_listener!r}, which is not of the form host:port"
        )
    if config.ebbline_metrics_listener and not _is_loopback(config.ebbline_metrics_listener.rpartition(":")[0]):
        raise ConfigError(
            f"ebbline.metrics.listener {config.ebbline_metrics_listener} would be open to the network without TLS;"
            " bind it to 127.0.0.1"
        )
    if config.broker_heartbeat_interval_ms * 2 > config.broker_session_timeout_ms:
        raise ConfigError("broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms")
    if "controller" in roles:
        _check_voters(config)


def _is_loopback(host: str) -> bool:
    """An address that nobody else reaches, or the one name that stands for it; other names may lead anywhere."""
    bare = host.strip("[]")
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare in _LOOPBACK


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(host and colon) and port.isdigit() and int(port) <= 65_535


def _check_broker(config: BrokerConfig) -> None:
    names = [listener.name for listener in broker_listeners(config)]
    if not names:
        raise ConfigError("A node with the broker role needs a listener beside those of controller.listener.names")
    listener_name = inter_broker_listener_name(config)
    if listener_name not in names:
        raise ConfigError(
            f"inter.broker.listener.name is {listener_name}, which is none of the listeners {', '.join(names)}"
        )


def _check_exposure(config: BrokerConfig, listener: ListenerAddress) -> None:
    if _is_loopback(listener.host):
        return
    if listener.security_protocol != "SASL_SSL":
        raise ConfigError(
            f"Listener {listener.text} would be open to the network without TLS and SASL; bind it to 127.0.0.1,"
            " or make it SASL_SSL"
        )
    advertised = parse_listeners(
        "advertised.listeners", config.advertised_listeners or (), config.listener_security_protocol_map
    )
    advertised_host = next((address.host for address in advertised if address.name == listener.name), listener.host)
    if advertised_host in _EVERYWHERE and listener.name not in controller_listener_names(config):
        raise ConfigError(
            f"Listener {listener.text} listens everywhere, which no client can connect to; name its address in"
            " advertised.listeners"
        )
