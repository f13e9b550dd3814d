"""AllocateProducerIds (67), version 0: a block of producer ids for a broker (KIP-730).

Kafka: `ControllerApis.handleAllocateProducerIdsRequest`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from backend.engine.apis.api_declaration import CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import CommandServices, carried_out
from backend.engine.controller.commands.producer_id_control import allocate_producer_ids
from backend.protocol import messages as m

API_KEY: Final = 67


async def on_controller(
    services: CommandServices, context: RequestContext, request: m.AllocateProducerIdsRequest
) -> m.AllocateProducerIdsResponse:
    """See `controller.commands.producer_id_control`."""
    return await carried_out(services, "allocate producer ids", partial(allocate_producer_ids, request=request))


APIS: Final = (Api(API_KEY, 0, 0, on_controller, CONTROLLER),)
