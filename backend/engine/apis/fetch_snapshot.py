"""FetchSnapshot (59), versions 0-1, on a controller's listener: a snapshot's bytes, piece by piece (KIP-630).

Where Apache Kafka 4.3.1 slips, answering every partition's error as a top-level -1 and ending on a negative size, the
documented codes are sent.
Kafka: `ControllerApis.handleFetchSnapshot`, `KafkaRaftClient.handleFetchSnapshotRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import CONTROLLER, Api, RequestContext
from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.engine.raft.raft_node import RaftNode
from backend.engine.raft.snapshot_files import BOOTSTRAP_ID, SnapshotId
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 59
# Of one piece, whatever the other side allows.
RESPONSE_BYTES_MAX: Final = 8 << 20

_Topic = m.FetchSnapshotResponse.Topics
_PartitionSnapshot = _Topic.Partitions
_SnapshotPart = m.FetchSnapshotRequest.Topics.Partitions


class FetchSnapshotServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    cluster_id: str
    ports: Ports
    controller: Controller | None


async def fetch_snapshot(
    services: FetchSnapshotServices, context: RequestContext, request: m.FetchSnapshotRequest
) -> m.FetchSnapshotResponse:
    """At most `max_bytes` of the snapshot from the position on; its size shows when it is whole."""
    controller = services.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Node {services.node_id} has no controller role")
    refused = _refusal(services, request)
    if refused is not None:
        return m.FetchSnapshotResponse(error_code=refused)
    topic, requested = request.topics[0], request.topics[0].partitions[0]
    if request.replica_id in controller.raft.voters:
        await controller.raft.voter_contacted(request.replica_id)
    exists = topic.name == CLUSTER_METADATA_TOPIC and requested.partition == 0
    result = (
        await _partition_snapshot(services, controller.raft, requested, request.max_bytes)
        if exists
        else _PartitionSnapshot(
            index=requested.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unaligned_records=b""
        )
    )
    response = m.FetchSnapshotResponse(topics=[_Topic(name=topic.name, partitions=[result])])
    if context.api_version >= 1:
        host, port = controller.leader_address(context.listener_name)
        node = m.FetchSnapshotResponse.NodeEndpoints
        response.node_endpoints = [node(node_id=controller.raft.leader_id, host=host, port=port)]
    return response


def _refusal(services: FetchSnapshotServices, request: m.FetchSnapshotRequest) -> ErrorCode | None:
    """Why the whole request is refused, or None."""
    if request.cluster_id is not None and request.cluster_id != services.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    malformed = len(request.topics) != 1 or len(request.topics[0].partitions) != 1
    if malformed or request.max_bytes < 0 or request.replica_id == services.node_id:
        return ErrorCode.INVALID_REQUEST
    return None


async def _partition_snapshot(
    services: FetchSnapshotServices, raft: RaftNode, requested: _SnapshotPart, max_bytes: int
) -> _PartitionSnapshot:
    snapshot_id = SnapshotId(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
    result = _PartitionSnapshot(
        index=0,
        snapshot_id=_PartitionSnapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        current_leader=_PartitionSnapshot.CurrentLeader(leader_id=raft.leader_id, leader_epoch=raft.epoch),
        unaligned_records=b"",
    )
    if requested.current_leader_epoch != raft.epoch:
        older = requested.current_leader_epoch < raft.epoch
        result.error_code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return result
    if not raft.is_leader:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return result
    files = raft.log.snapshots
    if (snapshot_id.end_offset, snapshot_id.epoch) == BOOTSTRAP_ID or snapshot_id not in files.ids:
        result.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        return result
    position, limit = requested.position, min(max_bytes, RESPONSE_BYTES_MAX)
    try:
        size = files.size(snapshot_id)
        if not 0 <= position < size:
            result.error_code = ErrorCode.POSITION_OUT_OF_RANGE
            return result
        piece = await services.ports.workers.run(lambda: files.read_part(snapshot_id, position, limit))
    except FileNotFoundError:
        # Retention took it between the check and the read.
        result.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        return result
    result.size, result.position, result.unaligned_records = size, position, piece
    return result


APIS: Final = (Api(API_KEY, 0, 1, fetch_snapshot, CONTROLLER),)
