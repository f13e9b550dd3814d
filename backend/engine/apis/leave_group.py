"""LeaveGroup (13), versions 0-5: members leave at once; many, and static ones by name, from version 3 (KIP-345).

Kafka: `KafkaApis.handleLeaveGroupRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.ports.time_slices import TimeSlicer, in_parts
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError

API_KEY: Final = 13
MIN_VERSION: Final = 0
MAX_VERSION: Final = 5
FIRST_BATCHED: Final = 3

# More than any group's members that are removed at once; each part is one change of the group.
MEMBERS_AT_A_TIME: Final = 2_000

_Member = m.LeaveGroupResponse.Members


class LeaveGroupServices(Protocol):
    """The parts of the node that these functions use."""

    group_coordinator: GroupCoordinator
    time_slicer: TimeSlicer


async def leave_group(
    services: LeaveGroupServices, context: RequestContext, request: m.LeaveGroupRequest
) -> m.LeaveGroupResponse:
    """One code for each member; before version 3 the only one at the top."""
    batched = context.api_version >= FIRST_BATCHED
    leaving: list[tuple[str, str | None]] = (
        [(member.member_id, member.group_instance_id) for member in request.members]
        if batched
        else [(request.member_id, None)]
    )
    errors: list[int] = []
    time_slice = services.time_slicer.time_slice()
    try:
        for some in in_parts(leaving, MEMBERS_AT_A_TIME):
            errors += await services.group_coordinator.leave(request.group_id, some)
            await time_slice.step()
    except KafkaError as error:
        return m.LeaveGroupResponse(error_code=error.code)
    if not batched:
        return m.LeaveGroupResponse(error_code=errors[0])
    return m.LeaveGroupResponse(
        members=[
            _Member(member_id=member_id, group_instance_id=instance_id, error_code=error)
            for (member_id, instance_id), error in zip(leaving, errors, strict=True)
        ]
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, leave_group),)
