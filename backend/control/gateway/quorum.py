"""Who leads the metadata quorum: DescribeQuorum (KIP-595). The controller id of Metadata is any broker with KRaft."""

from __future__ import annotations

from dataclasses import dataclass

from backend.control.gateway.client import Gateway
from backend.control.gateway.errors import UnsupportedByBroker
from backend.protocol import messages as m


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node that follows the metadata log; `role` is voter or observer. Times in ms since the epoch, -1: never."""

    node_id: int
    role: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum as its leader tells it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]

    def lag(self, replica: QuorumReplica) -> int:
        """Records that the replica lacks of what the leader has."""
        ends = [one.log_end_offset for one in self.replicas if one.node_id == self.leader_id and one.role == "voter"]
        return max(0, max(ends, default=self.high_watermark) - max(0, replica.log_end_offset))


async def fetch_quorum(gateway: Gateway) -> Quorum | None:
    """The quorum; None when the cluster does not tell or has no leader. Raises GatewayError."""
    topic = m.DescribeQuorumRequest.Topics
    request = m.DescribeQuorumRequest(
        topics=[topic(topic_name="__cluster_metadata", partitions=[topic.Partitions(partition_index=0)])]
    )
    try:
        answer = await gateway.ask_any(request, m.DescribeQuorumResponse)
    except UnsupportedByBroker:
        return None
    for found in answer.topics:
        for partition in found.partitions:
            if not partition.error_code and partition.leader_id >= 0:
                return _quorum(partition)
    return None


def _quorum(partition: m.DescribeQuorumResponse.Topics.Partitions) -> Quorum:
    replicas = [
        QuorumReplica(one.replica_id, role, one.log_end_offset, one.last_fetch_timestamp, one.last_caught_up_timestamp)
        for role, rows in (("voter", partition.current_voters), ("observer", partition.observers))
        for one in rows
    ]
    return Quorum(partition.leader_id, partition.leader_epoch, partition.high_watermark, tuple(replicas))


async def fetch_controller_id(gateway: Gateway) -> int | None:
    """Node id of the active controller; None when the cluster does not tell. Raises GatewayError."""
    quorum = await fetch_quorum(gateway)
    return None if quorum is None else quorum.leader_id
