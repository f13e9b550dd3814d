"""AlterPartitionReassignments (45), versions 0-1, and ListPartitionReassignments (46), version 0 (KIP-455, KIP-860).

Kafka: `ControllerApis.handleAlterPartitionReassignments`, `handleListPartitionReassignments`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.partition.partition_reassignment import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m

ALTER_KEY: Final = 45
LIST_KEY: Final = 46


class ReassignmentsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    ports: Ports
    controller_channel: ControllerChannel
    controller: Controller | None


async def alter_on_broker(
    services: ReassignmentsServices, context: RequestContext, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    """The controller's answer."""
    return await forward(services, context, request, m.AlterPartitionReassignmentsResponse)


async def alter_on_controller(
    services: ReassignmentsServices, context: RequestContext, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    """See `controller.commands.partition.partition_reassignment`."""
    command = partial(alter_partition_reassignments, request=request, config=services.config)
    return await carried_out(services, "alter partition reassignments", command, by_worker=True)


async def list_on_broker(
    services: ReassignmentsServices, context: RequestContext, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    """The controller's answer: what it lists is newer than what this broker knows."""
    return await forward(services, context, request, m.ListPartitionReassignmentsResponse)


async def list_on_controller(
    services: ReassignmentsServices, context: RequestContext, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    """In turn with the changes, so that one that was answered is seen."""

    def command(image: MetadataImage) -> ControllerResult[m.ListPartitionReassignmentsResponse]:
        return ControllerResult((), list_partition_reassignments(image, request))

    return await carried_out(services, "list partition reassignments", command, by_worker=True)


APIS: Final = (
    Api(ALTER_KEY, 0, 1, alter_on_broker, BROKER),
    Api(ALTER_KEY, 0, 1, alter_on_controller, CONTROLLER),
    Api(LIST_KEY, 0, 0, list_on_broker, BROKER),
    Api(LIST_KEY, 0, 0, list_on_controller, CONTROLLER),
)
