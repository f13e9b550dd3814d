"""DescribeQuorum (55), versions 0-2: leader, voters and observers of the metadata log (KIP-595, KIP-853).

Kafka: `ControllerApis.handleDescribeQuorum`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.engine.ports.time_slices import Steps
from backend.engine.raft.quorum_state import NO_DIRECTORY
from backend.engine.raft.raft_node import RaftNode
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 55

_Topic = m.DescribeQuorumResponse.Topics
_Partition = _Topic.Partitions


class DescribeQuorumServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    ports: Ports
    controller_channel: ControllerChannel
    controller: Controller | None


async def on_broker(
    services: DescribeQuorumServices, context: RequestContext, request: m.DescribeQuorumRequest
) -> m.DescribeQuorumResponse:
    """The controller's answer."""
    return await forward(services, context, request, m.DescribeQuorumResponse)


def on_controller(
    services: DescribeQuorumServices, context: RequestContext, request: m.DescribeQuorumRequest
) -> Steps[m.DescribeQuorumResponse]:
    """`__cluster_metadata-0`; any other partition is unknown."""
    controller = services.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {services.node_id} has no controller role")
    response = m.DescribeQuorumResponse(error_message="")
    for requested in request.topics:
        topic = _Topic(topic_name=requested.topic_name)
        response.topics.append(topic)
        for partition in requested.partitions:
            yield
            if requested.topic_name == CLUSTER_METADATA_TOPIC and partition.partition_index == 0:
                topic.partitions.append(_describe(controller, services.ports.clock.time_ms()))
            else:
                topic.partitions.append(
                    _Partition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=f"{requested.topic_name}-{partition.partition_index} has no quorum",
                    )
                )
    response.nodes = [
        m.DescribeQuorumResponse.Nodes(
            node_id=node.id,
            listeners=[
                m.DescribeQuorumResponse.Nodes.Listeners(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                for endpoint in node.endpoints
            ],
        )
        for node in sorted(controller.image.controllers.values(), key=lambda node: node.id)
        if node.id in controller.raft.voters
    ]
    return response


def _describe(controller: Controller, now_ms: int) -> _Partition:
    raft = controller.raft
    if not raft.is_leader:
        return _Partition(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message=f"Node {raft.node_id} does not lead the metadata quorum",
            leader_id=raft.leader_id,
            leader_epoch=raft.epoch,
            high_watermark=-1,
        )
    return _Partition(
        partition_index=0,
        error_message="",
        leader_id=raft.leader_id,
        leader_epoch=raft.epoch,
        high_watermark=raft.log.high_watermark,
        current_voters=[_voter(raft, voter, now_ms) for voter in raft.voters],
        observers=[
            _Partition.Observers(
                replica_id=observer.replica_id,
                replica_directory_id=observer.directory_id,
                log_end_offset=observer.log_end_offset,
                last_fetch_timestamp=observer.last_fetch_ms,
                last_caught_up_timestamp=observer.last_caught_up_ms,
            )
            for observer in raft.observers.current(now_ms)
        ],
    )


def _voter(raft: RaftNode, voter: int, now_ms: int) -> _Partition.CurrentVoters:
    if voter == raft.node_id:
        end, fetched_ms, caught_up_ms = raft.log.end_offset, now_ms, now_ms
    elif (seen := raft.voters_seen.of(voter)) is not None:
        end, fetched_ms, caught_up_ms = seen.log_end_offset, seen.last_fetch_ms, seen.last_caught_up_ms
    else:
        end, fetched_ms, caught_up_ms = -1, -1, -1
    return _Partition.CurrentVoters(
        replica_id=voter,
        replica_directory_id=raft.log.directories.get(voter, NO_DIRECTORY),
        log_end_offset=end,
        last_fetch_timestamp=fetched_ms,
        last_caught_up_timestamp=caught_up_ms,
    )


APIS: Final = (Api(API_KEY, 0, 2, on_broker, BROKER), Api(API_KEY, 0, 2, on_controller, CONTROLLER))
