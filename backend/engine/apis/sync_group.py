"""SyncGroup (14), versions 0-5: the leader brings the assignments of a generation, every member gets its own.

Kafka: `KafkaApis.handleSyncGroupRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.coordinator.group.classic.classic_group import SyncResult
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 14
MIN_VERSION: Final = 0
MAX_VERSION: Final = 5
# From here on a member says which protocol it believes in (KIP-559).
FIRST_WITH_PROTOCOL: Final = 5


class SyncGroupServices(Protocol):
    """The parts of the node that these functions use."""

    group_coordinator: GroupCoordinator


def sync_group(
    services: SyncGroupServices, context: RequestContext, request: m.SyncGroupRequest
) -> m.SyncGroupResponse | Awaitable[m.SyncGroupResponse]:
    """The member's assignment once the leader's are stored."""
    if context.api_version >= FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return _response(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    try:
        waiting = services.group_coordinator.sync(
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={assignment.member_id: bytes(assignment.assignment) for assignment in request.assignments},
        )
    except KafkaError as error:
        return _response(SyncResult(_error_for_clients(error.code)))
    if waiting.done():
        return _response(waiting.result())

    async def respond() -> m.SyncGroupResponse:
        return _response(await waiting)

    return respond()


def _error_for_clients(code: ErrorCode) -> ErrorCode:
    # Old clients take this code for fatal; joining again is what they should do (GroupCoordinatorService.syncGroup).
    return ErrorCode.REBALANCE_IN_PROGRESS if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code


def _response(result: SyncResult) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, sync_group),)
