"""Partitions whose offsets move: those that a round between two whole ones lists. Pure.

A record that arrives, a segment that goes, and a follower that lags change what DescribeLogDirs says; a leader or an
ISR that changes is in Metadata. Both are asked for all partitions each round, and are cheap. DeleteRecords within a
segment and deletions in the remote tier change neither, and are seen in the next whole round.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.requests.log_dir_requests import ReplicaSize
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.tiering.ids import TopicPartition

MOVES_FOR_MS: Final = 60_000
# Tasks of remote.log.manager.task.interval.ms (30 s) copy the last records, and then delete them locally.
TIERED_MOVES_FOR_MS: Final = 180_000
# Of those only whose size changes. A round over 6,000 x 3 replicas that are all new takes 2.5 s of CPU of all processes
# together: 10,000 that all move, each 20 s, take 21 % of a core, which is what watching may take. Where more move at
# once, those listed longest ago are next: 20,000 that all move are listed every 48 s.
MOVING_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """A partition as Metadata and DescribeLogDirs describe it. `sizes`: of its replicas, in their order, None where the
    broker is not alive; `view_ms` and `changed_ms`: when its metadata or whether it is tiered, and any of this, was
    last seen to change; 0: not since the first round.
    """

    view: PartitionMetadata
    tiered: bool
    sizes: tuple[ReplicaSize | None, ...]
    view_ms: int
    changed_ms: int

    def moves(self, at_ms: int) -> bool:
        """Whether its offsets may have changed since a moment ago. One that lacks a dead broker only is as it was."""
        lasts_ms = TIERED_MOVES_FOR_MS if self.tiered else MOVES_FOR_MS
        lags = len(self.view.isr) < len(self.view.replicas) and None not in self.sizes
        return at_ms - self.changed_ms <= lasts_ms or lags


def partition_states(
    before: Mapping[TopicPartition, DescribedPartition],
    views: Iterable[PartitionMetadata],
    tiered: AbstractSet[bytes],
    sizes: Mapping[int, Mapping[TopicPartition, ReplicaSize] | None],
    at_ms: int,
) -> dict[TopicPartition, DescribedPartition]:
    """The states now; `tiered`: ids of tiered topics, `sizes`: by living broker, None of one that did not tell this
    time, where they count as unchanged. A partition that is new has changed, unless all are.
    """
    new_ms = at_ms if before else 0
    silent = {broker_id for broker_id, of_broker in sizes.items() if of_broker is None}
    states = {}
    for view in views:
        tp, is_tiered = view.topic_partition, view.topic_id in tiered
        last = before.get(tp)
        now = tuple((sizes.get(broker_id) or {}).get(tp) for broker_id in view.replicas)
        if last is not None and silent and last.view.replicas == view.replicas:
            pairs = zip(view.replicas, last.sizes, now, strict=True)
            now = tuple(last_size if broker_id in silent else size for broker_id, last_size, size in pairs)
        if last is None or last.view.topic_id != view.topic_id:
            states[tp] = DescribedPartition(view, is_tiered, now, new_ms, new_ms)
        elif (last.view is not view and last.view != view) or last.tiered != is_tiered:
            states[tp] = DescribedPartition(view, is_tiered, now, at_ms, at_ms)
        elif last.sizes != now:
            states[tp] = DescribedPartition(view, is_tiered, now, last.view_ms, at_ms)
        else:
            states[tp] = last
    return states


def moving_partitions(
    states: Mapping[TopicPartition, DescribedPartition],
    listed_ms: Mapping[TopicPartition, int],
    at_ms: int,
) -> frozenset[TopicPartition]:
    """The partitions to list now; `listed_ms`: when each was listed last.

    All whose metadata changed since: an ISR and a log end of different moments are no fact together.
    """
    changed: set[TopicPartition] = set()
    moving: list[TopicPartition] = []
    for tp, state in states.items():
        last_ms = listed_ms.get(tp)
        if last_ms is None or state.view_ms > last_ms:
            changed.add(tp)
        elif state.moves(at_ms):
            moving.append(tp)
    return frozenset(changed) | frozenset(heapq.nsmallest(MOVING_MAX, moving, key=listed_ms.__getitem__))
