"""AddRaftVoter (80), versions 0-1, and RemoveRaftVoter (81), version 0 (KIP-853). Brokers send them on.

The voters stand in `controller.quorum.voters`, so `kraft.version` is 0 for good and the active controller refuses both
as Apache Kafka does then: what is wrong with the request itself comes first.
Kafka: `KafkaRaftClient.handleAddVoterRequest`, `handleRemoveVoterRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.config.listeners import controller_listener_names
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

ADD_KEY: Final = 80
REMOVE_KEY: Final = 81
_NO_DIRECTORY: Final = bytes(16)
_NOT_LEADER_TEXT: Final = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
    "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
    "partition."
)


class RaftVotersServices(Protocol):
    """The parts of the node that these functions use."""

    cluster_id: str
    config: BrokerConfig
    ports: Ports
    controller_channel: ControllerChannel
    controller: Controller | None


async def add_on_broker(
    services: RaftVotersServices, context: RequestContext, request: m.AddRaftVoterRequest
) -> m.AddRaftVoterResponse:
    """The controller's answer."""
    return await forward(services, context, request, m.AddRaftVoterResponse)


async def remove_on_broker(
    services: RaftVotersServices, context: RequestContext, request: m.RemoveRaftVoterRequest
) -> m.RemoveRaftVoterResponse:
    """The controller's answer."""
    return await forward(services, context, request, m.RemoveRaftVoterResponse)


def add_on_controller(
    services: RaftVotersServices, _context: RequestContext, request: m.AddRaftVoterRequest
) -> m.AddRaftVoterResponse:
    """Why no voter is added."""
    refusal = (
        _not_for_this_node(services, request.cluster_id)
        or _no_voter("Add", request.voter_id, request.voter_directory_id)
        or _no_endpoint(controller_listener_names(services.config)[0], request.listeners)
        or _static("adding")
    )
    return m.AddRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)


def remove_on_controller(
    services: RaftVotersServices, _context: RequestContext, request: m.RemoveRaftVoterRequest
) -> m.RemoveRaftVoterResponse:
    """Why no voter is removed."""
    refusal = (
        _not_for_this_node(services, request.cluster_id)
        or _no_voter("Remove", request.voter_id, request.voter_directory_id)
        or _static("removing")
    )
    return m.RemoveRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)


def _not_for_this_node(services: RaftVotersServices, cluster_id: str | None) -> KafkaError | None:
    if cluster_id is not None and cluster_id != services.cluster_id:
        text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{services.cluster_id}"'
        return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    controller = services.controller
    if controller is None or not controller.raft.is_leader:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOT_LEADER_TEXT)
    return None


def _no_voter(what: str, voter_id: int, directory_id: bytes) -> KafkaError | None:
    if voter_id >= 0 and bytes(directory_id) != _NO_DIRECTORY:
        return None
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{what} voter request didn't include a valid voter")


def _no_endpoint(listener_name: str, listeners: Iterable[m.AddRaftVoterRequest.Listeners]) -> KafkaError | None:
    """A voter must be reachable where the others look for voters: at the first of the controllers' listeners."""
    endpoints = {listener.name.upper(): f"{listener.host}/<unresolved>:{listener.port}" for listener in listeners}
    if listener_name in endpoints:
        return None
    shown = ", ".join(f"ListenerName({name})={address}" for name, address in endpoints.items())
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{shown}}})) for the default listener"
        f" ListenerName({listener_name})",
    )


def _static(what: str) -> KafkaError:
    text = f"Cluster doesn't support {what} voter because the kraft.version feature is 0"
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)


APIS: Final = (
    Api(ADD_KEY, 0, 1, add_on_broker, BROKER),
    Api(ADD_KEY, 0, 1, add_on_controller, CONTROLLER),
    Api(REMOVE_KEY, 0, 0, remove_on_broker, BROKER),
    Api(REMOVE_KEY, 0, 0, remove_on_controller, CONTROLLER),
)
