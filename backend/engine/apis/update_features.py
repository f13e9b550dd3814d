"""UpdateFeatures (57), versions 0-2 (KIP-584, KIP-778, KIP-1022). Brokers send it on to the controller.

Kafka: `ControllerApis.handleUpdateFeatures`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.feature_control import update_features
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m

API_KEY: Final = 57


class UpdateFeaturesServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    ports: Ports
    controller_channel: ControllerChannel
    controller: Controller | None


async def on_broker(
    services: UpdateFeaturesServices, context: RequestContext, request: m.UpdateFeaturesRequest
) -> m.UpdateFeaturesResponse:
    """The controller's answer."""
    return await forward(services, context, request, m.UpdateFeaturesResponse)


async def on_controller(
    services: UpdateFeaturesServices, context: RequestContext, request: m.UpdateFeaturesRequest
) -> m.UpdateFeaturesResponse:
    """See `controller.commands.feature_control`."""
    command = partial(update_features, request=request, config=services.config, version=context.api_version)
    return await carried_out(services, "update features", command, by_worker=True)


APIS: Final = (Api(API_KEY, 0, 2, on_broker, BROKER), Api(API_KEY, 0, 2, on_controller, CONTROLLER))
