"""TLS settings to OpenSSL contexts, and contexts to the transport of a connection (`ports.network.Transport`).

Keys and certificates are PEM text, PEM files or PKCS12 files; Java's own JKS format needs Java and is refused.
Kafka: `DefaultSslEngineFactory`.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backend.engine.ports.frame_buffers import FrameBuffers
from backend.engine.ports.network import NewConnection, Transport
from backend.engine.ports.tls_connection import TlsConnection

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import pkcs12

# cryptography is imported where it is used: a broker without PKCS12 files starts sooner.
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PEM_LINE: Final = 64
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class TlsSettingsError(ValueError):
    """Keys or certificates that cannot be used; one sentence without a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """A key store or trust store as the settings name it: PEM text, or a file of a type."""

    setting: str
    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    # Inline PEM: of a key store the chain and the key, of a trust store the certificates.
    certificates: str | None = None
    key: str | None = field(default=None, repr=False)

    @property
    def given(self) -> bool:
        return bool(self.location or self.certificates)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """One end of TLS. `owner` names it in errors."""

    owner: str
    key_store: KeyStore
    trust_store: KeyStore
    key_password: str | None = field(default=None, repr=False)
    client_auth: str = "none"
    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    check_hostname: bool = True


class ServerTls:
    """A listener's layer between TCP and frames: a `Transport` whose keys and certificates may be changed."""

    def __init__(self, settings: TlsSettings) -> None:
        """TlsSettingsError when keys or certificates cannot be used."""
        self._context = _server_context(settings)

    def reload(self, settings: TlsSettings) -> None:
        """Connections that come from now on get these. TlsSettingsError: nothing has changed."""
        self._context = _server_context(settings)

    def __call__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, frame_bytes_max: int, buffers: FrameBuffers
    ) -> NewConnection:
        return TlsConnection(self._context, None, sock, loop, frame_bytes_max, buffers)


def _server_context(settings: TlsSettings) -> ssl.SSLContext:
    if not settings.key_store.given:
        raise TlsSettingsError(f"{settings.owner} has no certificate; set ssl.keystore.type=PEM and the key store")
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none" and not settings.trust_store.given:
        raise TlsSettingsError(
            f"{settings.owner} asks clients for certificates but trusts nobody's; set ssl.truststore.location"
        )
    return context


class ClientTls:
    """The client's end of TLS; made once, used for every connection. TlsSettingsError as `ServerTls`."""

    def __init__(self, settings: TlsSettings) -> None:
        self._context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
        self._context.check_hostname = settings.check_hostname
        if not settings.trust_store.given:
            self._context.load_default_certs()

    def transport(self, host: str) -> Transport:
        """For a connection to a host, whose certificate must name it unless check_hostname is off."""

        def transport(
            sock: socket.socket, loop: asyncio.AbstractEventLoop, frame_bytes_max: int, buffers: FrameBuffers
        ) -> NewConnection:
            return TlsConnection(self._context, host, sock, loop, frame_bytes_max, buffers)

        return transport


def _context(side: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    # Renegotiation would let a read wait for a write; TLS 1.3 has none, and Kafka refuses it too.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    versions = sorted(PROTOCOLS[name] for name in settings.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    try:
        if settings.key_store.given:
            _load_key(context, settings)
        if settings.trust_store.given:
            context.load_verify_locations(cadata=_certificates(settings.trust_store))
    except TlsSettingsError as error:
        raise TlsSettingsError(f"{settings.owner}: {error}") from error
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsSettingsError(
            f"{settings.owner}: its key store or trust store cannot be used: {_reason(error)}; check"
            f" {settings.key_store.setting}.*, {settings.trust_store.setting}.* and ssl.key.password"
        ) from error
    return context


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """OpenSSL takes keys only from files: one that only this user can read, for a moment."""
    pem = _key_and_chain(settings.key_store)
    # Without one OpenSSL would ask on the terminal.
    password = settings.key_password or ""
    with tempfile.NamedTemporaryFile(prefix="ebbline-", suffix=".pem") as file:
        file.write(pem.encode())
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _key_and_chain(store: KeyStore) -> str:
    if store.certificates:
        if not store.key:
            raise TlsSettingsError(f"{store.setting}.certificate.chain is set without {store.setting}.key")
        return _pem(store.key, f"{store.setting}.key") + _pem(store.certificates, f"{store.setting}.certificate.chain")
    data = _read(store)
    if store.type == "PEM":
        return _pem(data.decode(), f"{store.setting}.location")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    held = _pkcs12(store, data)
    if held.key is None or held.cert is None:
        raise TlsSettingsError(f"{store.location} holds no private key with its certificate")
    key = held.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [held.cert, *held.additional_certs]
    return (key + b"".join(certificate.certificate.public_bytes(Encoding.PEM) for certificate in chain)).decode()


def _certificates(store: KeyStore) -> str:
    if store.certificates:
        return _pem(store.certificates, f"{store.setting}.certificates")
    data = _read(store)
    if store.type == "PEM":
        return _pem(data.decode(), f"{store.setting}.location")
    from cryptography.hazmat.primitives.serialization import Encoding

    held = _pkcs12(store, data)
    certificates = [certificate for certificate in (held.cert, *held.additional_certs) if certificate is not None]
    if not certificates:
        raise TlsSettingsError(f"{store.location} holds no certificate")
    return b"".join(certificate.certificate.public_bytes(Encoding.PEM) for certificate in certificates).decode()


def _read(store: KeyStore) -> bytes:
    if store.location is None:
        raise TlsSettingsError(f"{store.setting}.location is not set")
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise TlsSettingsError(f"{store.location} cannot be read: {error.strerror}") from error


def _pkcs12(store: KeyStore, data: bytes) -> pkcs12.PKCS12KeyAndCertificates:
    if data.startswith(_JKS_MAGIC):
        raise TlsSettingsError(
            f"{store.location} is a JKS store, which only Java reads; convert it with"
            " keytool -importkeystore -deststoretype PKCS12, or use PEM"
        )
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12

        return pkcs12.load_pkcs12(data, store.password.encode() if store.password else None)
    except ValueError:
        raise TlsSettingsError(
            f"{store.location} is no PKCS12 store, or {store.setting}.password is not its password"
        ) from None


def _pem(text: str, name: str) -> str:
    """PEM as OpenSSL reads it: a property's value may have lost its line ends (Kafka's PemStore allows that)."""
    blocks = []
    for kind, body in _PEM.findall(text):
        # The older format of encrypted keys has headers, which need their lines.
        base64_text = "".join(body.split())
        lines = body.strip().splitlines() if ":" in body else re.findall(f".{{1,{_PEM_LINE}}}", base64_text)
        blocks.append("\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]))
    if not blocks:
        raise TlsSettingsError(f"{name} holds no PEM text (-----BEGIN ...-----)")
    return "".join(blocks)
