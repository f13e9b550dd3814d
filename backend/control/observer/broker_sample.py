"""What one broker is asked in a round: the offsets of its own replicas, the high watermarks it leads, its disks.

Budget per broker and round: 2 ListOffsets requests for all its replicas (-1, -2), 2 more for its tiered ones (-4, -5),
2 for the partitions it leads (-6, and -1 as a consumer for the high watermark), 1 DescribeLogDirs. They travel together
on one connection. 10,000 partitions x 3 replicas on 3 brokers are 5 chunks of 2,000 per request: at most 31 requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from backend.control.gateway.client import Gateway, sentence
from backend.control.gateway.errors import GatewayError, UnsupportedByBroker
from backend.control.gateway.log_dirs import BrokerDisk, describe_log_dirs
from backend.control.gateway.metadata import PartitionView
from backend.control.gateway.offsets import CONSUMER, OffsetAnswer, Sentinel, list_offsets
from backend.control.observer.facts import EpochPoint, ReplicaFacts
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

Answers = dict[TopicPartition, OffsetAnswer]
UNKNOWN: Final = OffsetAnswer(-1, -1, ErrorCode.UNKNOWN_SERVER_ERROR)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class BrokerSample:
    """A broker's answers of one round; `error` says why there are none."""

    broker_id: int
    replicas: dict[TopicPartition, ReplicaFacts] = field(default_factory=dict)
    pending: Answers = field(default_factory=dict)
    high_watermarks: Answers = field(default_factory=dict)
    disk: BrokerDisk | None = None
    error: str | None = None


async def sample_broker(
    gateway: Gateway, broker_id: int, partitions: Sequence[PartitionView], tiered: frozenset[bytes]
) -> BrokerSample:
    """Asks one broker about its replicas of `partitions`; `tiered` holds the ids of tiered topics. Never raises."""
    own = [p for p in partitions if broker_id in p.replicas]
    everything = [p.topic_partition for p in own]
    of_tiered = [p.topic_partition for p in own if p.topic_id in tiered]
    led = [p.topic_partition for p in own if p.leader == broker_id]
    led_tiered = [p.topic_partition for p in own if p.leader == broker_id and p.topic_id in tiered]
    try:
        asked: list[Coroutine[Any, Any, Answers]] = [
            _offsets(gateway, broker_id, Sentinel.EARLIEST, everything),
            _offsets(gateway, broker_id, Sentinel.EARLIEST_LOCAL, of_tiered),
            _offsets(gateway, broker_id, Sentinel.LATEST_TIERED, of_tiered),
            _offsets(gateway, broker_id, Sentinel.EARLIEST_PENDING_UPLOAD, led_tiered),
            _offsets(gateway, broker_id, Sentinel.LATEST, led, CONSUMER),
            _offsets(gateway, broker_id, Sentinel.LATEST, everything),
        ]
        disk, answers = await asyncio.gather(_disk(gateway, broker_id), asyncio.gather(*asked))
    except GatewayError as error:
        return BrokerSample(broker_id, error=str(error))
    earliest, local, remote, pending, high_watermarks, latest = answers
    sample = BrokerSample(broker_id, pending=pending, high_watermarks=high_watermarks, disk=disk)
    for tp in everything:
        at_tier = (local.get(tp), remote.get(tp)) if tp in local or tp in remote else None
        sample.replicas[tp] = _replica(
            broker_id, tp, earliest.get(tp, UNKNOWN), latest.get(tp, UNKNOWN), at_tier, sample
        )
    return sample


async def _offsets(
    gateway: Gateway, broker_id: int, sentinel: Sentinel, partitions: Sequence[TopicPartition], replica_id: int = -2
) -> Answers:
    if not partitions:
        return {}
    try:
        return await list_offsets(gateway, broker_id, sentinel, partitions, replica_id=replica_id)
    except UnsupportedByBroker:
        return {}  # an older broker: the page shows "?"


async def _disk(gateway: Gateway, broker_id: int) -> BrokerDisk | None:
    try:
        return await describe_log_dirs(gateway, broker_id)
    except (UnsupportedByBroker, KafkaError) as error:
        _log.debug("broker %d tells no log sizes: %s", broker_id, sentence(error))
        return None


def _replica(
    broker_id: int,
    tp: TopicPartition,
    earliest: OffsetAnswer,
    latest: OffsetAnswer,
    at_tier: tuple[OffsetAnswer | None, OffsetAnswer | None] | None,
    sample: BrokerSample,
) -> ReplicaFacts:
    size = sample.disk.replicas.get(tp) if sample.disk is not None else None
    problem = next((a.error for a in (earliest, latest) if a.error is not ErrorCode.NONE), None)
    if problem is not None:
        return ReplicaFacts(
            broker_id,
            local_bytes=size.size_bytes if size else None,
            log_dir=size.log_dir if size else None,
            error=f"Broker {broker_id} answered {problem.name} for {tp}.",
        )
    # A topic that is not tiered has nothing but local data; Kafka answers -4 as -2 and -5 as -1 there.
    local, remote = at_tier or (earliest, OffsetAnswer(-1, -1))
    known = [a for a in (earliest, local, remote) if a is not None and a.error is ErrorCode.NONE]
    return ReplicaFacts(
        broker_id,
        log_start=earliest.offset,
        local_start=_offset(local),
        latest_tiered=_offset(remote),
        log_end=latest.offset,
        points=tuple(dict.fromkeys(EpochPoint(a.offset, a.epoch) for a in known if a.epoch >= 0 and a.offset >= 0)),
        local_bytes=size.size_bytes if size else None,
        log_dir=size.log_dir if size else None,
    )


def _offset(answer: OffsetAnswer | None) -> int | None:
    return answer.offset if answer is not None and answer.error is ErrorCode.NONE else None
