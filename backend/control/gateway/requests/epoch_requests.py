"""The leader-epoch chain of a leader, found by asking OffsetForLeaderEpoch downward (KIP-101, KIP-320).

Only leaders answer it. For an epoch r the answer is (E, end): E the highest epoch with records not above r, and
`end` the first offset of the next higher one. So the start of an epoch e is the `end` of r = e - 1, and E of that
answer is the next epoch to ask about. It ends where `end` is the log start: below that there is nothing left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, error_code
from backend.tiering.epoch_lineage import EpochEntry
from backend.tiering.ids import TopicPartition

# One round asks all partitions of a leader at once. A chain longer than this keeps its newest epochs and says so.
ROUNDS_MAX: Final = 200
_UNDEFINED: Final = -1


@dataclass(frozen=True, slots=True)
class ChainRequest:
    """State before the requests: the leader's current epoch, the log start, and the chain of an earlier answer."""

    leader_epoch: int
    log_start: int
    log_end: int
    earlier: tuple[EpochEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochChain:
    """(epoch, first offset) ascending; `complete` is False when its older end was cut off at ROUNDS_MAX."""

    entries: tuple[EpochEntry, ...]
    complete: bool = True


@dataclass(slots=True)
class _Walk:
    request: ChainRequest
    entries: list[EpochEntry]  # descending
    ask: int
    upper: int | None = None  # the epoch whose start the next answer tells

    def record_epoch_end(self, epoch: int, end: int) -> bool:
        """Records an answer; True when the walk is over."""
        if epoch == _UNDEFINED or end < 0:
            if self.upper is None and self.ask > 0:
                # The newest epochs have no entry yet (a leader elected this moment): look below.
                self.ask -= 1
                return False
            return True
        if self.upper is None:
            self.upper, self.ask = epoch, epoch - 1
            return self._over(epoch)
        self.entries.append((self.upper, end))
        if end <= self.request.log_start or (self.upper, end) in self.request.earlier:
            return True
        self.upper, self.ask = epoch, epoch - 1
        return self._over(epoch)

    def _over(self, epoch: int) -> bool:
        if epoch > 0:
            return False
        # There is no epoch below 0 to ask about; its records begin where the log begins.
        self.entries.append((epoch, self.request.log_start))
        return True

    def chain(self, complete: bool) -> EpochChain:
        """The chain that was read, continued by the earlier one where that still holds above the log start."""
        newest_first = list(self.entries)
        if newest_first and newest_first[-1] in self.request.earlier:
            older = [entry for entry in self.request.earlier if entry[0] < newest_first[-1][0]]
            newest_first.extend(reversed(older))
        return EpochChain(from_log_start(tuple(reversed(newest_first)), self.request.log_start), complete)


def from_log_start(entries: tuple[EpochEntry, ...], log_start: int) -> tuple[EpochEntry, ...]:
    """The chain after log start has moved on: epochs without records are gone, the first begins at the log start."""
    kept = [entry for entry in entries if entry[1] > log_start]
    before_start = [entry for entry in entries if entry[1] <= log_start]
    if before_start:
        kept.insert(0, (before_start[-1][0], log_start))
    return tuple(kept)


async def fetch_chains(
    gateway: Gateway, node_id: int, requests: Mapping[TopicPartition, ChainRequest]
) -> dict[TopicPartition, EpochChain]:
    """The chains of partitions that `node_id` leads; one whose leader has moved meanwhile is left out."""
    walks = {tp: _Walk(request, [], request.leader_epoch) for tp, request in requests.items()}
    chains: dict[TopicPartition, EpochChain] = {}
    for _ in range(ROUNDS_MAX):
        if not walks:
            break
        epoch_ends = await _ask(gateway, node_id, {tp: walk.ask for tp, walk in walks.items()})
        for tp, walk in list(walks.items()):
            epoch_end = epoch_ends.get(tp)
            if epoch_end is None or epoch_end[0] is not ErrorCode.NONE:
                del walks[tp]
            elif walk.record_epoch_end(epoch_end[1], epoch_end[2]):
                chains[tp] = walk.chain(complete=True)
                del walks[tp]
    chains.update((tp, walk.chain(complete=False)) for tp, walk in walks.items())
    return chains


async def _ask(
    gateway: Gateway, node_id: int, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[ErrorCode, int, int]]:
    by_topic: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for tp, epoch in epochs.items():
        by_topic[tp.topic].append((tp.partition, epoch))
    topic_type = m.OffsetForLeaderEpochRequest.Topics
    request = m.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            topic_type(
                topic=topic,
                partitions=[
                    topic_type.Partitions(partition=p, current_leader_epoch=-1, leader_epoch=epoch)
                    for p, epoch in partition_epochs
                ],
            )
            for topic, partition_epochs in by_topic.items()
        ],
    )
    response, _ = await gateway.ask_node(node_id, request, m.OffsetForLeaderEpochResponse, at_least=3)
    return {
        TopicPartition(topic.topic, p.partition): (error_code(p.error_code), p.leader_epoch, p.end_offset)
        for topic in response.topics
        for p in topic.partitions
    }
