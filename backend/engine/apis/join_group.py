"""JoinGroup (11), versions 0-9: becomes or stays a member of a classic group; answered when the rebalance ends.

KIP-62 (rebalance time-out, version 1), KIP-394 (member id first, 4), KIP-345 (static members, 5), KIP-559 (protocol in
the answer, 7), KIP-814 (skip assignment, 9).
Kafka: `KafkaApis.handleJoinGroupRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.coordinator.group.classic.classic_group import JoinResult
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 11
MIN_VERSION: Final = 0
MAX_VERSION: Final = 9
FIRST_REBALANCE_TIMEOUT: Final = 1
FIRST_KNOWN_MEMBER: Final = 4
FIRST_NULL_PROTOCOL: Final = 7
FIRST_SKIP_ASSIGNMENT: Final = 9

_Member = m.JoinGroupResponse.Members


class JoinGroupServices(Protocol):
    """The parts of the node that these functions use."""

    group_coordinator: GroupCoordinator


def join_group(
    services: JoinGroupServices, context: RequestContext, request: m.JoinGroupRequest
) -> m.JoinGroupResponse | Awaitable[m.JoinGroupResponse]:
    """The generation, and for its leader all members."""
    version = context.api_version
    timeout_ms = request.rebalance_timeout_ms if version >= FIRST_REBALANCE_TIMEOUT else request.session_timeout_ms
    try:
        waiting = services.group_coordinator.join(
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            protocol_type=request.protocol_type,
            protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
            requires_known_member=version >= FIRST_KNOWN_MEMBER,
            may_skip_assignment=version >= FIRST_SKIP_ASSIGNMENT,
        )
    except KafkaError as error:
        return _response(JoinResult(error.code, request.member_id), version)
    if waiting.done():
        return _response(waiting.result(), version)

    async def respond() -> m.JoinGroupResponse:
        return _response(await waiting, version)

    return respond()


def _response(result: JoinResult, version: int) -> m.JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < FIRST_NULL_PROTOCOL:
        protocol_name = ""
    return m.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            _Member(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in result.members
        ],
    )


def on_error(request: m.JoinGroupRequest, api_version: int, code: int, message: str) -> m.JoinGroupResponse:
    """The answer when the handler failed."""
    return _response(JoinResult(ErrorCode(code), request.member_id), api_version)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, join_group, on_error=on_error),)
