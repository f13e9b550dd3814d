"""Authentication and encryption of a connection: a file of client properties, in librdkafka's names.

The pipeline reads the same file. SASL PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER (`oauth`) over PLAINTEXT or
TLS, as in KIP-12, KIP-43, KIP-84, KIP-152 and KIP-255.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.control.gateway.oauth import TokenError, TokenSource, extensions_of, token_source
from backend.control.gateway.trust import client_context
from backend.protocol.scram import MECHANISM_TYPES, ScramClient

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", *MECHANISM_TYPES, "OAUTHBEARER")
# The iterations that a broker may have this process compute on its loop: 50 ms with SHA-512. Kafka's own limit of new
# credentials is 16,384 (ScramControlManager), older clusters had none.
ITERATIONS_MAX: Final = 65_536


class SecurityError(ValueError):
    """The properties cannot be used; one sentence."""


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """Security of every connection to one cluster. No repr: it holds a password."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    tokens: TokenSource | None = None  # of OAUTHBEARER
    extensions: Mapping[str, str] = field(default_factory=dict)


def read_properties(path: Path) -> dict[str, str]:
    """The client properties of a file of `name=value` lines. Raises SecurityError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SecurityError(f"The client properties {path} cannot be read: {error}.") from error
    properties: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise SecurityError(f"Line {number} of {path} has no '=': write name=value.")
        properties[name.strip()] = value.strip()
    return properties


def read_security(path: Path) -> Security:
    """From a file of client properties. Raises SecurityError."""
    return security_of(read_properties(path))


def security_of(properties: Mapping[str, str]) -> Security:
    """From properties by librdkafka's names; others than those of security are the pipeline's. Raises SecurityError."""
    java = next((name for name in properties if name.startswith(("sasl.jaas", "ssl.truststore", "ssl.keystore"))), None)
    if java is not None:
        raise SecurityError(
            f"{java} is a name of Java's clients: give librdkafka's, such as sasl.username and .password."
        )
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise SecurityError(f"security.protocol is not known: give one of {', '.join(PROTOCOLS)}.")
    tls = _tls(properties) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise SecurityError(f"sasl.mechanism is missing or cannot be used: give one of {', '.join(MECHANISMS)}.")
    if mechanism == "OAUTHBEARER":
        try:
            return Security(tls, mechanism, tokens=token_source(properties), extensions=extensions_of(properties))
        except TokenError as error:
            raise SecurityError(str(error)) from error
    username, password = properties.get("sasl.username"), properties.get("sasl.password")
    if not username or password is None:
        raise SecurityError("sasl.username and sasl.password are missing: add both to the client properties.")
    return Security(tls, mechanism, username, password)


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    authorities, certificate = properties.get("ssl.ca.location"), properties.get("ssl.certificate.location")
    key = properties.get("ssl.key.location")
    files = f"ssl.ca.location {authorities}"
    try:
        context = client_context(authorities)
        if certificate:
            files = f"ssl.certificate.location {certificate}" + (f" with ssl.key.location {key}" if key else "")
            context.load_cert_chain(certificate, key, properties.get("ssl.key.password"))
    except (OSError, ssl.SSLError) as error:
        cause = error.strerror or str(error)
        raise SecurityError(f"{files} of the client properties cannot be used: {cause}.") from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def plain_message(security: Security) -> bytes:
    """The one message of PLAIN."""
    return b"\0".join((b"", security.username.encode(), security.password.encode()))


def scram_client(security: Security, nonce: str | None = None) -> ScramClient:
    """The client's side of one SCRAM exchange."""
    return ScramClient(
        security.mechanism or "",
        security.username,
        security.password,
        nonce or secrets.token_urlsafe(24),
        iterations_max=ITERATIONS_MAX,
    )
