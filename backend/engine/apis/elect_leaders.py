"""ElectLeaders (43), versions 0-2 (KIP-183, KIP-460). Brokers send it on to the controller.

Kafka: `ControllerApis.handleElectLeaders`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.partition.elections import elect_leaders, leaderless_in_request
from backend.engine.controller.commands.partition.recovery_verdict import (
    LogEndReader,
    LogEndsByPartition,
    logs_of_live_replicas,
)
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m

API_KEY: Final = 43

_Result = m.ElectLeadersResponse.ReplicaElectionResults


class ElectLeadersServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    ports: Ports
    controller_channel: ControllerChannel
    controller: Controller | None
    log_ends: LogEndReader | None


async def on_broker(
    services: ElectLeadersServices, context: RequestContext, request: m.ElectLeadersRequest
) -> m.ElectLeadersResponse:
    """The controller's answer."""
    return await forward(services, context, request, m.ElectLeadersResponse)


async def on_controller(
    services: ElectLeadersServices, context: RequestContext, request: m.ElectLeadersRequest
) -> m.ElectLeadersResponse:
    """See `controller.commands.partition.elections`. An unclean election takes the best log, so live replicas are asked
    first.
    """
    controller, ends = services.controller, services.log_ends
    log_ends: LogEndsByPartition = {}
    if ends is not None and controller is not None and controller.is_active:
        image = controller.image
        log_ends = await ends.ask(image, logs_of_live_replicas(image, leaderless_in_request(image, request)))
    command = partial(elect_leaders, request=request, config=services.config, log_ends=log_ends)
    return await carried_out(services, "elect leaders", command, by_worker=True)


def on_error(request: m.ElectLeadersRequest, version: int, code: int, message: str) -> m.ElectLeadersResponse:
    """Every partition with the error; version 1 and later also as a whole."""
    return m.ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            _Result(
                topic=topic.topic,
                partition_result=[
                    _Result.PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


APIS: Final = (
    Api(API_KEY, 0, 2, on_broker, BROKER, on_error=on_error),
    Api(API_KEY, 0, 2, on_controller, CONTROLLER, on_error=on_error),
)
