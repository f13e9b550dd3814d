"""SaslHandshake (17), versions 0-1, and SaslAuthenticate (36), versions 0-2, where there is nothing to authenticate.

On a SASL listener the connection itself answers both (`net.authentication`); these handlers get them on a listener
without SASL, and after success where no new authentication is due.
Kafka: `KafkaApis.handleSaslHandshakeRequest`, `KafkaApis.handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from typing import Final

from backend.engine.apis.api_declaration import BOTH, Api, RequestContext
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode


def sasl_handshake(
    services: object, context: RequestContext, request: m.SaslHandshakeRequest
) -> m.SaslHandshakeResponse:
    """ILLEGAL_SASL_STATE: this connection needs no authentication now."""
    return m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(
    services: object, context: RequestContext, request: m.SaslAuthenticateRequest
) -> m.SaslAuthenticateResponse:
    """ILLEGAL_SASL_STATE: this connection counts as authenticated from its start."""
    return m.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


APIS: Final = (Api(17, 0, 1, sasl_handshake, BOTH), Api(36, 0, 2, sasl_authenticate, BOTH))
