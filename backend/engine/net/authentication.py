"""The server's side of SASL on one connection: SaslHandshake, SaslAuthenticate (KIP-152, KIP-368).

It decides which request may come when and how a failure is answered: in words that do not show whether a user exists.
With SCRAM the step that fails shows it, as in Kafka: an unknown user's exchange ends with its first message. Before
success only ApiVersions is served beside them.
Kafka: `SaslServerAuthenticator`, `PlainSaslServer`, `ScramSaslServer`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from backend.engine.apis import api_versions
from backend.engine.config.listener_security import PLAIN, SaslServerSettings
from backend.protocol import codec, frames
from backend.protocol import messages as m
from backend.protocol.buffers import Chunk
from backend.protocol.errors import DecodeError, ErrorCode
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message
from backend.protocol.scram import ClientFirst, ScramCredential, ScramError, ScramServer

HANDSHAKE_KEY: Final = 17
AUTHENTICATE_KEY: Final = 36
HANDSHAKE_VERSION_MAX: Final = 1
AUTHENTICATE_VERSION_MAX: Final = 2
# From the connection's start to success; a peer that is slower holds a descriptor for nothing.
LOGIN_MS_MAX: Final = 30_000
# KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS.
REAUTH_INTERVAL_MS: Final = 1000

Credentials = Callable[[str, str], ScramCredential | None]


class AuthenticationFailed(Exception):
    """The connection must be closed, after a pause, with this answer; the text is for the log."""

    def __init__(self, reason: str, response: Message | None = None, *, illegal_state: bool = False) -> None:
        """`illegal_state` asks the caller, which alone knows the answer's form, for ILLEGAL_SASL_STATE."""
        super().__init__(reason)
        self.response = response
        self.illegal_state = illegal_state


class _Refused(Exception):
    """A mechanism does not accept the client; `client_text` is for the client, the exception's text for the log."""

    def __init__(self, reason: str, client_text: str | None = None) -> None:
        super().__init__(reason)
        self.client_text = client_text


class _Mechanism(Protocol):
    """The server's side of one exchange; `user` is set once it is complete."""

    user: str | None

    def evaluate(self, token: bytes) -> bytes:
        """The next token for the client. _Refused, ScramError."""
        ...


class _State(Enum):
    REQUEST = 1  # ApiVersions or SaslHandshake
    HANDSHAKE = 2  # after ApiVersions
    TOKENS = 3
    DONE = 4


