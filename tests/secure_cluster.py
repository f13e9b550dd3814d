"""Clusters whose nodes listen with all four security protocols, and clients' settings for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.engine.cluster import CONTROLLER_NODE, LOOPBACK, ClusterLayout
from tests.certificates import Authority
from tests.engine_cluster import CLUSTER_ID, FAST
from tests.ports import free_ports

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", 'al"ice;=secret'
BROKER, BROKER_PASSWORD = "broker", "broker-secret"

_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def jaas(mechanism: str, **options: str) -> str:
    """The text of sasl.jaas.config."""
    module = _PLAIN_MODULE if mechanism == "PLAIN" else _SCRAM_MODULE
    quoted = [f'{name}="{_escaped(value)}"' for name, value in options.items()]
    return f"{module} required {' '.join(quoted)};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureLayout(ClusterLayout):
    """Each node with a listener of each protocol, named as the protocol; `ports` are those of PLAINTEXT."""

    listener_ports: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def properties(self, node_id: int) -> dict[str, str]:
        # Not super(): a dataclass with slots is another class than the one whose body this is.
        own = ClusterLayout.properties(self, node_id)
        listeners = [f"{name}://{LOOPBACK}:{ports[node_id]}" for name, ports in self.listener_ports.items()]
        if node_id == CONTROLLER_NODE:
            listeners.append(f"CONTROLLER://{LOOPBACK}:{self.controller_port}")
        return own | {"listeners": ",".join(listeners)} | dict(self.settings)

    def bootstrap(self, protocol: str) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self.listener_ports[protocol].values())


def secure_layout(
    folder: Path, authority: Authority, *, brokers: int = 1, settings: Mapping[str, str] | None = None
) -> SecureLayout:
    """Key and trust as PEM text; SASL with all mechanisms, and of PLAIN the users alice and broker."""
    nodes = range(1, brokers + 1)
    ports = free_ports(brokers * len(PROTOCOLS) + 1)
    listener_ports = {
        name: {node: ports[at * brokers + node - 1] for node in nodes} for at, name in enumerate(PROTOCOLS)
    }
    identity = authority.identity("broker")
    users = {"username": BROKER, "password": BROKER_PASSWORD, f"user_{BROKER}": BROKER_PASSWORD}
    logins = {}
    for name in ("sasl_plaintext", "sasl_ssl", "controller"):
        for mechanism in MECHANISMS:
            options = users | {f"user_{USER}": PASSWORD} if mechanism == "PLAIN" else users
            logins[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = jaas(mechanism, **options)
    return SecureLayout(
        cluster_id=CLUSTER_ID,
        log_dirs={node: str(folder / "brokers" / str(node) / "log") for node in nodes},
        ports=listener_ports["PLAINTEXT"],
        controller_port=ports[-1],
        listener_ports=listener_ports,
        settings={
            **FAST,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": identity.certificate_pem,
            "ssl.keystore.key": identity.key_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.pem,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            **logins,
            **(settings or {}),
        },
    )
