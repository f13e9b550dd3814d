"""DescribeCluster (60), versions 0-2: brokers on brokers' listeners, controllers on theirs (KIP-700, KIP-919).

Kafka: `KafkaApis.handleDescribeCluster`, `ControllerApis.handleDescribeCluster`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support import authorized_operations
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 60
BROKERS: Final = 1
CONTROLLERS: Final = 2
_NAMES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}

_Node = m.DescribeClusterResponse.Brokers


def refusal(endpoint_type: int, served: int, version: int) -> m.DescribeClusterResponse | None:
    """The answer to a request for nodes that this listener does not list, or None."""
    if endpoint_type == served:
        return None
    if endpoint_type not in _NAMES:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    else:
        code = ErrorCode.INVALID_REQUEST if version == 0 else ErrorCode.MISMATCHED_ENDPOINT_TYPE
        text = (
            f"The request was sent to an endpoint of type {_NAMES[served]}, but we wanted an endpoint of type"
            f" {_NAMES[endpoint_type]}"
        )
    return m.DescribeClusterResponse(error_code=code, error_message=text)


class DescribeClusterServices(Protocol):
    """The parts of the node that these functions use."""

    cluster_id: str
    ports: Ports
    metadata: MetadataCache
    controller: Controller | None


def on_broker(
    services: DescribeClusterServices, context: RequestContext, request: m.DescribeClusterRequest
) -> m.DescribeClusterResponse:
    """Brokers that serve this listener; fenced ones too when they are asked for."""
    refused = refusal(request.endpoint_type, BROKERS, context.api_version)
    if refused is not None:
        return refused
    image = services.metadata.image
    response = _response(services, BROKERS)
    alive = []
    for broker in sorted(image.brokers.values(), key=lambda broker: broker.id):
        endpoint = broker.endpoint(context.listener_name)
        if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
            continue
        if not broker.fenced:
            alive.append(broker.id)
        response.brokers.append(
            _Node(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    response.controller_id = alive[services.ports.random.randrange(len(alive))] if alive else -1
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations.CLUSTER
    return response


def on_controller(
    services: DescribeClusterServices, context: RequestContext, request: m.DescribeClusterRequest
) -> m.DescribeClusterResponse:
    """Controllers that serve this listener."""
    refused = refusal(request.endpoint_type, CONTROLLERS, context.api_version)
    if refused is not None:
        return refused
    response = _response(services, CONTROLLERS)
    controller = services.controller
    if controller is not None:
        response.controller_id = controller.raft.leader_id
        for node in sorted(controller.image.controllers.values(), key=lambda node: node.id):
            for endpoint in node.endpoints:
                if endpoint.name == context.listener_name:
                    response.brokers.append(_Node(broker_id=node.id, host=endpoint.host, port=endpoint.port, rack=None))
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations.CLUSTER
    return response


def _response(services: DescribeClusterServices, endpoint_type: int) -> m.DescribeClusterResponse:
    return m.DescribeClusterResponse(
        error_message=None, endpoint_type=endpoint_type, cluster_id=services.cluster_id, controller_id=-1
    )


APIS: Final = (Api(API_KEY, 0, 2, on_broker, BROKER), Api(API_KEY, 0, 2, on_controller, CONTROLLER))
