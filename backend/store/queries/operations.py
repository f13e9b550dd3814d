"""Reads of the operations: what an estimate rests on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, and_, func, or_, select

from backend.store import tables as t
from backend.store.queries import config, health, partitions
from backend.tiering.estimate import PartitionEstimate, PartitionState, RemoteSegment, estimate_partition, summarize
from backend.tiering.segment_state import SegmentState

# 20,000 partitions with 10 local segments each: 200,000 rows of 60 bytes, 12 MB for the time of one plan.
SEGMENTS_MAX: Final = 200_000
# Bound parameters of one statement: SQLite takes 32,766.
TOPICS_A_QUERY: Final = 500
REASSIGN: Final = "reassign"
PRODUCED_WINDOW_MS: Final = 300_000
# A shorter time says nothing: producers come in bursts.
PRODUCED_SPAN_MS: Final = 30_000


def local_segments(
    connection: Connection, cluster_id: str, limit: int = SEGMENTS_MAX
) -> dict[tuple[str, int], list[RemoteSegment]]:
    """Finished segments that end above their partition's local start, found from there on in the order of offsets, by
    topic id and partition: those whose records the leader may still hold locally.

    Of those that begin below the local start it is the last: all others end below it too, unless copies overlap.
    """
    segment, before, current = t.segment, t.segment.alias("before"), t.partition_current
    finished = int(SegmentState.COPY_SEGMENT_FINISHED)
    # Without it all segments of the cluster would be read, 2.6 million of them for the 10,000 that count.
    first = (
        select(before.c.start_offset)
        .where(
            before.c.cluster_id == current.c.cluster_id,
            before.c.topic == current.c.topic,
            before.c.partition == current.c.partition,
            before.c.start_offset <= current.c.local_log_start_offset,
            before.c.topic_id == current.c.topic_id,
            before.c.state == finished,
        )
        .order_by(before.c.start_offset.desc())
        .limit(1)
        .scalar_subquery()
    )
    start = current.c.local_log_start_offset
    # The limit keeps SQLite from merging this query, and its column names the cluster of the segments: with the value
    # itself SQLite from 3.41 on begins with all segments of the cluster.
    local = (
        select(
            current.c.cluster_id,
            current.c.topic,
            current.c.topic_id,
            current.c.partition,
            start.label("local_start"),
            func.coalesce(first, start).label("first"),
        )
        .where(current.c.cluster_id == cluster_id, start.is_not(None))
        .limit(partitions.ROWS_MAX)
        .subquery("local")
    )
    same = and_(
        segment.c.cluster_id == local.c.cluster_id,
        segment.c.topic == local.c.topic,
        segment.c.partition == local.c.partition,
        segment.c.start_offset >= local.c.first,
        segment.c.topic_id == local.c.topic_id,
    )
    query = (
        select(
            segment.c.topic_id,
            segment.c.partition,
            segment.c.start_offset,
            (segment.c.end_offset + 1),
            segment.c.segment_size_bytes,
        )
        .select_from(local.join(segment, same))
        .where(segment.c.state == finished, segment.c.end_offset >= local.c.local_start)
        .limit(limit)
    )
    segments: dict[tuple[str, int], list[RemoteSegment]] = defaultdict(list)
    # All rows at once and unpacked as tuples: one by one they take three times as long.
    for topic_id, partition, *columns in connection.execute(query).all():
        segments[topic_id, partition].append(RemoteSegment(*columns))
    return segments


def bootstrap_estimate(connection: Connection, cluster_id: str, *, kafka_rules: bool, now_ms: int) -> dict[str, Any]:
    """Bytes that one new replica of every tiered partition would copy with the flag off and on, and their age."""
    rows = partitions.partitions(connection, cluster_id)
    estimates = partition_estimates(connection, cluster_id, rows, kafka_rules=kafka_rules)
    return summarize(estimates) | sample_age(connection, cluster_id, rows, now_ms)


def partition_estimates(
    connection: Connection, cluster_id: str, rows: Sequence[partitions.PartitionRow], *, kafka_rules: bool
) -> list[PartitionEstimate]:
    """Bytes that one new replica of each of these partitions would copy with the flag off and on, in their order."""
    compacted = {
        topic.topic
        for topic in config.topics(connection, cluster_id, tiered_only=True)
        if "compact" in ((topic.config or {}).get("cleanup.policy") or "")
    }
    segments = local_segments(connection, cluster_id)
    return [
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
                tiered=row.tiered,
            ),
            segments.get((row.topic_id, row.partition), ()),
            kafka_rules=kafka_rules,
        )
        for row in rows
    ]


def sample_age(
    connection: Connection, cluster_id: str, rows: Sequence[partitions.PartitionRow], now_ms: int
) -> dict[str, Any]:
    """Of the oldest of these rows, and whether that is too old to plan with."""
    oldest_ms = min((row.sampled_ms for row in rows), default=None)
    age_ms = None if oldest_ms is None else max(0, now_ms - oldest_ms)
    watched = next((c for c in health.clusters(connection) if c.cluster_id == cluster_id), None)
    limit_ms = health.STALE_AFTER_INTERVALS * (watched.sample_interval_ms if watched is not None else 0)
    return {"oldest_sample_ms": oldest_ms, "age_ms": age_ms, "stale": age_ms is not None and age_ms > limit_ms}


def moved_partitions(connection: Connection, cluster_id: str, ended_since_ms: int) -> frozenset[tuple[str, int]]:
    """Partitions whose replicas are moved by plans that go on, or that ended since then."""
    table = t.operation
    going_on = and_(table.c.requested_ms.is_not(None), table.c.finished_ms.is_(None))
    query = select(table.c.inputs).where(
        table.c.cluster_id == cluster_id,
        table.c.kind == REASSIGN,
        or_(going_on, table.c.finished_ms >= ended_since_ms),
    )
    return frozenset(
        (assignment["topic"], assignment["partition"])
        for (inputs,) in connection.execute(query)
        for assignment in inputs.get("assignments", ())
    )


def replicas_of(
    connection: Connection, cluster_id: str, topics: Sequence[str]
) -> dict[tuple[str, int, int], tuple[int | None, str | None]]:
    """Local bytes and phase of every replica of these topics, by (topic, partition, broker)."""
    table = t.replica_current
    columns = (table.c.topic, table.c.partition, table.c.broker_id, table.c.local_log_bytes, table.c.phase)
    replicas: dict[tuple[str, int, int], tuple[int | None, str | None]] = {}
    for begin in range(0, len(topics), TOPICS_A_QUERY):
        some = list(topics[begin : begin + TOPICS_A_QUERY])
        query = select(*columns).where(table.c.cluster_id == cluster_id, table.c.topic.in_(some))
        for topic, partition, broker_id, size_bytes, phase in connection.execute(query):
            replicas[topic, partition, broker_id] = (size_bytes, phase)
    return replicas


def produced_bytes_per_s(connection: Connection, cluster_id: str, topics: Sequence[str], now_ms: int) -> dict[str, int]:
    """How fast each topic's local logs grow by their samples of the last minutes; a topic without two is left out."""
    table = t.partition_sample
    rates_of_topics: dict[str, int] = {}
    for topic in topics:
        query = (
            select(
                func.min(table.c.log_end_offset),
                func.max(table.c.log_end_offset),
                func.min(table.c.sampled_ms),
                func.max(table.c.sampled_ms),
                func.max(table.c.local_log_bytes),
                func.max(table.c.log_end_offset) - func.max(table.c.local_log_start_offset),
            )
            .where(
                table.c.cluster_id == cluster_id,
                table.c.topic == topic,
                table.c.sampled_ms >= now_ms - PRODUCED_WINDOW_MS,
            )
            .group_by(table.c.partition)
        )
        rates = [_rate(*row) for row in connection.execute(query)]
        rates_known = [rate for rate in rates if rate is not None]
        if rates_known:
            rates_of_topics[topic] = sum(rates_known)
    return rates_of_topics


def _rate(
    low: int | None, high: int | None, first_ms: int, last_ms: int, size_bytes: int | None, records: int | None
) -> int | None:
    if (
        low is None
        or high is None
        or size_bytes is None
        or not records
        or records <= 0
        or last_ms - first_ms < PRODUCED_SPAN_MS
    ):
        return None
    return round((high - low) * (size_bytes / records) * 1000 / (last_ms - first_ms))
