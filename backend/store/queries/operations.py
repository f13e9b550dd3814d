"""Reads of the operations: what an estimate rests on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, select

from backend.store import tables as t
from backend.store.queries import config, health, partitions
from backend.tiering.estimate import PartitionState, RemoteSegment, estimate_partition, summarize
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


def bootstrap_estimate(connection: Connection, cluster_id: str, *, kafka_rules: bool, now_ms: int) -> dict[str, Any]:
    """What one new replica of every tiered partition would copy with the flag off and on, and how old that is."""
    rows = partitions.partitions(connection, cluster_id)
    compacted = {
        topic.topic
        for topic in config.topics(connection, cluster_id, tiered_only=True)
        if "compact" in ((topic.config or {}).get("cleanup.policy") or "")
    }
    segments: dict[tuple[str, int], list[RemoteSegment]] = defaultdict(list)
    for segment in local_segments(connection, cluster_id):
        key = (segment.topic_id, segment.partition)
        segments[key].append(RemoteSegment(segment.start_offset, segment.next_offset, segment.size_bytes))
    estimates = [
        estimate_partition(
            PartitionState(
                topic=row.topic,
                partition=row.partition,
                compacted=row.topic in compacted,
                log_start=row.log_start_offset,
                local_start=row.local_log_start_offset,
                log_end=row.log_end_offset,
                pending=row.earliest_pending_upload_offset,
                pending_reason=row.pending_reason,
                local_bytes=row.local_log_bytes,
            ),
            segments[row.topic_id, row.partition],
            kafka_rules=kafka_rules,
        )
        for row in rows
    ]
    oldest_ms = min((row.sampled_ms for row in rows), default=None)
    age_ms = None if oldest_ms is None else max(0, now_ms - oldest_ms)
    watched = next((c for c in health.clusters(connection) if c.cluster_id == cluster_id), None)
    limit_ms = health.STALE_AFTER_INTERVALS * (watched.sample_interval_ms if watched is not None else 0)
    return summarize(estimates) | {
        "oldest_sample_ms": oldest_ms,
        "age_ms": age_ms,
        "stale": age_ms is not None and age_ms > limit_ms,
    }
