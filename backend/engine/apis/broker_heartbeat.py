"""BrokerHeartbeat (63), versions 0-2: a broker is alive, wants to serve, or wants to go (KIP-631).

Kafka: `ControllerApis.handleBrokerHeartBeatRequest`.
"""

from __future__ import annotations

from typing import Final

from backend.engine.apis.api_declaration import CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import CommandServices
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 63


async def broker_heartbeat(
    services: CommandServices, context: RequestContext, request: m.BrokerHeartbeatRequest
) -> m.BrokerHeartbeatResponse:
    """See `controller.commands.brokers`."""
    if services.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {services.node_id} has no controller role")
    return await services.controller.heartbeat(request)


APIS: Final = (Api(API_KEY, 0, 2, broker_heartbeat, CONTROLLER),)
