"""Partitions whose offsets move: those that a round between two whole ones lists. Pure.

A record that arrives, a segment that goes, and a follower that lags change what DescribeLogDirs says; a leader or an
ISR that changes is in Metadata. Both are asked for all partitions each round, and are cheap. DeleteRecords within a
segment and deletions in the remote tier change neither, and are seen in the next whole round.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.requests.log_dir_requests import ReplicaSize
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.tiering.ids import TopicPartition

MOVES_FOR_MS: Final = 60_000
# Tasks of remote.log.manager.task.interval.ms (30 s) copy the last records, and then delete them locally.
TIERED_MOVES_FOR_MS: Final = 180_000
# Of those only whose size changes; 3,000 x 3 replicas are a third of a whole round over 10,000. Where more move at
# once, those listed longest ago are next: 10,000 that all move are listed every 80 s.
MOVING_MAX: Final = 3_000


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """A partition as Metadata and DescribeLogDirs describe it. `sizes`: of its replicas, in their order; `view_ms` and
    `changed_ms`: when its metadata, and either, was last seen to change; 0: not since the first round.
    """

    view: PartitionMetadata
    sizes: tuple[ReplicaSize | None, ...]
    view_ms: int
    changed_ms: int

    def moves(self, at_ms: int, *, tiered: bool) -> bool:
        """Whether its offsets may have changed since a moment ago."""
        lasts_ms = TIERED_MOVES_FOR_MS if tiered else MOVES_FOR_MS
        return at_ms - self.changed_ms <= lasts_ms or len(self.view.isr) < len(self.view.replicas)


def partition_states(
    before: Mapping[TopicPartition, DescribedPartition],
    views: Iterable[PartitionMetadata],
    sizes: Mapping[int, Mapping[TopicPartition, ReplicaSize]],
    at_ms: int,
) -> dict[TopicPartition, DescribedPartition]:
    """The states now; `sizes` by broker. A partition that is new has changed, unless all are."""
    new_ms = at_ms if before else 0
    states = {}
    for view in views:
        tp = view.topic_partition
        now = tuple(sizes[broker_id].get(tp) if broker_id in sizes else None for broker_id in view.replicas)
        last = before.get(tp)
        if last is None or last.view.topic_id != view.topic_id:
            states[tp] = DescribedPartition(view, now, new_ms, new_ms)
        elif last.view is not view and last.view != view:
            states[tp] = DescribedPartition(view, now, at_ms, at_ms)
        elif last.sizes != now:
            states[tp] = DescribedPartition(view, now, last.view_ms, at_ms)
        else:
            states[tp] = last
    return states


def moving_partitions(
    states: Mapping[TopicPartition, DescribedPartition],
    tiered: frozenset[bytes],
    listed_ms: Mapping[TopicPartition, int],
    at_ms: int,
) -> frozenset[TopicPartition]:
    """The partitions to list now; `tiered`: ids of tiered topics, `listed_ms`: when each was listed last.

    All whose metadata changed since: an ISR and a log end of different moments are no fact together.
    """
    changed: set[TopicPartition] = set()
    moving: list[TopicPartition] = []
    for tp, state in states.items():
        last_ms = listed_ms.get(tp)
        if last_ms is None or state.view_ms > last_ms:
            changed.add(tp)
        elif state.moves(at_ms, tiered=state.view.topic_id in tiered):
            moving.append(tp)
    return frozenset(changed) | frozenset(heapq.nsmallest(MOVING_MAX, moving, key=listed_ms.__getitem__))
