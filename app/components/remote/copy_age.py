"""How long a copy to the remote tier has been open, and whether that is too long. Pure."""

from __future__ import annotations

from app.components.shared import format as fmt
from backend.store.queries.partitions import SegmentRow
from backend.tiering.segment_state import SegmentState, hung_after_ms


def is_hung(segment: SegmentRow, p99_ms: int | None, now_ms: int) -> bool:
    """Has an open copy that has not failed taken longer than three times the p99 of its partition's copies, and longer
    than its size needs on a slow store?
    """
    age_ms = now_ms - segment.copy_started_ms
    is_open = segment.state is SegmentState.COPY_SEGMENT_STARTED and not segment.superseded
    return is_open and age_ms > hung_after_ms(segment.segment_size_bytes, p99_ms)


def why_dangling(segment: SegmentRow, leader: tuple[int, str] | None) -> str | None:
    """Why an open copy will never finish; None: it may. ``leader``: the partition's leader now, and its topic id."""
    if leader is None:
        return "its partition is gone"
    leader_id, topic_id = leader
    if topic_id != segment.topic_id:
        return "its topic was deleted, and made again under its name"
    if leader_id != segment.copy_broker_id:
        return f"broker {leader_id} leads now"
    return "it failed, or a later copy began" if segment.superseded else None


def times_p99(age_ms: int, p99_ms: int | None) -> str:
    """``219× its p99``, or why that is not known."""
    if not p99_ms:
        return "p99 not known yet"
    return f"{fmt.count(round(age_ms / p99_ms))}× its p99" if age_ms >= 2 * p99_ms else "within its usual time"
