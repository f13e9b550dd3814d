"""Heartbeat (12), versions 0-4: a member of a classic group is alive, and learns of a rebalance.

Kafka: `KafkaApis.handleHeartbeatRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 12
MIN_VERSION: Final = 0
MAX_VERSION: Final = 4


class HeartbeatServices(Protocol):
    """The parts of the node that these functions use."""

    group_coordinator: GroupCoordinator


def heartbeat(services: HeartbeatServices, context: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
    """NONE, REBALANCE_IN_PROGRESS, or why the member is none any more."""
    try:
        error = services.group_coordinator.heartbeat(
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
        )
    except KafkaError as refused:
        # While the group is being read its members are as good as alive.
        loading = refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        error = ErrorCode.NONE if loading else refused.code
    return m.HeartbeatResponse(error_code=error)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, heartbeat),)
