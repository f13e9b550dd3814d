"""DescribeGroups (15), versions 0-6; ListGroups (16), 0-5; DeleteGroups (42), 0-2; OffsetDelete (47), 0.

Every group asked about gets one entry: an empty answer makes clients built on librdkafka abort. A group that does not
exist is described as Dead, from version 6 on with GROUP_ID_NOT_FOUND (KIP-1043).
Kafka: `KafkaApis.handleDescribeGroupsRequest`, `handleListGroupsRequest`, `handleDeleteGroupsRequest`,
`handleOffsetDeleteRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.support import authorized_operations
from backend.engine.apis.support.response_budget import ResponseBudget
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.group.classic.classic_group import Group, GroupState
from backend.engine.coordinator.group.consumer.consumer_group import ConsumerGroup
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.ports.time_slices import Steps, TimeSlicer
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

FIRST_NOT_FOUND: Final = 6
# read, delete, describe, describe configs, alter configs
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
# Types of groups; the protocol type of a group of the consumer protocol too.
CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"

_Described = m.DescribeGroupsResponse.Groups
_Deleted = m.OffsetDeleteResponse.Topics


class GroupsAdminServices(Protocol):
    """The parts of the node that these functions use."""

    metadata: MetadataCache
    group_coordinator: GroupCoordinator
    time_slicer: TimeSlicer


def describe_groups(
    services: GroupsAdminServices, context: RequestContext, request: m.DescribeGroupsRequest
) -> Steps[m.DescribeGroupsResponse]:
    """States and members of groups, each once. Of what clients would not read any more the groups are errors."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else authorized_operations.NOT_ASKED
    response = m.DescribeGroupsResponse()
    room = ResponseBudget()
    for group_id in dict.fromkeys(request.groups):
        described = _describe(services, context, group_id)
        try:
            # Members say of themselves as much as a request may have.
            room.reserve(
                sum(len(member.member_metadata) + len(member.member_assignment) for member in described.members)
            )
        except KafkaError as refused:
            described = _Described(group_id=group_id, error_code=refused.code, error_message=refused.message)
        described.authorized_operations = (
            operations if described.error_code == ErrorCode.NONE else authorized_operations.NOT_ASKED
        )
        response.groups.append(described)
        yield
    return response


def _describe(services: GroupsAdminServices, context: RequestContext, group_id: str) -> _Described:
    try:
        group = services.group_coordinator.describe(group_id)
    except KafkaError as refused:
        return _Described(group_id=group_id, error_code=refused.code)
    if group is None:
        result = _Described(group_id=group_id, group_state=GroupState.DEAD.value)
        if context.api_version >= FIRST_NOT_FOUND:
            result.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            consumers = services.group_coordinator.describe_consumers(group_id) is not None
            what = "is not a classic group" if consumers else "not found"
            result.error_message = f"Group {group_id} {what}."
        return result
    return _described(group)


def _described(group: Group) -> _Described:
    # While a rebalance goes on there is no protocol in force yet.
    stable = group.state is GroupState.STABLE
    return _Described(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            _Described.Members(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(
    services: GroupsAdminServices, context: RequestContext, request: m.ListGroupsRequest
) -> m.ListGroupsResponse:
    """Groups that this broker coordinates, by state (KIP-518) and type (KIP-848)."""
    try:
        groups = services.group_coordinator.list_groups()
    except KafkaError as refused:
        return m.ListGroupsResponse(error_code=refused.code)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return m.ListGroupsResponse(
        groups=[
            m.ListGroupsResponse.Groups(
                group_id=group.group_id,
                protocol_type=CONSUMER_TYPE if isinstance(group, ConsumerGroup) else group.protocol_type or "",
                group_state=group.state.value,
                group_type=_type(group),
            )
            for group in groups
            if (not states or group.state.value.lower() in states) and (not types or _type(group) in types)
        ]
    )


def _type(group: Group | ConsumerGroup) -> str:
    return CONSUMER_TYPE if isinstance(group, ConsumerGroup) else CLASSIC_TYPE


async def delete_groups(
    services: GroupsAdminServices, context: RequestContext, request: m.DeleteGroupsRequest
) -> m.DeleteGroupsResponse:
    """Removes groups without members, and their offsets."""
    response = m.DeleteGroupsResponse()
    time_slice = services.time_slicer.time_slice()
    for group_id in dict.fromkeys(request.groups_names):
        await time_slice.step()
        try:
            error = await services.group_coordinator.delete_group(group_id)
        except KafkaError as refused:
            error = refused.code
        response.results.append(m.DeleteGroupsResponse.Results(group_id=group_id, error_code=error))
    return response


async def offset_delete(
    services: GroupsAdminServices, context: RequestContext, request: m.OffsetDeleteRequest
) -> m.OffsetDeleteResponse:
    """Removes offsets of topics that the group's members do not subscribe to (KIP-496)."""
    image = services.metadata.image
    time_slice = services.time_slicer.time_slice()
    partitions: dict[TopicPartition, None] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            if image.partition(topic.name, partition.partition_index) is not None:
                partitions[TopicPartition(topic.name, partition.partition_index)] = None
            await time_slice.step()
    try:
        codes = await services.group_coordinator.offsets.delete(request.group_id, list(partitions))
    except KafkaError as refused:
        return m.OffsetDeleteResponse(error_code=refused.code)
    response = m.OffsetDeleteResponse()
    for topic in request.topics:
        result = _Deleted(name=topic.name)
        response.topics.append(result)
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            code = codes.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            result.partitions.append(_Deleted.Partitions(partition_index=partition.partition_index, error_code=code))
            await time_slice.step()
    return response


APIS: Final = (
    Api(m.DescribeGroupsRequest.API_KEY, 0, 6, describe_groups),
    Api(m.ListGroupsRequest.API_KEY, 0, 5, list_groups),
    Api(m.DeleteGroupsRequest.API_KEY, 0, 2, delete_groups),
    Api(m.OffsetDeleteRequest.API_KEY, 0, 0, offset_delete),
)
