"""Readers of the remote tier: groups whose committed offset lies below the leader's local log, and broker numbers.

Both are asked seldom, beside the rounds: they cost one request per broker, and one page of metrics. The backend's
heartbeat carries the groups that read from the remote tier, so that pages read them from the database like all else.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client.exposition import generate_latest

from backend.control.findings.finding_context import GroupOffset
from backend.control.findings.rules.reader_rules import remote_reads
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.group_requests import Committed, committed_offsets
from backend.control.observer.watches.broker_numbers import (
    INTERVAL_S,
    OWN_FAMILIES,
    BrokerMetricSource,
    BrokerNumbers,
    BrokerPages,
    parse,
)
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.storable import storable_key
from backend.store.writes.samples import PartitionSample
from backend.tiering.ids import TopicPartition

# 1,000 groups of 100 partitions; more is neither kept nor shown.
OFFSETS_MAX: Final = 100_000
# Groups with the most to read; 120 bytes each: 24 kB in a heartbeat.
READS_MAX: Final = 200
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
        self.offsets: Sequence[GroupOffset] = ()
        self.asked_ms: int | None = None
        self.error: str | None = None
        self._reads: dict[str, Any] = {"seen_ms": None, "count": 0, "rows": []}

    @property
    def reader_queues(self) -> dict[int, float]:
        """Reads that wait for a reader of the remote tier, by broker; a broker without this metric is missing."""
        result = ((i, numbers.values.get("reader_queue")) for i, numbers in self.numbers.items())
        return {broker_id: queue for broker_id, queue in result if queue is not None}

    @property
    def passed_over(self) -> dict[int, int]:
        """Records of internal topics that brokers could not read since their start; those of ours that tell any."""
        result = ((i, numbers.values.get("passed_over")) for i, numbers in self.numbers.items())
        return {broker_id: round(count) for broker_id, count in result if count}

    def facts(self, partitions: Sequence[PartitionSample]) -> dict[str, Any]:
        """Groups below the local log of a leader, of the newest look, as JSON; ``cause``: why there is no newer one.

        ``fetched_bytes``: what the brokers have fetched from the remote tier since their start; None: none tells it.
        """
        if self.asked_ms != self._reads["seen_ms"] and partitions:
            self._reads = reads_summary(self.offsets, partitions, self.asked_ms)
        fetched = [numbers.values.get("fetched_bytes") for numbers in self.numbers.values()]
        measured = [value for value in fetched if value is not None]
        return {**self._reads, "fetched_bytes": round(sum(measured)) if measured else None, "cause": self.error}

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            hosts = {broker_id: address.host for broker_id, address in self._gateway.brokers.items()}
            if hosts:
                await self._sample(hosts)
            await asyncio.sleep(INTERVAL_S if hosts else min(1.0, INTERVAL_S))

    async def _sample(self, hosts: Mapping[int, str]) -> None:
        at_ms = now_ms()
        await self._pages.refresh(hosts, at_ms)
        self.numbers = dict(self._pages.numbers)
        if self._local is not None:
            self.numbers |= await asyncio.to_thread(_own_numbers, self._local, at_ms)
        try:
            newest = await committed_offsets(self._gateway, sorted(hosts))
        except (GatewayError, KafkaError) as error:
            # Not known is not the same as none: what was seen before stays with its time.
            self.error = f"The groups' offsets cannot be asked. {describe_failure(error)}"
            _log.debug("%s", self.error)
            return
        self.offsets, self.asked_ms, self.error = _moved(newest, self.offsets), at_ms, None


def reads_summary(
    offsets: Iterable[GroupOffset], partitions: Iterable[PartitionSample], seen_ms: int | None
) -> dict[str, Any]:
    """``count`` of what is read from the remote tier, and as ``rows`` the TOLD_MAX with the most left."""
    result = sorted(remote_reads(offsets, partitions), key=lambda read: -read.offsets_left)
    names = ("group", "topic", "partition", "committed_offset", "offsets_left", "bytes_left", "moved")
    rows = [{name: getattr(read, name) for name in names} for read in result[:READS_MAX]]
    return {"seen_ms": seen_ms, "count": len(result), "rows": rows}


def _own_numbers(local: Callable[[], Iterable[BrokerMetricSource]], at_ms: int) -> dict[int, BrokerNumbers]:
    """Of brokers whose registries can be read here; on a thread, as they may be asked over the network."""
    result: dict[int, BrokerNumbers] = {}
    for source in local():
        text = generate_latest(source.only(OWN_FAMILIES)).decode()
        broker = _BROKER.search(text)
        if broker is not None:
            result[int(broker[1])] = BrokerNumbers(int(broker[1]), at_ms, parse(text), None)
    return result


def _moved(committed: Iterable[Committed], before: Iterable[GroupOffset]) -> tuple[GroupOffset, ...]:
    offsets_before: dict[tuple[str, TopicPartition], int] = {
        (row.group, TopicPartition(row.topic, row.partition)): row.committed for row in before
    }
    rows = [
        GroupOffset(group, tp.topic, tp.partition, offset, offsets_before.get((group, tp), offset) != offset)
        for group_offsets in committed
        # A client may name a group with 32,767 bytes of anything.
        for group in (storable_key(group_offsets.group),)
        for tp, offset in group_offsets.offsets
    ]
    return tuple(rows[:OFFSETS_MAX])
