"""The security of a node's listeners and of its connections to other nodes (KIP-12, KIP-85, KIP-103, KIP-651).

A setting may stand under ``listener.name.<name>.`` for one listener, and ``sasl.jaas.config`` must, with the mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.engine.config.broker_config import BROKER_SETTINGS, BrokerConfig
from backend.engine.config.jaas import PLAIN_MODULE, SCRAM_MODULE, LoginModule, parse_jaas
from backend.engine.config.listeners import (
    controller_listener_names,
    inter_broker_listener_name,
    listeners,
    security_protocol,
)
from backend.engine.config.setting_definition import ConfigError
from backend.engine.ports.tls import KeyStore, TlsSettings

PLAIN: Final = "PLAIN"
# Mechanism → its login module.
MECHANISMS: Final = {PLAIN: PLAIN_MODULE, "SCRAM-SHA-256": SCRAM_MODULE, "SCRAM-SHA-512": SCRAM_MODULE}
# Settings of Kafka that would change what is let in, and that this engine does not have: better refused than ignored.
NOT_SERVED: Final = (
    "ssl.cipher.suites",
    "ssl.engine.factory.class",
    "sasl.server.callback.handler.class",
    "sasl.login.callback.handler.class",
    "authorizer.class.name",
)


# Settings that may be changed while a broker runs (Kafka: `DynamicSecurityConfigs`).
STORE_SETTINGS: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)


@dataclass(frozen=True, slots=True)
class SaslServerSettings:
    """The mechanisms and users of a SASL listener."""

    mechanisms: tuple[str, ...]
    # Of PLAIN: name → password.
    plain_users: dict[str, str] = field(repr=False)
    # Mechanism → how long an authentication holds; 0 for ever.
    max_reauth_ms: dict[str, int]


@dataclass(frozen=True, slots=True)
class SaslClientSettings:
    """The identity of this node towards others."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security of this node's connections to a listener of others."""

    tls: TlsSettings | None
    sasl: SaslClientSettings | None


def has_tls(protocol: str) -> bool:
    return protocol in ("SSL", "SASL_SSL")


def has_sasl(protocol: str) -> bool:
    return protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def _prefix(listener_name: str) -> str:
    return f"listener.name.{listener_name.lower()}."


def _value(config: BrokerConfig, prefix: str, name: str) -> Any:
    """The setting for what the prefix names, else for the whole node."""
    text = config.originals.get(prefix + name)
    if text is None:
        return getattr(config, name.replace(".", "_"))
    try:
        return BROKER_SETTINGS[name].parse(text)
    except ConfigError as error:
        raise ConfigError(str(error).replace(name, prefix + name, 1)) from error


def is_store_setting(name: str) -> bool:
    """Whether a setting is one of a key store or trust store, of the whole node or of a listener."""
    return (name.split(".", 3)[-1] if name.startswith("listener.name.") else name) in STORE_SETTINGS


def with_stores(config: BrokerConfig, dynamic: Mapping[str, str]) -> BrokerConfig:
    """The broker's file with what was set dynamically about key stores and trust stores. ConfigError."""
    stores = {name: text for name, text in dynamic.items() if is_store_setting(name)}
    return BrokerConfig.parse({**config.originals, **stores})


def tls_settings(config: BrokerConfig, listener_name: str, protocol: str) -> TlsSettings:
    """TLS of a listener, for its server and for who connects to it. ConfigError."""
    prefix = _prefix(listener_name)

    def value(name: str) -> Any:
        return _value(config, prefix, name)

    # SaslChannelBuilder: who proves who it is by SASL needs a certificate only where the listener itself says so.
    own = protocol == "SSL" or prefix + "ssl.client.auth" in config.originals
    client_auth = value("ssl.client.auth") if own else "none"
    protocols = value("ssl.enabled.protocols")
    if not protocols:
        raise ConfigError(f"ssl.enabled.protocols of listener {listener_name} is empty; give TLSv1.2, TLSv1.3 or both")
    return TlsSettings(
        owner=f"Listener {listener_name}",
        key_store=KeyStore(
            setting="ssl.keystore",
            type=value("ssl.keystore.type"),
            location=value("ssl.keystore.location"),
            password=value("ssl.keystore.password"),
            certificates=value("ssl.keystore.certificate.chain"),
            key=value("ssl.keystore.key"),
        ),
        trust_store=KeyStore(
            setting="ssl.truststore",
            type=value("ssl.truststore.type"),
            location=value("ssl.truststore.location"),
            password=value("ssl.truststore.password"),
            certificates=value("ssl.truststore.certificates"),
        ),
        key_password=value("ssl.key.password"),
        client_auth=client_auth,
        protocols=protocols,
        check_hostname=bool(value("ssl.endpoint.identification.algorithm")),
    )


