"""Nodes introduce themselves to the controller: BrokerRegistration (62), versions 0-4, and ControllerRegistration (70).

With them UnregisterBroker (64), which forgets a broker (KIP-631, KIP-919).
Kafka: `ControllerApis.handleBrokerRegistration`, `handleControllerRegistration`, `handleUnregisterBroker`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.brokers import unregister_broker
from backend.engine.controller.commands.cluster_bootstrap import register_controller
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

BROKER_KEY: Final = 62
UNREGISTER_KEY: Final = 64
CONTROLLER_KEY: Final = 70


class BrokerRegistrationServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    ports: Ports
    controller_channel: ControllerChannel
    controller: Controller | None


async def register_broker(
    services: BrokerRegistrationServices, context: RequestContext, request: m.BrokerRegistrationRequest
) -> m.BrokerRegistrationResponse:
    """See `controller.commands.brokers`."""
    if services.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {services.node_id} has no controller role")
    return await services.controller.register_broker(request)


async def register_controller_node(
    services: BrokerRegistrationServices, context: RequestContext, request: m.ControllerRegistrationRequest
) -> m.ControllerRegistrationResponse:
    """See `controller.commands.cluster_bootstrap`."""
    return await carried_out(
        services, "register controller", partial(register_controller, request=request), by_worker=True
    )


async def unregister_on_broker(
    services: BrokerRegistrationServices, context: RequestContext, request: m.UnregisterBrokerRequest
) -> m.UnregisterBrokerResponse:
    """The controller's answer."""
    return await forward(services, context, request, m.UnregisterBrokerResponse)


async def unregister_on_controller(
    services: BrokerRegistrationServices, context: RequestContext, request: m.UnregisterBrokerRequest
) -> m.UnregisterBrokerResponse:
    """See `controller.commands.brokers`."""
    command = partial(unregister_broker, request=request, config=services.config)
    return await carried_out(services, "unregister broker", command)


APIS: Final = (
    Api(BROKER_KEY, 0, 4, register_broker, CONTROLLER),
    Api(CONTROLLER_KEY, 0, 0, register_controller_node, CONTROLLER),
    Api(UNREGISTER_KEY, 0, 0, unregister_on_broker, BROKER),
    Api(UNREGISTER_KEY, 0, 0, unregister_on_controller, CONTROLLER),
)
