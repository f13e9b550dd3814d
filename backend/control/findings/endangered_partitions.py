"""Partitions whose last leader came back with less than another replica has: remembered until they are led. Pure.

Apache Kafka elects that broker by itself (see `last_leader_rules`). Once it is stopped its log end cannot be read,
and to start it again would lose what to stop it has saved: so the partition is endangered until a leader is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.gateway.requests.offset_requests import ListedOffset
from backend.tiering.ids import TopicPartition

# As many are asked for their log ends at once (`leaderless_logs`): 300 bytes each.
ENDANGERED_MAX: Final = 2_000
LogEnd = tuple[int, int]
"""(leader epoch, log end offset): the higher epoch is the better log, however long the other is."""


@dataclass(frozen=True, slots=True)
class EndangeredPartition:
    """A partition that `last_leader` would lead; `log_ends`: the newest of each replica, in replica order.

    `since_ms`: when it was first seen so, with that broker running; None: not known.
    """

    topic_partition: TopicPartition
    last_leader: int
    log_ends: Mapping[int, LogEnd]
    since_ms: int | None = None

    @property
    def best(self) -> int:
        """The replica with the best log; of equal ones the first of the replica list, which an election prefers."""
        return max(self.log_ends, key=lambda broker_id: self.log_ends[broker_id])

    def evidence(self) -> dict[str, Any]:
        """As a finding stores it; `endangered_of_evidence` reads it."""
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "best_broker_id": self.best,
            "since_ms": self.since_ms,
            "replicas": [
                {"broker_id": broker_id, "leader_epoch": epoch, "log_end_offset": offset}
                for broker_id, (epoch, offset) in self.log_ends.items()
            ],
        }


@dataclass(frozen=True, slots=True)
class EndangeredPartitions:
    """All that are remembered. `unread`: partitions without a leader whose logs were too many to be asked for."""

    by_partition: Mapping[TopicPartition, EndangeredPartition] = field(default_factory=dict)
    unread: int = 0

    @property
    def last_leaders(self) -> frozenset[int]:
        """The brokers that must not run before these partitions are led."""
        return frozenset(endangered.last_leader for endangered in self.by_partition.values())

    def next(
        self,
        partitions: Iterable[PartitionMetadata],
        eligible: Mapping[TopicPartition, EligibleReplicas],
        log_ends: Mapping[tuple[TopicPartition, int], ListedOffset],
        unread: int = 0,
        *,
        at_ms: int,
    ) -> EndangeredPartitions:
        """With a newer look at the cluster; `eligible` and `log_ends` may lack partitions and brokers."""
        result: dict[TopicPartition, EndangeredPartition] = {}
        for partition in partitions:
            if partition.leader >= 0 or len(result) == ENDANGERED_MAX:
                continue
            tp = partition.topic_partition
            before = self.by_partition.get(tp)
            last = _last_leader(partition, eligible.get(tp), before)
            if last is None:
                continue
            ends = _newest_ends(partition, log_ends, before)
            since_ms = before.since_ms if before is not None and before.last_leader == last else at_ms
            endangered = EndangeredPartition(tp, last, ends, since_ms)
            if last in ends and ends[endangered.best] > ends[last]:
                result[tp] = endangered
        return EndangeredPartitions(result, unread)


def _last_leader(
    partition: PartitionMetadata, eligible: EligibleReplicas | None, before: EndangeredPartition | None
) -> int | None:
    """The broker that the partition waits for, where that is the one that led last and nothing else may lead."""
    if partition.isr:
        return None
    if eligible is None:
        return None if before is None else before.last_leader
    return eligible.last_known[0] if not eligible.elr and len(eligible.last_known) == 1 else None


def _newest_ends(
    partition: PartitionMetadata,
    log_ends: Mapping[tuple[TopicPartition, int], ListedOffset],
    before: EndangeredPartition | None,
) -> dict[int, LogEnd]:
    """Log ends of the replicas; one that does not tell now keeps its last."""
    result = {}
    for broker_id in partition.replicas:
        end = log_ends.get((partition.topic_partition, broker_id))
        if end is not None:
            result[broker_id] = (end.epoch, end.offset)
        elif before is not None and broker_id in before.log_ends:
            result[broker_id] = before.log_ends[broker_id]
    return result


def endangered_of_evidence(broker_id: int, evidence: Mapping[str, Any]) -> list[EndangeredPartition]:
    """The partitions that an open finding about a broker names, for a process that has just started."""
    result = []
    for row in evidence.get("partitions", ()):
        try:
            ends = {
                int(replica["broker_id"]): (int(replica["leader_epoch"]), int(replica["log_end_offset"]))
                for replica in row["replicas"]
            }
            tp = TopicPartition(str(row["topic"]), int(row["partition"]))
            since_ms = None if row.get("since_ms") is None else int(row["since_ms"])
        except (KeyError, TypeError, ValueError):
            continue  # of a version that stored something else
        if broker_id in ends:
            result.append(EndangeredPartition(tp, broker_id, ends, since_ms))
    return result
