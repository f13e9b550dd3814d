"""The requests to one broker in a round: the offsets of its replicas, the high watermarks it leads, its disks.

Budget per broker and round: 2 ListOffsets requests for all its replicas (-1, -2), 2 more for its tiered ones (-4, -5),
3 for the partitions it leads (-6, and -1 as a consumer for the high watermark, as one of committed records for the last
stable offset), 1 DescribeLogDirs. They travel together on one connection. 10,000 partitions x 3 replicas on 3 brokers
are 5 chunks of 2,000 per request, and 2 of those it leads: at most 27 requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from backend.control.gateway.gateway_errors import GatewayError, UnsupportedByBroker
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.log_dir_requests import BrokerDisk, ReplicaSize, describe_log_dirs
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.gateway.requests.offset_requests import (
    CONSUMER,
    READ_COMMITTED,
    ListedOffset,
    ListedOffsets,
    OffsetListing,
)
from backend.control.memo import Memo
from backend.control.observer.sampling.cluster_facts import EpochPoint, ReplicaFacts
from backend.protocol import offset_timestamps
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

UNKNOWN: Final = ListedOffset(-1, -1, ErrorCode.UNKNOWN_SERVER_ERROR)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class BrokerSample:
    """A broker's answers of one round; `error` says why there are none."""

    broker_id: int
    replicas: dict[TopicPartition, ReplicaFacts] = field(default_factory=dict)
    pending: ListedOffsets = field(default_factory=dict)
    high_watermarks: ListedOffsets = field(default_factory=dict)
    last_stable: ListedOffsets = field(default_factory=dict)
    disk: BrokerDisk | None = None
    error: str | None = None


@dataclass(slots=True)
class _PartitionSelection:
    """The partitions of a cluster that a broker is asked about."""

    replicas: list[TopicPartition]
    tiered: list[TopicPartition]
    led: list[TopicPartition]
    led_tiered: list[TopicPartition]

    @staticmethod
    def of(broker_id: int, partitions: Sequence[PartitionMetadata], tiered: frozenset[bytes]) -> _PartitionSelection:
        """`tiered` holds the ids of tiered topics."""
        own = [p for p in partitions if broker_id in p.replicas]
        led = [p for p in own if p.leader == broker_id]
        return _PartitionSelection(
            [p.topic_partition for p in own],
            [p.topic_partition for p in own if p.topic_id in tiered],
            [p.topic_partition for p in led],
            [p.topic_partition for p in led if p.topic_id in tiered],
        )

    def only(self, partitions: AbstractSet[TopicPartition]) -> _PartitionSelection:
        """The selection without all that is not in `partitions`."""
        return _PartitionSelection(
            [tp for tp in self.replicas if tp in partitions],
            [tp for tp in self.tiered if tp in partitions],
            [tp for tp in self.led if tp in partitions],
            [tp for tp in self.led_tiered if tp in partitions],
        )


@dataclass(frozen=True, slots=True)
class _BrokerOffsets:
    """Offsets as a broker listed them, by partition."""

    earliest: ListedOffsets
    earliest_local: ListedOffsets
    latest_tiered: ListedOffsets
    pending: ListedOffsets
    high_watermarks: ListedOffsets
    last_stable: ListedOffsets
    latest: ListedOffsets

    def updated(self, newer: _BrokerOffsets) -> _BrokerOffsets:
        """The same, with the offsets that were listed later."""
        return _BrokerOffsets(
            self.earliest | newer.earliest,
            self.earliest_local | newer.earliest_local,
            self.latest_tiered | newer.latest_tiered,
            self.pending | newer.pending,
            self.high_watermarks | newer.high_watermarks,
            self.last_stable | newer.last_stable,
            self.latest | newer.latest,
        )


class _BrokerListing:
    """All that is listed of one broker's replicas, again and again about nearly always the same partitions."""

    def __init__(self, gateway: Gateway, broker_id: int) -> None:
        self._gateway = gateway
        self._earliest = OffsetListing(broker_id, offset_timestamps.EARLIEST)
        self._earliest_local = OffsetListing(broker_id, offset_timestamps.EARLIEST_LOCAL)
        self._latest_tiered = OffsetListing(broker_id, offset_timestamps.LATEST_TIERED)
        self._pending = OffsetListing(broker_id, offset_timestamps.EARLIEST_PENDING_UPLOAD)
        self._high_watermark = OffsetListing(broker_id, offset_timestamps.LATEST, CONSUMER)
        self._last_stable = OffsetListing(broker_id, offset_timestamps.LATEST, CONSUMER, READ_COMMITTED)
        self._latest = OffsetListing(broker_id, offset_timestamps.LATEST)

    async def ask(self, selection: _PartitionSelection) -> _BrokerOffsets:
        """The broker's answers. Raises GatewayError."""
        listed = await asyncio.gather(
            self._offsets(self._earliest, selection.replicas),
            self._offsets(self._earliest_local, selection.tiered),
            self._offsets(self._latest_tiered, selection.tiered),
            self._offsets(self._pending, selection.led_tiered),
            self._offsets(self._high_watermark, selection.led),
            # After the high watermark: what arrives in between must not look like an open transaction.
            self._offsets(self._last_stable, selection.led),
            self._offsets(self._latest, selection.replicas),
        )
        return _BrokerOffsets(*listed)

    async def _offsets(self, listing: OffsetListing, partitions: Sequence[TopicPartition]) -> ListedOffsets:
        try:
            return await listing.ask(self._gateway, partitions)
        except UnsupportedByBroker:
            return {}  # an older broker: the page shows "?"


