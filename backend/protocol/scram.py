"""SCRAM after RFC 5802, with SHA-256 (RFC 7677) and SHA-512: both ends of the exchange, and a server's credential.

Used by the brokers' listeners, by the client of other nodes and by the control plane. Passwords are used unchanged: as
in Kafka there is no SASLprep. The functions are pure: the caller makes the nonces.
Kafka: `ScramFormatter`, `ScramMessages`, `ScramSaslServer`, `ScramSaslClient`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final

ITERATIONS_MIN: Final = 4096
# ScramControlManager.MAX_ITERATIONS: a client works for about 10 ms, and no server can make it work for long.
ITERATIONS_MAX: Final = 16_384
# ScramMechanism's types in UserScramCredentialRecord and the requests.
MECHANISM_TYPES: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = "[A-Za-z0-9/+]+={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]=[^,\x00]+)*"
_CLIENT_FIRST: Final = re.compile(f"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE}){_EXTENSIONS})")
_CLIENT_FINAL: Final = re.compile(f"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")
# Messages of a server, RFC 5802, section 7, without mandatory extensions.
_SERVER_EXTENSIONS: Final = rb"(?:,[A-Za-z]=[^,\x00]+)*"
_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rb",s=(?P<salt>(?!,)(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"
    rb",i=(?P<iterations>[1-9][0-9]{0,8})" + _SERVER_EXTENSIONS
)
_SERVER_ERROR: Final = re.compile(rb"e=(?P<error>[a-z0-9-]{1,40})" + _SERVER_EXTENSIONS)


class ScramError(Exception):
    """The exchange cannot go on. The message is for this side's log: the peer must not learn whether a user exists."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The part of a password that a server stores; nobody can log in with it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations) of RFC 5802, section 2.2; takes milliseconds."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    return ScramCredential(
        salt,
        _digest(mechanism, _mac(mechanism, salted, b"Client Key")),
        _mac(mechanism, salted, b"Server Key"),
        iterations,
    )


def _mac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, _HASHES[mechanism])


def _digest(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(_HASHES[mechanism], data).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(message: bytes, what: str) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError(f"The {what} is no UTF-8") from None


def _matched(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    match = pattern.fullmatch(_text(message, what))
    if match is None:
        raise ScramError(f"The {what} is not of the form of RFC 5802")
    return match


def _bytes_of(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError(f"The {what} is no base64") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message, with the name of its user."""

    gs2_header: str
    authorization_id: str
    username: str
    nonce: str
    bare: str

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        """The message read. Raises ScramError for bytes that are none."""
        match = _matched(_CLIENT_FIRST, message, "client's first message")
        header, authorization_id, bare, name, nonce = match.groups()
        return cls(header, _unescaped(authorization_id or ""), _unescaped(name), nonce, bare)


class ScramServer:
    """The server's side of one exchange, from the client's first message on."""

    def __init__(self, mechanism: str, first: ClientFirst, stored: ScramCredential, nonce: str) -> None:
        """`nonce` is this side's own part, never used before."""
        if stored.iterations < ITERATIONS_MIN:
            raise ScramError(f"The credential has {stored.iterations} iterations, less than {ITERATIONS_MIN}")
        self._mechanism = mechanism
        self._first = first
        self._credential = stored
        self._nonce = first.nonce + nonce
        self.first_message = f"r={self._nonce},s={_base64(stored.salt)},i={stored.iterations}".encode()

    def finish(self, message: bytes) -> bytes:
        """The server's last message, once the client has proved that it knows the password; ScramError otherwise."""
        match = _matched(_CLIENT_FINAL, message, "client's final message")
        without_proof, channel_binding, nonce, proof = match.groups()
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise ScramError("The client's final message has another nonce")
        if _bytes_of(channel_binding, "channel binding") != self._first.gs2_header.encode():
            raise ScramError("The client's final message has another channel binding")
        auth = b",".join((self._first.bare.encode(), self.first_message, without_proof.encode()))
        signature = _mac(self._mechanism, self._credential.stored_key, auth)
        client_proof = _bytes_of(proof, "proof")
        if len(client_proof) != len(signature):
            raise ScramError("The client's proof has another length")
        stored_key = _digest(self._mechanism, _xor(client_proof, signature))
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise ScramError("The client's proof is wrong")
        return f"v={_base64(_mac(self._mechanism, self._credential.server_key, auth))}".encode()


class ScramClient:
    """The client's side of one exchange.

    The texts of its ScramError speak of the server as "it": the caller says which server that is.
    """

    def __init__(
        self, mechanism: str, username: str, password: str, nonce: str, *, iterations_max: int = ITERATIONS_MAX
    ) -> None:
        """`nonce` was never used before. `iterations_max` bounds the work that a server may ask for."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._iterations_max = iterations_max
        self._bare = f"n={_escaped(username)},r={nonce}"
        self._server_signature = b""
        self.first_message = f"n,,{self._bare}".encode()

    def respond(self, server_first: bytes) -> bytes:
        """The final message, which proves that the client knows the password. ScramError ends the exchange."""
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise ScramError("its first SCRAM message is not one of RFC 5802")
        nonce, salt, iterations = match["nonce"].decode(), base64.b64decode(match["salt"]), int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("its SCRAM message answers another client's")
        if iterations < ITERATIONS_MIN:
            raise ScramError(
                f"it asks for {iterations} SCRAM iterations, and a password that is worth so little work could be"
                f" guessed from the answer; {ITERATIONS_MIN} are the least"
            )
        if iterations > self._iterations_max:
            raise ScramError(
                f"it asks for {iterations} SCRAM iterations; {self._iterations_max} are the most we compute"
            )
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = _mac(self._mechanism, salted, b"Client Key")
        without_proof = f"c={_base64(b'n,,')},r={nonce}"
        auth = b",".join((self._bare.encode(), server_first, without_proof.encode()))
        proof = _xor(client_key, _mac(self._mechanism, _digest(self._mechanism, client_key), auth))
        self._server_signature = _mac(self._mechanism, _mac(self._mechanism, salted, b"Server Key"), auth)
        return f"{without_proof},p={_base64(proof)}".encode()

    def check(self, server_final: bytes) -> None:
        """Raises ScramError unless the server has proved that it knows the password's credential."""
        refusal = _SERVER_ERROR.fullmatch(server_final)
        if refusal is not None:
            raise ScramError(f"it ends SCRAM with the error {refusal['error'].decode()}")
        expected = f"v={_base64(self._server_signature)}".encode()
        if not self._server_signature or not hmac.compare_digest(server_final.partition(b",")[0], expected):
            raise ScramError("it did not prove that it knows the password")
