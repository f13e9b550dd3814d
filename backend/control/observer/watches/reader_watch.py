"""Readers of the remote tier: groups whose committed offset lies below the leader's local log, and broker numbers.

Both are asked seldom, beside the rounds: they cost one request per broker, and one page of metrics. The backend's
heartbeat carries the groups that read from the remote tier, so that pages read them from the database like all else.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.exposition import generate_latest

from backend.control.findings.finding_context import GroupOffset, count
from backend.control.findings.remote_read_growth import (
    BrokerReadings,
    ReadCounters,
    ReadGrowth,
    reads_fail,
    remember_readings,
)
from backend.control.findings.remote_reads import remote_reads
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.group_requests import GROUPS_MAX, Committed, CommittedOffsets, committed_offsets
from backend.control.observer.watches.broker_numbers import (
    INTERVAL_S,
    OWN_FAMILIES,
    BrokerMetricSource,
    BrokerNumbers,
    BrokerPages,
    TopicNumbers,
    parse_page,
)
from backend.control.observer.watches.meter_coverage import MeterCoverage, remember_coverage
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.storable import storable_key
from backend.store.writes.samples import PartitionSample
from backend.tiering.ids import TopicPartition

# 1,000 groups of 100 partitions; of more it is said how many are left out (`left_out`).
OFFSETS_MAX: Final = 100_000
# Groups with the most to read; 120 bytes each: 24 kB in a heartbeat.
READS_MAX: Final = 200
# While reads fail or expire the brokers' meters are read more often: their end is seen within a few seconds.
FAILING_INTERVAL_S: Final = 5.0
_BROKER: Final = re.compile(r'broker="(\d+)"')
_log = logging.getLogger(__name__)


class ReaderWatch:
    """The newest offsets of groups and numbers of brokers. Belongs to one event loop."""

    def __init__(
        self,
        gateway: Gateway,
        template: str | None,
        local: Callable[[], Iterable[BrokerMetricSource]] | None = None,
    ) -> None:
        self._gateway = gateway
        self._pages = BrokerPages(template)
        # An attached cluster has no brokers in this process.
        self._local = local if template is None else None
        self.numbers: Mapping[int, BrokerNumbers] = {}
        self.topic_numbers: Mapping[int, TopicNumbers] = {}
        self.readings: BrokerReadings = {}
        self._coverage: MeterCoverage | None = None
        self.silent: frozenset[int] = frozenset()
        """Brokers that do not answer, as the observer sees them: nobody misses their metrics."""
        self.offsets: Sequence[GroupOffset] = ()
        self.groups = GroupCounts(0, 0)
        self.asked_ms: int | None = None
        self.error: str | None = None
        self.left_out: str | None = None
        self._reads: dict[str, Any] = {"seen_ms": None, "count": 0, "rows": []}

    @property
    def reader_queues(self) -> dict[int, float]:
        """Reads that wait for a reader of the remote tier, by broker; a broker without this metric is missing."""
        result = ((i, numbers.values.get("reader_queue")) for i, numbers in self.numbers.items())
        return {broker_id: queue for broker_id, queue in result if queue is not None}

    @property
    def read_growth(self) -> list[ReadGrowth]:
        """Reads of the remote tier by the brokers' meters of the last minute, oldest first."""
        rows = [row for reading in self.readings.values() for row in reading.growth]
        return sorted(rows, key=lambda row: row.at_ms)

    @property
    def copy_lags(self) -> dict[tuple[int, str], float]:
        """Bytes in sealed segments that a broker has not copied, by broker and topic; those that tell it."""
        return {
            (broker_id, topic): lag
            for broker_id, topics in self.topic_numbers.items()
            for topic, values in topics.items()
            if (lag := values.get("copy_lag_bytes")) is not None
        }

    @property
    def passed_over(self) -> dict[tuple[str, str], int]:
        """Records of internal topics that brokers could not read since their start, by topic and reader."""
        return {
            (topic, f"broker {broker_id}"): round(count)
            for broker_id, topics in self.topic_numbers.items()
            for topic, values in topics.items()
            if (count := values.get("passed_over"))
        }

    def facts(self, partitions: Sequence[PartitionSample]) -> dict[str, Any]:
        """Groups below the local log of a leader, of the newest look, as JSON; ``cause``: why there is no newer one.

        ``left_out``: the groups and offsets that are not looked at, in words; None: all are. ``fetched_bytes``: what
        the brokers have fetched from the remote tier since their start; None: none tells it. ``meters``: brokers whose
        metrics are not read; None: nothing is tiered, or they were not read yet.
        """
        if self.asked_ms != self._reads["seen_ms"] and partitions:
            self._reads = reads_summary(self.offsets, partitions, self.asked_ms)
        fetched = [numbers.values.get("fetched_bytes") for numbers in self.numbers.values()]
        measured = [value for value in fetched if value is not None]
        meters = None
        if self._coverage is not None and any(row.tiered for row in partitions):
            meters = self._coverage.facts(now_ms())
        return {
            **self._reads,
            "fetched_bytes": round(sum(measured)) if measured else None,
            "cause": self.error,
            "left_out": self.left_out,
            "meters": meters,
        }

    async def run(self) -> None:
        """Looks until it is cancelled."""
        groups_due_s = 0.0
        while True:
            hosts = {broker_id: address.host for broker_id, address in self._gateway.brokers.items()}
            if hosts:
                await self._read_meters(hosts)
            if hosts and time.monotonic() >= groups_due_s:
                groups_due_s = time.monotonic() + INTERVAL_S
                await self._read_groups(hosts)
            pause_s = FAILING_INTERVAL_S if reads_fail(self.readings) else INTERVAL_S
            await asyncio.sleep(min(pause_s, INTERVAL_S) if hosts else min(1.0, INTERVAL_S))

    async def _read_meters(self, hosts: Mapping[int, str]) -> None:
        at_ms = now_ms()
        await self._pages.refresh(hosts, at_ms)
        numbers, topics = dict(self._pages.numbers), dict(self._pages.topics)
        if self._local is not None:
            for broker_id, (own, own_topics) in (await asyncio.to_thread(_own_numbers, self._local, at_ms)).items():
                numbers[broker_id], topics[broker_id] = own, own_topics
        self.readings = remember_readings(
            self.readings,
            {i: ReadCounters(n.values, topics.get(i, {})) for i, n in numbers.items() if n.at_ms is not None},
            at_ms,
        )
        self.numbers, self.topic_numbers = numbers, topics
        answering = hosts.keys() - self.silent
        self._coverage = remember_coverage(self._coverage or MeterCoverage(), answering, numbers, at_ms)

    async def _read_groups(self, hosts: Mapping[int, str]) -> None:
        at_ms = now_ms()
        try:
            newest = await committed_offsets(self._gateway, sorted(hosts))
        except (GatewayError, KafkaError) as error:
            # Not known is not the same as none: what was seen before stays with its time.
            self.error = f"The groups' offsets cannot be asked. {describe_failure(error)}"
            _log.debug("%s", self.error)
            return
        self.offsets, self.asked_ms, self.error = group_offsets(newest.groups, self.offsets, at_ms), at_ms, None
        self.groups = GroupCounts.of(newest.groups)
        before, self.left_out = self.left_out, left_out(newest)
        if self.left_out is not None and before is None:
            _log.warning("%s", self.left_out)


