"""ConsumerGroupHeartbeat (68), versions 0-1; ConsumerGroupDescribe (69), 0-1: the consumer protocol (KIP-848).

From version 1 on a member brings its own id, and may subscribe by a regular expression. Both are refused with
UNSUPPORTED_VERSION while the cluster's feature group.version is below 1 or the broker does not serve the protocol.
Kafka: `KafkaApis.handleConsumerGroupHeartbeat`, `handleConsumerGroupDescribe`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.groups_admin import GROUP_OPERATIONS
from backend.engine.apis.support import authorized_operations
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.cluster_bootstrap import GROUP_VERSION
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.group.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
)
from backend.engine.coordinator.group.consumer.consumer_group_records import by_topic
from backend.engine.coordinator.group.consumer.consumer_heartbeat import ConsumerHeartbeat
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.topics_view import AssignablePartition, TopicsView
from backend.engine.ports import Ports
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import uuid_text

FIRST_OWN_MEMBER_ID: Final = 1
FIRST_MEMBER_TYPE: Final = 1
PROTOCOL: Final = "consumer"
CONSUMER_TYPE: Final = 1
CLASSIC_TYPE: Final = 0

_Heartbeat = m.ConsumerGroupHeartbeatResponse
_Described = m.ConsumerGroupDescribeResponse.Groups


class ConsumerGroupsServices(Protocol):
    """The parts of the node that these functions use."""

    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    group_coordinator: GroupCoordinator


def _refuse_unless_served(services: ConsumerGroupsServices) -> None:
    if services.metadata.image.features.get(GROUP_VERSION, 0) < 1:
        text = f"The feature {GROUP_VERSION} is at level 0: raise it to 1 with kafka-features to use consumer groups."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    if PROTOCOL not in services.config.group_coordinator_rebalance_protocols:
        text = "The consumer protocol is not in group.coordinator.rebalance.protocols of this broker."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)


async def consumer_group_heartbeat(
    services: ConsumerGroupsServices, context: RequestContext, request: m.ConsumerGroupHeartbeatRequest
) -> m.ConsumerGroupHeartbeatResponse:
    """Joins, goes on or leaves; the assignment where it has changed."""
    try:
        _refuse_unless_served(services)
        _check(services, request, context.api_version)
        result = await services.group_coordinator.consumer_heartbeat(
            request.group_id, _event(services, context, request)
        )
    except KafkaError as refused:
        return _Heartbeat(error_code=refused.code, error_message=refused.message)
    assignment = None
    if result.assignment is not None:
        assignment = _Heartbeat.Assignment(
            topic_partitions=[
                _Heartbeat.Assignment.TopicPartitions(topic_id=topic, partitions=indexes)
                for topic, indexes in by_topic(result.assignment).items()
            ]
        )
    leaves = request.member_epoch < 0
    limits = services.group_coordinator.consumers.limits(request.group_id)
    return _Heartbeat(
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=0 if leaves else limits.heartbeat_interval_ms,
        assignment=assignment,
    )


def _check(services: ConsumerGroupsServices, request: m.ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raises the errors that Kafka answers before it looks at the group."""
    epoch = request.member_epoch
    names_itself = version >= FIRST_OWN_MEMBER_ID or epoch > 0 or epoch == LEAVE_EPOCH
    problems = (
        (names_itself and not request.member_id.strip(), "MemberId can't be empty."),
        (not request.group_id.strip(), "GroupId can't be empty."),
        (request.instance_id is not None and not request.instance_id.strip(), "InstanceId can't be empty."),
        (request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty."),
        (
            epoch == JOIN_EPOCH and request.rebalance_timeout_ms == -1,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            epoch == JOIN_EPOCH and (request.topic_partitions is None or bool(request.topic_partitions)),
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            epoch == JOIN_EPOCH and request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (epoch == LEAVE_STATIC_EPOCH and request.instance_id is None, "InstanceId can't be null."),
        (epoch < LEAVE_STATIC_EPOCH, "MemberEpoch is invalid."),
    )
    for wrong, message in problems:
        if wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    served = services.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in served:
        text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(served)}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _event(
    services: ConsumerGroupsServices, context: RequestContext, request: m.ConsumerGroupHeartbeatRequest
) -> ConsumerHeartbeat:
    owned = None
    if request.topic_partitions is not None:
        owned = frozenset((bytes(topic.topic_id), at) for topic in request.topic_partitions for at in topic.partitions)
    topics = request.subscribed_topic_names
    return ConsumerHeartbeat(
        now_ms=services.ports.clock.monotonic_ms(),
        time_ms=services.ports.clock.time_ms(),
        member_id=request.member_id or uuid_text(services.ports.random.uuid()),
        epoch=request.member_epoch,
        client_id=context.client_id,
        client_host=f"/{context.client_host}",
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
    )


def consumer_group_describe(
    services: ConsumerGroupsServices, context: RequestContext, request: m.ConsumerGroupDescribeRequest
) -> Steps[m.ConsumerGroupDescribeResponse]:
    """States, members and assignments of consumer groups; an entry for every group asked about."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else authorized_operations.NOT_ASKED
    response = m.ConsumerGroupDescribeResponse()
    for group_id in dict.fromkeys(request.group_ids):
        yield
        try:
            _refuse_unless_served(services)
            described = _describe(services, group_id, context.api_version)
            described.authorized_operations = operations
        except KafkaError as refused:
            described = _Described(
                group_id=group_id,
                error_code=refused.code,
                error_message=refused.message,
                authorized_operations=authorized_operations.NOT_ASKED,
            )
        response.groups.append(described)
    return response


def _describe(services: ConsumerGroupsServices, group_id: str, version: int) -> _Described:
    coordinator = services.group_coordinator
    group = coordinator.describe_consumers(group_id)
    if group is None:
        exists = coordinator.describe(group_id) is not None
        text = f"Group {group_id} is not a consumer group." if exists else f"Group {group_id} not found."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
    topics = coordinator.consumers.topics
    return _Described(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=coordinator.consumers.assignor(group),
        members=[_member(group, member, topics, version) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView, version: int) -> _Described.Members:
    kind = _Described.Members
    assigned, target = kind.Assignment, kind.TargetAssignment
    subscription = member.subscription
    # A partition that it has not given up yet still belongs to it.
    described = kind(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.regex,
        assignment=assigned(
            topic_partitions=[
                assigned.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
                for topic_id, name, indexes in _named(member.owns(), topics)
            ]
        ),
        target_assignment=target(
            topic_partitions=[
                target.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
                for topic_id, name, indexes in _named(group.target(member.member_id), topics)
            ]
        ),
    )
    if version >= FIRST_MEMBER_TYPE:
        described.member_type = CLASSIC_TYPE if member.is_classic else CONSUMER_TYPE
    return described


def _named(partitions: Iterable[AssignablePartition], topics: TopicsView) -> list[tuple[bytes, str, list[int]]]:
    """By topic; those of deleted topics are left out, as in Kafka."""
    return [
        (topic_id, topics.names[topic_id], indexes)
        for topic_id, indexes in by_topic(partitions).items()
        if topic_id in topics.names
    ]


APIS: Final = (
    Api(m.ConsumerGroupHeartbeatRequest.API_KEY, 0, 1, consumer_group_heartbeat),
    Api(m.ConsumerGroupDescribeRequest.API_KEY, 0, 1, consumer_group_describe),
)
