"""Sealed segments that wait for their copy, in bytes and at least: the active segment is never copied. Pure.

No request tells how large the active segment is: it has `segment.bytes` at most. Brokers that show their meters tell
what waits of a topic (RemoteCopyLagBytes), which is exact where one partition of it is led. Without these a segment
that rolls by time is known to be sealed once a record was appended after its `segment.ms`, or once nothing was for
longer than local retention: Kafka rolls it when it checks retention then.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from backend.control.findings.finding_context import FindingContext, setting
from backend.control.findings.still_offsets import PartitionKey, PartitionStill
from backend.control.observer.cluster_totals import pending_bytes
from backend.store.queries.config import TopicRow
from backend.store.writes.samples import PartitionSample

LedTopic = tuple[int, str]
"""(leader, topic)."""
# Kafka's default of log.retention.check.interval.ms.
RETENTION_CHECK_MS: Final = 300_000


def sealed_data(context: FindingContext) -> dict[PartitionKey, int]:
    """Bytes in sealed segments that are not copied, by partition; those where none is known to wait are left out."""
    by_size = sealed_by_size(context)
    return by_size | {key: max(size, by_size.get(key, 0)) for key, size in sealed_by_time(context).items()}


def sealed_by_time(context: FindingContext) -> dict[PartitionKey, int]:
    """Sealed bytes by the time of their waiting, of partitions whose leader shows no meter. Kafka rolls a segment with
    the first record that comes after `segment.ms`, so this may be so for a moment only: until the next copies.
    """
    copied = _copied_local_bytes(context)
    result = {}
    for row in context.tiered:
        key = (row.topic, row.partition)
        still = context.still.get(key)
        if still is None or (row.leader, row.topic) in context.copy_lags:
            continue
        share = _sealed_share(still, _roll_times_ms(context.topic(row.topic)), context.listed_ms(*key))
        size = round(share * (_pending(row, copied.get(key, 0)) or 0))
        if size > 0:
            result[key] = size
    return result


def _roll_times_ms(topic: TopicRow | None) -> tuple[int | None, int | None]:
    """`segment.ms` and the local retention by time; None: not known, or none."""
    local_ms = setting(topic, "local.retention.ms")
    if local_ms == -2:
        local_ms = setting(topic, "retention.ms")
    return setting(topic, "segment.ms"), None if local_ms is None or local_ms < 0 else local_ms


def _sealed_share(still: PartitionStill, times_ms: tuple[int | None, int | None], at_ms: int) -> float:
    """The share of what is pending that is in sealed segments at least."""
    pending, end, pending_to = still.pending, still.end, still.pending_to
    if pending is None or end is None or pending_to is None or end.offset <= pending.offset:
        return 0.0
    segment_ms, local_ms = times_ms
    if local_ms is not None and at_ms - end.since_ms > local_ms + RETENTION_CHECK_MS:
        return 1.0
    if segment_ms is not None and end.since_ms - pending.since_ms > segment_ms:
        return (pending_to - pending.offset) / (end.offset - pending.offset)
    return 0.0


def sealed_by_size(context: FindingContext) -> dict[PartitionKey, int]:
    """Sealed bytes: the pending ones without the most that an active segment has, or as the leader's meter says."""
    copied = _copied_local_bytes(context)
    pending: dict[PartitionKey, int] = {}
    led_pending: dict[LedTopic, int] = defaultdict(int)
    for row in context.tiered:
        size = _pending(row, copied.get((row.topic, row.partition), 0))
        if size is not None:
            pending[row.topic, row.partition] = size
            led_pending[row.leader, row.topic] += size
    result = {}
    for row in context.tiered:
        key, led = (row.topic, row.partition), (row.leader, row.topic)
        if key not in pending:
            continue
        segment_bytes, lag = setting(context.topic(row.topic), "segment.bytes"), context.copy_lags.get(led)
        sealed = sealed_bytes(pending[key], led_pending[led] - pending[key], segment_bytes, lag)
        if sealed > 0:
            result[key] = sealed
    return result


def sealed_bytes(pending: int, pending_of_others: int, segment_bytes: int | None, lag: float | None) -> int:
    """Sealed bytes of what is pending, at least. `lag`: those of all partitions of the topic that the leader leads, of
    which `pending_of_others` may be the others'; None: not known, as `segment_bytes` None.
    """
    at_least = 0 if segment_bytes is None else max(0, pending - segment_bytes)
    if lag is None:
        return at_least
    return round(min(max(at_least, lag - pending_of_others, 0), pending, lag))


def _pending(row: PartitionSample, copied_bytes: int) -> int | None:
    """Bytes that are not copied; what the ledger knows as copied bounds an estimate by uneven records."""
    pending, local_bytes = pending_bytes(row), row.local_log_bytes
    if pending is None or local_bytes is None:
        return None
    return max(0, min(pending, local_bytes - copied_bytes))


def is_paused(topic: TopicRow | None) -> bool:
    """Whether copying is switched off on the topic."""
    return topic is not None and (topic.config or {}).get("remote.log.copy.disable") == "true"


def _copied_local_bytes(context: FindingContext) -> dict[PartitionKey, int]:
    """Bytes of each partition's local log that the ledger knows as copied; nothing where it was not read."""
    rows = {(row.topic, row.partition): row for row in context.tiered}
    result: dict[PartitionKey, int] = defaultdict(int)
    for segment in context.finished or ():
        row = rows.get((segment.topic, segment.partition))
        start = None if row is None else row.local_log_start_offset
        if start is not None and segment.start_offset >= start:
            result[segment.topic, segment.partition] += segment.segment_size_bytes
    return result