class BrokerSampler:
    """Samples one broker each round. An unchanged response keeps the previous round's object."""

    def __init__(self, gateway: Gateway, broker_id: int) -> None:
        self._gateway = gateway
        self._broker_id = broker_id
        self._of_all = _BrokerListing(gateway, broker_id)
        self._of_moving = _BrokerListing(gateway, broker_id)
        self._offsets: _BrokerOffsets | None = None  # None: not listed, or the broker has failed since
        self._disk: BrokerDisk | None = None
        self._view: tuple[Sequence[PartitionMetadata], frozenset[bytes]] | None = None
        self._selection = _PartitionSelection([], [], [], [])
        self._replicas: Memo[TopicPartition, ReplicaFacts] = Memo()

    @property
    def has_failed(self) -> bool:
        """Whether it listed no offsets when it was asked last, or was never asked."""
        return self._offsets is None

    async def disk(self) -> BrokerDisk | None:
        """The broker's disk now; None: it does not tell."""
        try:
            self._disk = await describe_log_dirs(self._gateway, self._broker_id, previous=self._disk)
        except (GatewayError, KafkaError) as error:
            _log.debug("broker %d tells no log sizes: %s", self._broker_id, describe_failure(error))
            return None
        return self._disk

    async def sample(
        self,
        partitions: Sequence[PartitionMetadata],
        tiered: frozenset[bytes],
        moving: AbstractSet[TopicPartition] | None = None,
    ) -> BrokerSample:
        """Asks about its replicas of `partitions`; `tiered` holds the ids of tiered topics. Never raises.

        `moving`: only these are listed, once `disk` was asked for; the others are as they were listed before.
        """
        if self._view is None or self._view[0] is not partitions or self._view[1] != tiered:
            self._view = partitions, tiered
            self._selection = _PartitionSelection.of(self._broker_id, partitions, tiered)
        selection = self._selection
        before, self._offsets = self._offsets, None
        try:
            if moving is not None and before is not None:
                offsets = before.updated(await self._of_moving.ask(selection.only(moving)))
            else:
                self._disk, offsets = await asyncio.gather(self._described_disk(), self._of_all.ask(selection))
        except GatewayError as error:
            return BrokerSample(self._broker_id, error=str(error))
        self._offsets = offsets
        local, remote = offsets.earliest_local, offsets.latest_tiered
        sizes = self._disk.replicas if self._disk is not None else {}
        offline = self._disk.offline_logs if self._disk is not None else {}
        self._replicas.begin_round()
        facts = {
            tp: self._replicas.value(
                tp,
                _replica,
                self._broker_id,
                tp,
                offsets.earliest.get(tp, UNKNOWN),
                offsets.latest.get(tp, UNKNOWN),
                (local.get(tp), remote.get(tp)) if tp in local or tp in remote else None,
                sizes.get(tp),
                offline.get(tp),
            )
            for tp in selection.replicas
        }
        return BrokerSample(
            self._broker_id, facts, offsets.pending, offsets.high_watermarks, offsets.last_stable, self._disk
        )

    async def _described_disk(self) -> BrokerDisk | None:
        try:
            return await describe_log_dirs(self._gateway, self._broker_id, previous=self._disk)
        except (UnsupportedByBroker, KafkaError) as error:
            _log.debug("broker %d tells no log sizes: %s", self._broker_id, describe_failure(error))
            return None


def _replica(
    broker_id: int,
    tp: TopicPartition,
    earliest: ListedOffset,
    latest: ListedOffset,
    at_tier: tuple[ListedOffset | None, ListedOffset | None] | None,
    size: ReplicaSize | None,
    offline: str | None,
) -> ReplicaFacts:
    problem = next((a.error for a in (earliest, latest) if a.error is not ErrorCode.NONE), None)
    if problem is not None:
        return ReplicaFacts(
            broker_id,
            local_bytes=size.size_bytes if size else None,
            log_dir=size.log_dir if size else None,
            error=f"Broker {broker_id} answered {problem.name} for {tp}."
            if offline is None
            else f"Broker {broker_id} cannot use its log of {tp}: {offline}.",
        )
    # A topic that is not tiered has nothing but local data; Kafka answers -4 as -2 and -5 as -1 there.
    local, remote = at_tier or (earliest, ListedOffset(-1, -1))
    answered = [a for a in (earliest, local, remote) if a is not None and a.error is ErrorCode.NONE]
    return ReplicaFacts(
        broker_id,
        log_start=earliest.offset,
        local_start=_offset(local),
        latest_tiered=_offset(remote),
        log_end=latest.offset,
        points=tuple(dict.fromkeys(EpochPoint(a.offset, a.epoch) for a in answered if a.epoch >= 0 and a.offset >= 0)),
        local_bytes=size.size_bytes if size else None,
        log_dir=size.log_dir if size else None,
    )


def _offset(listed: ListedOffset | None) -> int | None:
    return listed.offset if listed is not None and listed.error is ErrorCode.NONE else None
