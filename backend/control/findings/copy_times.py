"""Times of copies to the remote tier: the brokers' task interval, and how long an open copy may well take. Pure."""

from __future__ import annotations

from typing import Final

from backend.control.findings.finding_context import FindingContext
from backend.store.queries.partitions import SegmentRow
from backend.tiering.segment_state import hung_after_ms

# Kafka's default of remote.log.manager.task.interval.ms.
TASK_INTERVAL_MS: Final = 30_000


def task_interval_ms(context: FindingContext, broker_id: int) -> int:
    """How often a broker looks for segments to copy; what failed is tried again then."""
    return context.task_intervals_ms.get(broker_id, TASK_INTERVAL_MS)


def expected_ms(context: FindingContext, segment: SegmentRow) -> float:
    """How long an open copy may take; where its partition has no history, the slowest other one that copies tells."""
    p99_ms = context.p99_ms.get((segment.topic, segment.partition))
    if p99_ms is None:
        p99_ms = context.cluster_p99_ms
    return hung_after_ms(segment.segment_size_bytes, p99_ms)


def is_expected(context: FindingContext, segment: SegmentRow) -> bool:
    """Whether an open copy may well finish: a large segment under a quota takes its time."""
    return (context.ledger_ms or context.at_ms) - segment.copy_started_ms <= expected_ms(context, segment)
