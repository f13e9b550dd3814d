"""Reads of the operations: what an estimate rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, select

from backend.store import tables as t
from backend.tiering.segment_state import SegmentState

# 20,000 partitions with 10 local segments each: 200,000 rows of 60 bytes, 12 MB for the time of one plan.
SEGMENTS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A finished remote segment whose records the leader may still hold locally. Offsets `[start, next)`."""

    topic_id: str
    partition: int
    start_offset: int
    next_offset: int
    size_bytes: int


def local_segments(connection: Connection, cluster_id: str, limit: int = SEGMENTS_MAX) -> list[LocalSegment]:
    """Finished segments that end above their partition's local start."""
    segment, current = t.segment, t.partition_current
    same = and_(
        current.c.cluster_id == segment.c.cluster_id,
        current.c.topic == segment.c.topic,
        current.c.topic_id == segment.c.topic_id,
        current.c.partition == segment.c.partition,
    )
    query = (
        select(
            segment.c.topic_id,
            segment.c.partition,
            segment.c.start_offset,
            (segment.c.end_offset + 1).label("next_offset"),
            segment.c.segment_size_bytes.label("size_bytes"),
        )
        .select_from(segment.join(current, same))
        .where(
            segment.c.cluster_id == cluster_id,
            segment.c.state == int(SegmentState.COPY_SEGMENT_FINISHED),
            segment.c.end_offset >= current.c.local_log_start_offset,
        )
        .limit(limit)
    )
    return [LocalSegment(**row._mapping) for row in connection.execute(query)]