def sasl_server_settings(config: BrokerConfig, listener_name: str) -> SaslServerSettings:
    """The mechanisms and users of a SASL listener. ConfigError."""
    prefix = _prefix(listener_name)
    mechanisms = tuple(mechanism.upper() for mechanism in _value(config, prefix, "sasl.enabled.mechanisms"))
    if not mechanisms:
        raise ConfigError(f"Listener {listener_name} has no mechanism; set sasl.enabled.mechanisms")
    for mechanism in mechanisms:
        _check_mechanism("sasl.enabled.mechanisms", listener_name, mechanism)
    users = _module(config, listener_name, PLAIN).users if PLAIN in mechanisms else {}
    return SaslServerSettings(
        mechanisms, users, {mechanism: max(0, _max_reauth_ms(config, prefix, mechanism)) for mechanism in mechanisms}
    )


def _max_reauth_ms(config: BrokerConfig, prefix: str, mechanism: str) -> int:
    name = "connections.max.reauth.ms"
    of_mechanism = f"{prefix}{mechanism.lower()}."
    limit_ms: int = _value(config, of_mechanism if of_mechanism + name in config.originals else prefix, name)
    return limit_ms


def _check_mechanism(setting: str, listener_name: str, mechanism: str) -> None:
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{setting} of listener {listener_name} is {mechanism}, which is not served;"
            f" choose from {', '.join(MECHANISMS)}"
        )


def _module(config: BrokerConfig, listener_name: str, mechanism: str) -> LoginModule:
    setting = f"{_prefix(listener_name)}{mechanism.lower()}.sasl.jaas.config"
    text = config.originals.get(setting)
    if text is None:
        raise ConfigError(f"{setting} is not set, which {mechanism} on listener {listener_name} needs")
    module = parse_jaas(setting, text)
    if module.name != MECHANISMS[mechanism]:
        raise ConfigError(f"{setting} names the module {module.name}; {mechanism} needs {MECHANISMS[mechanism]}")
    return module


def _sasl_client(config: BrokerConfig, listener_name: str, setting: str) -> SaslClientSettings:
    mechanism = str(_value(config, "", setting)).upper()
    _check_mechanism(setting, listener_name, mechanism)
    module = _module(config, listener_name, mechanism)
    username, password = module.options.get("username"), module.options.get("password")
    if not username or not password:
        raise ConfigError(
            f"{_prefix(listener_name)}{mechanism.lower()}.sasl.jaas.config has no username or no password,"
            " with which this node says who it is"
        )
    return SaslClientSettings(mechanism, username, password)


def _client(config: BrokerConfig, listener_name: str, mechanism_setting: str) -> ClientSecurity:
    protocol = security_protocol(config, listener_name)
    return ClientSecurity(
        tls_settings(config, listener_name, protocol) if has_tls(protocol) else None,
        _sasl_client(config, listener_name, mechanism_setting) if has_sasl(protocol) else None,
    )


def inter_broker_security(config: BrokerConfig) -> ClientSecurity:
    """The security of this broker's connections to others. ConfigError."""
    return _client(config, inter_broker_listener_name(config), "sasl.mechanism.inter.broker.protocol")


def listener_security(config: BrokerConfig, listener_name: str) -> ClientSecurity:
    """The security of connections to the others' listener of this name. ConfigError."""
    return _client(config, listener_name, "sasl.mechanism.inter.broker.protocol")


def controller_security(config: BrokerConfig) -> ClientSecurity:
    """The security of connections to the controller, by the first of controller.listener.names. ConfigError."""
    names = controller_listener_names(config)
    if not names:
        return ClientSecurity(None, None)
    return _client(config, names[0], "sasl.mechanism.controller.protocol")


def check_security(config: BrokerConfig) -> None:
    """Raises ConfigError for a listener that could not do what its settings say."""
    for name in NOT_SERVED:
        if name in config.originals or any(
            key.startswith("listener.name.") and key.endswith(f".{name}") for key in config.originals
        ):
            raise ConfigError(f"{name} is set, which this version does not serve; take it out")
    for listener in listeners(config):
        if has_sasl(listener.security_protocol):
            sasl_server_settings(config, listener.name)
        if has_tls(listener.security_protocol):
            tls_settings(config, listener.name, listener.security_protocol)
    if "broker" in (config.process_roles or ()):
        inter_broker_security(config)
        controller_security(config)