def reads_summary(
    offsets: Iterable[GroupOffset], partitions: Iterable[PartitionSample], seen_ms: int | None
) -> dict[str, Any]:
    """``count`` of what is read from the remote tier, and as ``rows`` the READS_MAX with the most left."""
    result = sorted(remote_reads(offsets, partitions, seen_ms or 0), key=lambda read: -read.offsets_left)
    names = ("group", "topic", "partition", "committed_offset", "offsets_left", "bytes_left", "moved", "members")
    rows = [{name: getattr(read, name) for name in names} for read in result[:READS_MAX]]
    return {"seen_ms": seen_ms, "count": len(result), "rows": rows}


def _own_numbers(
    local: Callable[[], Iterable[BrokerMetricSource]], at_ms: int
) -> dict[int, tuple[BrokerNumbers, TopicNumbers]]:
    """Of brokers whose registries can be read here; on a thread, as they may be asked over the network."""
    result: dict[int, tuple[BrokerNumbers, TopicNumbers]] = {}
    for source in local():
        text = generate_latest(source.only(OWN_FAMILIES)).decode()
        broker = _BROKER.search(text)
        if broker is not None:
            page = parse_page(text)
            result[int(broker[1])] = BrokerNumbers(int(broker[1]), at_ms, page.values, None), page.topics
    return result


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Groups that were read: those with members, and those without that have committed offsets."""

    with_members: int
    without_members: int

    @staticmethod
    def of(committed: Iterable[Committed]) -> GroupCounts:
        """Counts the groups of one reading."""
        members = [offsets.members for offsets in committed if offsets.members or offsets.offsets]
        return GroupCounts(sum(members), len(members) - sum(members))


def left_out(committed: CommittedOffsets) -> str | None:
    """The sentence that not all groups are looked at; None: all are."""
    parts = []
    if committed.left_out:
        parts.append(f"{count(committed.left_out, 'group')}, as a broker is asked for {GROUPS_MAX} at most")
    offsets = sum(len(group.offsets) for group in committed.groups) - OFFSETS_MAX
    if offsets > 0:
        parts.append(f"{count(offsets, 'committed offset')}, as {OFFSETS_MAX} are kept at most")
    return f"Not looked at: {'; '.join(parts)}. Those without members are left out first." if parts else None


def group_offsets(committed: Iterable[Committed], before: Iterable[GroupOffset], at_ms: int) -> tuple[GroupOffset, ...]:
    """The newest offsets, each with when it was last seen to move; groups with members first."""
    last = {(row.group, TopicPartition(row.topic, row.partition)): row for row in before}
    rows = []
    for offsets in sorted(committed, key=lambda offsets: not offsets.members):
        # A client may name a group with 32,767 bytes of anything.
        group = storable_key(offsets.group)
        for tp, offset in offsets.offsets:
            earlier = last.get((group, tp))
            moved = earlier is not None and earlier.committed != offset
            moved_ms = at_ms if moved else None if earlier is None else earlier.moved_ms
            rows.append(GroupOffset(group, tp.topic, tp.partition, offset, moved, offsets.members, moved_ms))
    return tuple(rows[:OFFSETS_MAX])
