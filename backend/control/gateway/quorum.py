"""Who leads the metadata quorum: DescribeQuorum (KIP-595). The controller id of Metadata is any broker with KRaft."""

from __future__ import annotations

from backend.control.gateway.client import Gateway
from backend.control.gateway.errors import UnsupportedByBroker
from backend.protocol import messages as m


async def fetch_controller_id(gateway: Gateway) -> int | None:
    """Node id of the active controller; None when the cluster does not tell. Raises GatewayError."""
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
                return partition.leader_id
    return None