class Authentication:
    """One connection's authentication, and every later one on it."""

    def __init__(
        self,
        settings: SaslServerSettings,
        credentials: Credentials,
        nonce: Callable[[], str],
        now_ms: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._nonce = nonce
        self._now_ms = now_ms
        self._state = _State.REQUEST
        # Version 0 of the handshake: tokens come without Kafka's headers.
        self._bare_tokens = False
        self._mechanism_name = ""
        self._wrong_mechanism: str | None = None
        self._mechanism: _Mechanism | None = None
        self._user: str | None = None
        self._expires_ms: float | None = None
        self._last_reauth_ms: float | None = None

    @property
    def done(self) -> bool:
        """Whether the client may send any request. Not while it authenticates again."""
        return self._state is _State.DONE

    @property
    def user(self) -> str | None:
        """The user that has authenticated."""
        return self._user

    @property
    def expired(self) -> bool:
        """Whether the client would have had to authenticate again before its next request."""
        return self._expires_ms is not None and self._now_ms() > self._expires_ms

    # Before the first success: whole frames

    def on_frame(self, frame: bytearray, serve: Callable[[RequestHeader, Message], Message]) -> list[Chunk]:
        """The chunks to send. `serve` answers ApiVersions. AuthenticationFailed; DecodeError if it is no request."""
        if self._state is _State.TOKENS and self._bare_tokens:
            try:
                token = self._evaluate(bytes(frame))
            except AuthenticationFailed as failed:
                # Tokens without headers have no form for an error.
                raise AuthenticationFailed(str(failed)) from None
            return [len(token).to_bytes(4, "big"), token]
        header, position = frames.decode_request_header(frame)
        response = self._respond(header, frame, position, serve)
        version = 0 if _unsupported_api_versions(header) else header.api_version
        return list(frames.encode_response(response, version, header.correlation_id))

    def _respond(
        self, header: RequestHeader, frame: bytearray, position: int, serve: Callable[[RequestHeader, Message], Message]
    ) -> Message:
        if header.api_key == HANDSHAKE_KEY and self._state is not _State.TOKENS:
            return self.handshake(_request(m.SaslHandshakeRequest, header, HANDSHAKE_VERSION_MAX, frame, position),
                                  header.api_version)  # fmt: skip
        if header.api_key == AUTHENTICATE_KEY and self._state is _State.TOKENS:
            return self.authenticate(
                _request(m.SaslAuthenticateRequest, header, AUTHENTICATE_VERSION_MAX, frame, position)
            )
        if header.api_key == api_versions.API_KEY and self._state is _State.REQUEST:
            if _unsupported_api_versions(header):
                return api_versions.unsupported_version()
            response = serve(header, _request(m.ApiVersionsRequest, header, header.api_version, frame, position))
            if isinstance(response, m.ApiVersionsResponse) and not response.error_code:
                self._state = _State.HANDSHAKE
            return response
        exchanging = self._state is _State.TOKENS
        during = "authentication" if exchanging else "handshake"
        raise AuthenticationFailed(f"API key {header.api_key} came during the SASL {during}", illegal_state=exchanging)

    # Requests, also of a later authentication

    def may_begin_again(self) -> bool:
        """Whether a SaslHandshake now begins a new authentication, and that it does (KIP-368)."""
        now_ms = self._now_ms()
        if self._expires_ms is None or self._state is not _State.DONE:
            return False
        if self._last_reauth_ms is not None and now_ms - self._last_reauth_ms < REAUTH_INTERVAL_MS:
            return False
        self._last_reauth_ms = now_ms
        self._state = _State.HANDSHAKE
        return True

    def handshake(self, request: m.SaslHandshakeRequest, version: int) -> m.SaslHandshakeResponse:
        """The mechanism is chosen. AuthenticationFailed for one that is not enabled."""
        mechanisms = list(self._settings.mechanisms)
        if request.mechanism not in mechanisms:
            response = m.SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
            # A client that authenticates again gets no answer, as in Kafka.
            raise AuthenticationFailed(
                "the client asked for a SASL mechanism that is not enabled", response if self._user is None else None
            )
        # A change of the mechanism is refused with the next request, as in Kafka.
        changed = self._user is not None and request.mechanism != self._mechanism_name
        self._wrong_mechanism = request.mechanism if changed else None
        if not changed:
            self._mechanism_name = request.mechanism
        self._mechanism = (
            _Plain(self._settings.plain_users)
            if request.mechanism == PLAIN
            else _Scram(request.mechanism, self._credentials, self._nonce())
        )
        self._bare_tokens = version == 0
        self._state = _State.TOKENS
        return m.SaslHandshakeResponse(mechanisms=mechanisms)

    def authenticate(self, request: m.SaslAuthenticateRequest) -> m.SaslAuthenticateResponse:
        """One token of the exchange. AuthenticationFailed when the client is not who it says."""
        token = self._evaluate(bytes(request.auth_bytes))
        lifetime_ms = self._settings.max_reauth_ms[self._mechanism_name] if self.done else 0
        return m.SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)

    def _evaluate(self, token: bytes) -> bytes:
        mechanism, name = self._mechanism, self._mechanism_name
        assert mechanism is not None, "tokens follow a handshake"
        if self._wrong_mechanism is not None:
            raise AuthenticationFailed(
                f"the mechanism changed from {name} to {self._wrong_mechanism} with a later authentication"
            )
        again = "re-authentication" if self._user is not None else "authentication"
        generic = f"Authentication failed during {again} due to invalid credentials with SASL mechanism {name}"
        try:
            response = mechanism.evaluate(token)
            if mechanism.user is not None and self._user not in (None, mechanism.user):
                client_text = (
                    f"Cannot change principals during re-authentication from User.{self._user}: User.{mechanism.user}"
                )
                raise _Refused("another user", client_text)
        except (_Refused, ScramError) as refused:
            client_text = getattr(refused, "client_text", None) or generic
            raise AuthenticationFailed(
                f"{again} with {name} failed: {refused}",
                m.SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=client_text),
            ) from None
        if mechanism.user is not None:
            self._succeed(mechanism.user)
        return response

    def _succeed(self, user: str) -> None:
        self._user = user
        self._mechanism = None
        self._state = _State.DONE
        lifetime_ms = self._settings.max_reauth_ms[self._mechanism_name]
        self._expires_ms = self._now_ms() + lifetime_ms if lifetime_ms else None


def _unsupported_api_versions(header: RequestHeader) -> bool:
    return header.api_key == api_versions.API_KEY and header.api_version > api_versions.MAX_VERSION


def _request(cls: type[Any], header: RequestHeader, version_max: int, frame: bytearray, position: int) -> Any:
    if header.api_version > version_max:
        raise DecodeError(f"{cls.__name__} is served in versions 0 to {version_max}, not {header.api_version}")
    message, _ = codec.decode(cls, header.api_version, frame, position)
    return message


class _Plain:
    """PLAIN (RFC 4616): one token with name and password, both checked in constant time."""

    def __init__(self, users: dict[str, str]) -> None:
        self._users = users
        self.user: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3:
            client_text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise _Refused(f"{len(parts)} parts instead of 3", client_text)
        authorization_id, name, password = parts
        if not name:
            raise _Refused("no name", "Authentication failed: username not specified")
        if not password:
            raise _Refused("no password", "Authentication failed: password not specified")
        stored = self._users.get(name.decode(errors="replace"))
        # An unknown name takes as long as a wrong password.
        equal = hmac.compare_digest((stored or "").encode(), password)
        if stored is None or not equal:
            raise _Refused("wrong name or password", "Authentication failed: Invalid username or password")
        if authorization_id not in (b"", name):
            raise _Refused("another authorization id", _OTHER_IDENTITY)
        self.user = name.decode()
        return b""


_OTHER_IDENTITY: Final = "Authentication failed: Client requested an authorization id that is different from username"


class _Scram:
    """SCRAM with a credential of the cluster's metadata."""

    def __init__(self, mechanism: str, credentials: Credentials, nonce: str) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._nonce = nonce
        self._name = ""
        self._exchange: ScramServer | None = None
        self.user: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self._exchange is None:
            first = ClientFirst.parse(token)
            stored = self._credentials(self._mechanism, first.username)
            if stored is None:
                raise _Refused("no such user")
            if first.authorization_id not in ("", first.username):
                raise _Refused("another authorization id", _OTHER_IDENTITY)
            self._name = first.username
            self._exchange = ScramServer(self._mechanism, first, stored, self._nonce)
            return self._exchange.first_message
        last = self._exchange.finish(token)
        self.user = self._name
        return last
