"""The client's side of SASL between nodes: SaslHandshake and SaslAuthenticate (KIP-152, KIP-368)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from backend.engine.config.listener_security import PLAIN, SaslClientSettings
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from backend.protocol.scram import ScramClient, ScramError

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2

# A request of a version to its answer.
Exchange = Callable[[Message, int], Awaitable[Message]]


async def authenticate(settings: SaslClientSettings, nonce: str, exchange: Exchange) -> int:
    """The session's lifetime in ms, 0 for ever. KafkaError SASL_AUTHENTICATION_FAILED or UNSUPPORTED_SASL_MECHANISM."""
    chosen: Any = await exchange(m.SaslHandshakeRequest(mechanism=settings.mechanism), HANDSHAKE_VERSION)
    if chosen.error_code:
        raise KafkaError(
            ErrorCode(chosen.error_code),
            f"mechanism {settings.mechanism} was refused; the other side has {', '.join(chosen.mechanisms) or 'none'}",
        )

    async def send(token: bytes) -> m.SaslAuthenticateResponse:
        reply: Any = await exchange(m.SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
        if reply.error_code:
            raise KafkaError(ErrorCode(reply.error_code), reply.error_message or "the other side gave no reason")
        response: m.SaslAuthenticateResponse = reply
        return response

    if settings.mechanism == PLAIN:
        last = await send(b"\0" + settings.username.encode() + b"\0" + settings.password.encode())
        return last.session_lifetime_ms
    scram = ScramClient(settings.mechanism, settings.username, settings.password, nonce)
    try:
        first = await send(scram.first_message)
        last = await send(scram.respond(bytes(first.auth_bytes)))
        scram.check(bytes(last.auth_bytes))
    except ScramError as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from error
    return last.session_lifetime_ms
