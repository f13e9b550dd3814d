"""Partitions that had no leader of late, and the replicas that could lead them then. Pure.

Rounds of samples are seconds apart, more where brokers are away: a partition may lose its leader and be led again from
one to the next. The watch over liveness looks oftener. Its memory lasts longer than the next round takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.tiering.ids import TopicPartition

KEPT_MS: Final = 120_000
# As many as are asked for their eligible replicas: 300 bytes each.
LEADERLESS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class LeaderlessPartition:
    """A partition without a leader since `leader_epoch` began, last seen so at `seen_ms`; `may_lead`: its ISR and
    eligible replicas, of which a clean election takes the next leader. `none_in_sync`: these are replicas that were
    in sync and stopped uncleanly.
    """

    leader_epoch: int
    may_lead: frozenset[int]
    seen_ms: int
    none_in_sync: bool = False


LeaderlessPartitions = Mapping[TopicPartition, LeaderlessPartition]


def remember_leaderless(
    before: LeaderlessPartitions,
    partitions: Iterable[PartitionMetadata],
    eligible: Mapping[TopicPartition, EligibleReplicas],
    at_ms: int,
) -> LeaderlessPartitions:
    """The memory with a newer look; of a partition whose lists are not of the epoch that it has now nothing is new."""
    result = {tp: row for tp, row in before.items() if at_ms - row.seen_ms <= KEPT_MS}
    for partition in partitions:
        lists = eligible.get(partition.topic_partition)
        if partition.leader >= 0 or lists is None or lists.leaderless_epoch != partition.leader_epoch:
            continue
        may_lead = frozenset((*partition.isr, *lists.elr, *lists.last_known))
        none = not partition.isr and not lists.elr
        result[partition.topic_partition] = LeaderlessPartition(partition.leader_epoch, may_lead, at_ms, none)
    newest = sorted(result.items(), key=lambda item: -item[1].seen_ms)[:LEADERLESS_MAX]
    return dict(newest)
