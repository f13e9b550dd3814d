"""Places the replicas of new partitions: striped over racks and brokers (Kafka's StripedReplicaPlacer).

Every broker leads about as many partitions as any other, replicas of a partition are on different racks as far as there
are racks, and the followers of two partitions with one leader differ. Fenced brokers are used only when there are too
few others, and never lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from backend.engine.controller.image.metadata_image import BrokerRegistration
from backend.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")
# Randomness as an argument: an int in [0, stop).
Choose = Callable[[int], int]


@dataclass(slots=True)
class _Ring:
    """Brokers in a shuffled ring; each new round starts one place further."""

    brokers: list[int] = field(default_factory=list)
    round: int = 0
    index: int = 0
    offset: int = 0

    def shuffle(self, choose: Choose) -> None:
        self.brokers.sort()
        _shuffle(self.brokers, choose)
        self.round = self.index = self.offset = 0

    def next(self, round_: int) -> int | None:
        if not self.brokers:
            return None
        if self.round != round_:
            self.round = round_
            self.index = 0
            self.offset = (self.offset + 1) % len(self.brokers)
        if self.index >= len(self.brokers):
            return None
        broker = self.brokers[(self.index + self.offset) % len(self.brokers)]
        self.index += 1
        return broker


@dataclass(slots=True)
class _Rack:
    unfenced: _Ring = field(default_factory=_Ring)
    fenced: _Ring = field(default_factory=_Ring)

    def next(self, round_: int) -> int | None:
        broker = self.unfenced.next(round_)
        return self.fenced.next(round_) if broker is None else broker


class ReplicaPlacer:
    """Places the partitions of one request."""

    def __init__(self, brokers: Iterable[BrokerRegistration], choose: Choose) -> None:
        self._choose = choose
        self._racks: dict[str | None, _Rack] = {}
        self._unfenced_count = self._broker_count = 0
        self._round = self._rack_offset = 0
        for broker in brokers:
            rack = self._racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.id)
            self._unfenced_count += not broker.fenced
            self._broker_count += 1
        self._names = sorted(self._racks, key=lambda name: (name is not None, name or ""))
        self._shuffle()

    def place(self, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
        """Replicas of each partition, the leader first. KafkaError INVALID_REPLICATION_FACTOR when it cannot be."""
        if replication_factor <= 0:
            raise _invalid(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
        if not self._unfenced_count:
            raise _invalid("All brokers are currently fenced.")
        if replication_factor > self._broker_count:
            raise _invalid(
                f"The target replication factor of {replication_factor} cannot be reached because only"
                f" {self._broker_count} broker(s) are registered or some brokers have all their log"
                " directories cordoned."
            )
        return [self._place_one(replication_factor) for _ in range(partitions)]

    def _shuffle(self) -> None:
        _shuffle(self._names, self._choose)
        for rack in self._racks.values():
            rack.unfenced.shuffle(self._choose)
            rack.fenced.shuffle(self._choose)

    def _place_one(self, replication_factor: int) -> tuple[int, ...]:
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            # After as many partitions as live brokers the pattern would repeat itself.
            self._shuffle()
            self._round = 0
        if self._rack_offset == len(self._names):
            self._rack_offset = 0
        leader_rack, leader = self._leader()
        replicas = [leader]
        rack_index = self._rack_offset
        skip = leader_rack
        while len(replicas) < replication_factor:
            if rack_index == skip:
                # The leader's rack has had its turn in the first pass.
                skip = -1
            else:
                broker = self._racks[self._names[rack_index]].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            rack_index = (rack_index + 1) % len(self._names)
        self._round += 1
        self._rack_offset += 1
        return tuple(replicas)

    def _leader(self) -> tuple[int, int]:
        rack_index = self._rack_offset
        while True:
            broker = self._racks[self._names[rack_index]].unfenced.next(self._round)
            if broker is not None:
                return rack_index, broker
            rack_index = (rack_index + 1) % len(self._names)


def _shuffle(items: list[T], choose: Choose) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = choose(last + 1)
        items[last], items[other] = items[other], items[last]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
