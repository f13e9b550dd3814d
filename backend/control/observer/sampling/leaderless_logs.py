"""Log ends of replicas whose partition has no leader: each broker tells its own (ListOffsets with replica id -2)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.gateway.requests.offset_requests import ListedOffset, list_offsets
from backend.protocol import offset_timestamps
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

LogEnds = Mapping[tuple[TopicPartition, int], ListedOffset]
"""Log end offset and the epoch of the last record, by partition and broker."""
# One request a broker, 60 kB.
PARTITIONS_MAX: Final = 2_000


def undecided(
    partitions: Iterable[PartitionMetadata], eligible: Mapping[TopicPartition, EligibleReplicas], *, complete: bool
) -> tuple[list[PartitionMetadata], int]:
    """Partitions that wait for the one broker that led last: no replica is in sync, or eligible (KIP-966). Beside them
    the number of those that were too many to be looked at, where `eligible` is not `complete` as well.
    """
    result, unread = [], 0
    for partition in partitions:
        if partition.leader >= 0 or partition.isr:
            continue
        lists = eligible.get(partition.topic_partition)
        if lists is None:
            unread += not complete
        elif not lists.elr and len(lists.last_known) == 1:
            result.append(partition)
    return result[:PARTITIONS_MAX], unread + max(0, len(result) - PARTITIONS_MAX)


async def fetch_log_ends(
    gateway: Gateway, partitions: Iterable[PartitionMetadata], alive: Collection[int]
) -> dict[tuple[TopicPartition, int], ListedOffset]:
    """The log ends that living replicas of these partitions tell; of one that does not answer there is none."""
    by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        for broker_id in partition.replicas:
            if broker_id in alive:
                by_broker[broker_id].append(partition.topic_partition)

    async def ask(broker_id: int) -> dict[tuple[TopicPartition, int], ListedOffset]:
        try:
            listed = await list_offsets(
                gateway, broker_id, offset_timestamps.LATEST, by_broker[broker_id], lane=Lane.LIVENESS
            )
        except (GatewayError, KafkaError):
            return {}
        return {(tp, broker_id): offset for tp, offset in listed.items() if offset.error is ErrorCode.NONE}

    responses = await asyncio.gather(*(ask(broker_id) for broker_id in by_broker))
    return {key: offset for response in responses for key, offset in response.items()}
