"""Finds whose transactions hold partitions: asked seldom, and only of partitions whose last stable offset stands still.

One DescribeProducers to each leader concerned, one ListTransactions and DescribeTransactions to each broker: at most
three requests a broker every `INTERVAL_S`, about 20 partitions at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.findings.still_offsets import PartitionKey, PartitionStill
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.transaction_requests import OpenTransaction, open_transactions
from backend.store.writes.samples import PartitionSample
from backend.tiering.ids import TopicPartition

INTERVAL_S: Final = 5.0
# Transactions last milliseconds; one that is asked about then is known when the finding opens, 30 s after it began.
HELD_MS_MIN: Final = 15_000
# A transaction of a partition does not change while the offset stands; the coordinator's state does.
AGAIN_S: Final = 60.0
# An answer has a line for each producer that wrote to the partition in a day: some thousands, 40 bytes each.
PARTITIONS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition with an open transaction from `offset` on."""

    topic: str
    partition: int
    leader: int
    offset: int

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.partition


def held_partitions(
    still: Mapping[PartitionKey, PartitionStill], partitions: Iterable[PartitionSample], at_ms: int
) -> list[HeldPartition]:
    """Partitions whose last stable offset has stood still for long, the longest first."""
    leaders = {(row.topic, row.partition): row.leader for row in partitions} if still else {}
    held = [
        (stable.since_ms, HeldPartition(*key, leaders[key], stable.offset))
        for key, offsets in still.items()
        if (stable := offsets.stable) is not None
        and at_ms - stable.since_ms >= HELD_MS_MIN
        and leaders.get(key, -1) >= 0
    ]
    return [partition for _, partition in sorted(held, key=lambda pair: (pair[0], pair[1].key))]


def selection(
    held: Iterable[HeldPartition], asked_s: Mapping[HeldPartition, float], now_s: float
) -> list[HeldPartition]:
    """The partitions to ask about now: those never asked first, then those whose answer is old."""
    due = [p for p in held if p not in asked_s or now_s - asked_s[p] >= AGAIN_S]
    return sorted(due, key=lambda p: asked_s.get(p, 0.0))[:PARTITIONS_MAX]


class TransactionWatch:
    """The open transactions of held partitions. Belongs to one event loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._held: list[HeldPartition] = []
        self._asked_s: dict[HeldPartition, float] = {}
        self.transactions: Mapping[PartitionKey, OpenTransaction] = {}

    def watch(self, held: list[HeldPartition]) -> None:
        """The partitions of the newest round; answers about others are forgotten."""
        self._held = held
        current = {partition.key: partition for partition in held}
        self._asked_s = {p: at_s for p, at_s in self._asked_s.items() if current.get(p.key) == p}
        self.transactions = {
            key: transaction
            for key, transaction in self.transactions.items()
            if key in current and current[key].offset == transaction.start_offset
        }

    async def run(self) -> None:
        """Asks until it is cancelled."""
        while True:
            await self.refresh(time.monotonic())
            await asyncio.sleep(INTERVAL_S)

    async def refresh(self, now_s: float) -> None:
        """Asks about what is due; never raises for a broker that does not answer."""
        due = selection(self._held, self._asked_s, now_s)
        if not due:
            return
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in due:
            by_leader[partition.leader].append(TopicPartition(partition.topic, partition.partition))
        open_now = await open_transactions(self._gateway, by_leader, self._gateway.brokers)
        self._asked_s |= dict.fromkeys(due, now_s)
        self.transactions = {**self.transactions, **{(t.topic, t.partition): t for t in open_now}}
        self.watch(self._held)
