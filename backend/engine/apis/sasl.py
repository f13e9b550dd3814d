"""SaslHandshake (17), versions 0-1, and SaslAuthenticate (36), versions 0-2, on a listener without SASL: refused.

Facts of `KafkaApis.handleSaslHandshakeRequest` and `handleSaslAuthenticateRequest`. Gap: no SASL listener yet.
"""

from __future__ import annotations

from typing import Final

from backend.engine.apis.context import BOTH, Api, RequestContext
from backend.engine.apis.services import Services
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode


def sasl_handshake(
    services: Services, context: RequestContext, request: m.SaslHandshakeRequest
) -> m.SaslHandshakeResponse:
    """ILLEGAL_SASL_STATE: this connection needs no authentication."""
    return m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(
    services: Services, context: RequestContext, request: m.SaslAuthenticateRequest
) -> m.SaslAuthenticateResponse:
    """ILLEGAL_SASL_STATE: this connection counts as authenticated from its start."""
    return m.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


APIS: Final = (Api(17, 0, 1, sasl_handshake, BOTH), Api(36, 0, 2, sasl_authenticate, BOTH))
