"""Reads what the estimate needs from the samples and the ledger."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection

from backend.control.clock import now_ms
from backend.control.operations.estimate import (
    PartitionState,
    RemoteSegment,
    estimate_partition,
    summarize,
)
from backend.control.operations.kinds import Site
from backend.control.operations.plan import Json
from backend.store.queries import config, health, operations, partitions

STALE_AFTER_INTERVALS = health.STALE_AFTER_INTERVALS


async def read_estimate(site: Site, *, kafka_rules: bool) -> Json:
    """The estimate of one new replica for every tiered partition, with the age of the samples it rests on."""
    return await site.database.read(lambda c: _estimate(c, site.cluster_id, kafka_rules))


def _estimate(connection: Connection, cluster_id: str, kafka_rules: bool) -> Json:
    rows = partitions.partitions(connection, cluster_id)
    compacted = {
        topic.topic
        for topic in config.topics(connection, cluster_id, tiered_only=True)
        if "compact" in ((topic.config or {}).get("cleanup.policy") or "")
    }
    segments: dict[tuple[str, int], list[RemoteSegment]] = defaultdict(list)
    for segment in operations.local_segments(connection, cluster_id):
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
    age_ms = None if oldest_ms is None else max(0, now_ms() - oldest_ms)
    watched = next((c for c in health.clusters(connection) if c.cluster_id == cluster_id), None)
    limit_ms = STALE_AFTER_INTERVALS * (watched.sample_interval_ms if watched is not None else 0)
    return summarize(estimates) | {
        "oldest_sample_ms": oldest_ms,
        "age_ms": age_ms,
        "stale": age_ms is not None and age_ms > limit_ms,
    }
