"""The cost of a request for its client, and the time that the client must wait for it (Kafka: `RequestHandlerHelper`).

The waiting time goes into the answer, which is sent at once; then the connection is not read for so long (KIP-219).
"""

from __future__ import annotations

from typing import Any, Final

from backend.engine.apis.api_declaration import RequestContext
from backend.engine.apis.services import Services
from backend.protocol import messages as m
from backend.protocol.messages import Message

PRODUCE: Final = 0
# Requests between brokers are not throttled and count against no client (sendResponseExemptThrottle).
WRITE_TXN_MARKERS: Final = 27


def charge(
    services: Services,
    context: RequestContext,
    request: Message,
    message: Message | None,
    *,
    frame_bytes: int,
    spent_ms: float,
) -> int:
    """Counts the request, writes the throttle time into its answer, and returns it in milliseconds.

    A time that is in the answer already, for fetched bytes or mutations, stays when it is longer.
    """
    if _between_brokers(request):
        return 0
    quotas, image = services.client_quotas, services.metadata.image
    user, client_id = context.user, context.client_id
    now_ms = services.ports.clock.monotonic_ms()
    throttle_ms = 0
    if request.API_KEY == PRODUCE:
        throttle_ms = quotas.record_bytes(image, "producer_byte_rate", user, client_id, frame_bytes, now_ms)
    # Without an answer (acks=0) the client would not know.
    if message is not None:
        response: Any = message
        spent = quotas.record_time(image, user, client_id, spent_ms, now_ms)
        throttle_ms = max(throttle_ms, spent, getattr(response, "throttle_time_ms", 0))
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
    return throttle_ms


def _between_brokers(request: Message) -> bool:
    if isinstance(request, m.FetchRequest):
        return request.replica_id >= 0 or request.replica_state.replica_id >= 0
    return request.API_KEY == WRITE_TXN_MARKERS
