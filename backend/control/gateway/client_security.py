"""How a connection proves who it is and what it encrypts: a file of client properties, in librdkafka's names.

The pipeline reads the same file. SASL PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER (`oauth`) over PLAINTEXT or
TLS, as in KIP-12, KIP-43, KIP-84, KIP-152 and KIP-255.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.control.gateway.oauth import TokenError, TokenSource, extensions_of, token_source
from backend.control.gateway.trust import client_context

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = {"PLAIN": None, "SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512", "OAUTHBEARER": None}
# ScramMechanism.minIterations of Kafka: with fewer, a broker that is none could try passwords on our proof.
ITERATIONS_MIN: Final = 4_096
# What a broker may have this process compute on its loop: 50 ms with SHA-512. Kafka's own limit of new credentials is
# 16,384 (ScramControlManager), older clusters had none.
ITERATIONS_MAX: Final = 65_536
# RFC 5802, section 7: server-first-message and server-final-message, without mandatory extensions.
_BASE64: Final = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_EXTENSIONS: Final = rb"(?:,[A-Za-z]=[^,\x00]+)*"
_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>(?!,)"
    + _BASE64
    + rb"),i=(?P<iterations>[1-9][0-9]{0,8})"
    + _EXTENSIONS
)
_SERVER_ERROR: Final = re.compile(rb"e=(?P<error>[a-z0-9-]{1,40})" + _EXTENSIONS)


class SecurityError(ValueError):
    """The properties cannot be used; one sentence."""


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """What every connection to one cluster does first. No repr: it holds a password."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    tokens: TokenSource | None = None  # of OAUTHBEARER
    extensions: Mapping[str, str] = field(default_factory=dict)


def read_security(path: Path) -> Security:
    """From a file of `name=value` lines. Raises SecurityError."""
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
    return security_of(properties)


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
    try:
        context = client_context(properties.get("ssl.ca.location"))
        certificate = properties.get("ssl.certificate.location")
        if certificate:
            context.load_cert_chain(certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password"))
    except (OSError, ssl.SSLError) as error:
        raise SecurityError(f"The certificates of the client properties cannot be used: {error}.") from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def plain_message(security: Security) -> bytes:
    """The one message of PLAIN."""
    return b"\0".join((b"", security.username.encode(), security.password.encode()))


class Scram:
    """The client's side of one SCRAM exchange. Raises SecurityError for an answer that does not fit."""

    def __init__(self, security: Security, nonce: str | None = None) -> None:
        self._hash = str(MECHANISMS[security.mechanism or ""])
        self._password = security.password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = security.username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof that we know the password. Raises SecurityError, after which the exchange is over."""
        found = _SERVER_FIRST.fullmatch(server_first)
        if found is None:
            raise SecurityError("its first SCRAM message is not one of RFC 5802")
        nonce, salt = found["nonce"].decode(), base64.b64decode(found["salt"], validate=True)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SecurityError("its SCRAM message answers another client's")
        iterations = int(found["iterations"])
        if iterations < ITERATIONS_MIN:
            raise SecurityError(
                f"it asks for {iterations} SCRAM iterations, and a password that is worth so little work could be"
                f" guessed from the answer; {ITERATIONS_MIN} are the least"
            )
        if iterations > ITERATIONS_MAX:
            raise SecurityError(f"it asks for {iterations} SCRAM iterations; {ITERATIONS_MAX} are the most we compute")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        message = b",".join((self._bare.encode(), server_first, without_proof.encode()))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Whether the broker knows the password, too. Raises SecurityError when it did not prove it."""
        refused = _SERVER_ERROR.fullmatch(server_final)
        if refused is not None:
            raise SecurityError(f"it ends SCRAM with the error {refused['error'].decode()}")
        expected = b"v=" + base64.b64encode(self._server_signature)
        if not self._server_signature or not hmac.compare_digest(server_final.partition(b",")[0], expected):
            raise SecurityError("it did not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()
