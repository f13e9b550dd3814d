"""AssignReplicasToDirs (73), version 0: where a broker's replicas lie, and which of them it cannot use (KIP-858).

Kafka: `ControllerApis.handleAssignReplicasToDirs`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.partition.replica_directories import assign_replicas_to_dirs
from backend.engine.controller.quorum_controller import Controller
from backend.protocol import messages as m

API_KEY: Final = 73


class AssignReplicasToDirsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    controller: Controller | None


async def on_controller(
    services: AssignReplicasToDirsServices, context: RequestContext, request: m.AssignReplicasToDirsRequest
) -> m.AssignReplicasToDirsResponse:
    """See `controller.commands.partition.replica_directories`."""
    command = partial(assign_replicas_to_dirs, request=request, config=services.config)
    return await carried_out(services, "assign replicas to directories", command, by_worker=True)


APIS: Final = (Api(API_KEY, 0, 0, on_controller, CONTROLLER),)
