"""Times of copies to the remote tier: the brokers' task interval, and how long an open copy may well take. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backend.control.findings.finding_context import FindingContext
from backend.control.formatting import in_bytes
from backend.store.queries.partitions import SegmentRow
from backend.tiering.segment_state import HUNG_BYTES_PER_S, HUNG_FACTOR, SegmentState, hung_after_ms

# Kafka's default of remote.log.manager.task.interval.ms.
TASK_INTERVAL_MS: Final = 30_000
# Clients of a store try again by themselves for 10 to 15 s.
SLOW_COPY_MS: Final = 20_000
# A topic that is being filled may have two partitions that are behind.
STORE_PARTITIONS_MIN: Final = 3
COPY_LIMIT: Final = "remote.log.manager.copy.max.bytes.per.second"


def task_interval_ms(context: FindingContext, broker_id: int) -> int:
    """How often a broker looks for segments to copy; what failed is tried again then."""
    return context.task_intervals_ms.get(broker_id, TASK_INTERVAL_MS)


def copy_limit_sentence(context: FindingContext, broker_ids: Iterable[int]) -> str:
    """The limits that the brokers have for their copies, as a sentence; empty where none has one."""
    limited = [broker_id for broker_id in sorted(broker_ids) if broker_id in context.copy_limits]
    if not limited:
        return ""
    limits = ", ".join(f"broker {broker_id} {in_bytes(context.copy_limits[broker_id])}/s" for broker_id in limited)
    return f" Copies have a limit ({COPY_LIMIT}): {limits}."


def expected_ms(context: FindingContext, segment: SegmentRow) -> float:
    """How long an open copy may take; where its partition has no history, the slowest other one that copies tells."""
    p99_ms = context.p99_ms.get((segment.topic, segment.partition))
    if p99_ms is None:
        p99_ms = context.cluster_p99_ms
    return hung_after_ms(segment.segment_size_bytes, p99_ms)


def slow_together(context: FindingContext) -> list[SegmentRow]:
    """Open copies that take far longer than usual, where those of several brokers do at once: the store is slow, or the
    way to it, and no copy hangs by itself. Where fewer do, those of a moment ago: between two slow copies a store is
    no faster.
    """
    return _slow_now(context) or list(context.slow_copies)


def _slow_now(context: FindingContext) -> list[SegmentRow]:
    if context.ledger_ms is None:
        return []
    leaders = {(row.topic, row.partition): row.leader for row in context.partitions}
    slow = [
        segment
        for segment in context.open_segments
        if segment.state is SegmentState.COPY_SEGMENT_STARTED
        and not segment.superseded
        and leaders.get((segment.topic, segment.partition)) == segment.copy_broker_id
        and context.ledger_ms - segment.copy_started_ms >= _slow_after_ms(context, segment)
    ]
    several = len({(s.topic, s.partition) for s in slow}) >= STORE_PARTITIONS_MIN
    return slow if several and len({s.copy_broker_id for s in slow}) >= 2 else []


def _slow_after_ms(context: FindingContext, segment: SegmentRow) -> float:
    p99_ms = context.p99_ms.get((segment.topic, segment.partition), context.cluster_p99_ms) or 0
    return max(SLOW_COPY_MS, HUNG_FACTOR * p99_ms, segment.segment_size_bytes * 1_000 / HUNG_BYTES_PER_S)


def is_expected(context: FindingContext, segment: SegmentRow) -> bool:
    """Whether an open copy may well finish: a large segment under a quota takes its time."""
    return (context.ledger_ms or context.at_ms) - segment.copy_started_ms <= expected_ms(context, segment)
