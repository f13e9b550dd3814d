"""AlterPartition (56), versions 2-3: a leader's new ISR (KIP-497, KIP-841, KIP-903).

Kafka: `ControllerApis.handleAlterPartitionRequest`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.partition.isr_change import alter_partition
from backend.engine.controller.quorum_controller import Controller
from backend.protocol import messages as m

API_KEY: Final = 56


class AlterPartitionServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    controller: Controller | None


async def on_controller(
    services: AlterPartitionServices, context: RequestContext, request: m.AlterPartitionRequest
) -> m.AlterPartitionResponse:
    """See `controller.commands.partition.isr_change`."""
    command = partial(alter_partition, request=request, config=services.config, version=context.api_version)
    return await carried_out(services, "alter partition", command)


APIS: Final = (Api(API_KEY, 2, 3, on_controller, CONTROLLER),)
