"""The metadata quorum: DescribeQuorum (KIP-595). The controller id of Metadata is any broker with KRaft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import UnsupportedByBroker
from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import uuid_text


@dataclass(frozen=True, slots=True)
class QuorumReplicaState:
    """A node that follows the metadata log; `role` is voter or observer. Times in ms since the epoch, -1: never.

    `directory_id`: as Kafka's tools write it; None where the quorum knows its voters by their ids alone. A voter that
    is not `counted` fetches from another directory than the quorum knows it by: its disk is new, and it has not caught
    up.
    """

    node_id: int
    role: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    directory_id: str | None = None
    counted: bool = True


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum as its leader describes it (Kafka: QuorumInfo). `listeners`: host and port of each voter, by its id;
    empty before version 2 of DescribeQuorum (Kafka 3.9).
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplicaState, ...]
    listeners: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    def lag(self, replica: QuorumReplicaState) -> int:
        """Records that the replica lacks of what the leader has."""
        ends = [
            state.log_end_offset for state in self.replicas if state.node_id == self.leader_id and state.role == "voter"
        ]
        return max(0, max(ends, default=self.high_watermark) - max(0, replica.log_end_offset))


async def fetch_quorum(gateway: Gateway, *, lane: Lane = Lane.SAMPLE) -> QuorumInfo | None:
    """The quorum; None when the cluster does not describe it or has no leader.

    Raises GatewayError, and KafkaError(CLUSTER_AUTHORIZATION_FAILED) where our principal may not ask.
    """
    topic = m.DescribeQuorumRequest.Topics
    request = m.DescribeQuorumRequest(
        topics=[topic(topic_name="__cluster_metadata", partitions=[topic.Partitions(partition_index=0)])]
    )
    try:
        response = await gateway.ask_any(request, m.DescribeQuorumResponse, lane=lane)
    except UnsupportedByBroker:
        return None
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for described in response.topics:
        for partition in described.partitions:
            if not partition.error_code and partition.leader_id >= 0:
                listeners = {
                    n.node_id: (n.listeners[0].host, n.listeners[0].port) for n in response.nodes if n.listeners
                }
                return replace(_quorum(partition), listeners=listeners)
    return None


def _quorum(partition: m.DescribeQuorumResponse.Topics.Partitions) -> QuorumInfo:
    voters = {replica.replica_id: replica for replica in partition.current_voters}
    joining = {replica.replica_id: replica for replica in partition.observers if replica.replica_id in voters}
    replicas = [
        _replica(joining.get(voter, replica), "voter", counted=voter not in joining)
        for voter, replica in voters.items()
    ]
    replicas += [_replica(replica, "observer") for replica in partition.observers if replica.replica_id not in voters]
    return QuorumInfo(partition.leader_id, partition.leader_epoch, partition.high_watermark, tuple(replicas))


def _replica(
    state: m.DescribeQuorumResponse.Topics.Partitions.CurrentVoters
    | m.DescribeQuorumResponse.Topics.Partitions.Observers,
    role: str,
    *,
    counted: bool = True,
) -> QuorumReplicaState:
    directory_id = bytes(state.replica_directory_id)
    return QuorumReplicaState(
        state.replica_id,
        role,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
        uuid_text(directory_id) if any(directory_id) else None,
        counted,
    )


async def fetch_controller_id(gateway: Gateway) -> int | None:
    """Node id of the active controller; None when the cluster does not name it to us. Raises GatewayError."""
    try:
        quorum = await fetch_quorum(gateway, lane=Lane.CONTROLLER)
    except KafkaError:
        return None
    return None if quorum is None else quorum.leader_id
