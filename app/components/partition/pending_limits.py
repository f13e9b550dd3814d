"""Pending upload of a partition, and its limit. Pure.

Local data that is not uploaded cannot be deleted. So pending bytes beyond a topic's local retention keep the local log
above what was asked for; that is the limit: amber from half of it, red at it. Source: KIP-405, `local.retention.bytes`
(-2: as `retention.bytes`; -1: no limit). The active segment is never copied, so it comes on top, and one that was just
sealed waits for its copy as a matter of course.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from backend.store.queries.config import TopicRow
from backend.store.queries.overview import BrokerRow
from backend.store.queries.partitions import PartitionRow
from backend.tiering.pending import PendingReason, pending_from

AMBER_SHARE: Final = 0.5
DISK_WARNING: Final = 0.85
DISK_CRITICAL: Final = 0.95
REASONS: Final[dict[str, str]] = {
    PendingReason.NOT_TIERED: "the topic is not tiered",
    PendingReason.LEADER_DOES_NOT_KNOW: "the leader does not know yet",
    PendingReason.ALL_COPIED: "all copied",
    PendingReason.CHANGING: "records arrived while it was asked; the next sample tells",
}


def is_tiered(row: PartitionRow) -> bool:
    """False for a partition of a topic without remote storage: nothing of it is pending, and that is known."""
    return row.pending_reason != PendingReason.NOT_TIERED


def pending_start(row: PartitionRow) -> int | None:
    """The first offset that is not in the remote tier; None: not known."""
    return pending_from(row).offset


def inferred_note(row: PartitionRow) -> str:
    """The note beside a first pending offset that the leader did not tell; empty where it did."""
    return " · inferred" if pending_from(row).inferred else ""


def pending_offsets(row: PartitionRow) -> int | None:
    """Records that are on local disks only; None: not known."""
    start, end = pending_start(row), row.log_end_offset
    return None if start is None or end is None else max(0, end - start)


def pending_bytes(row: PartitionRow) -> int | None:
    """Their size, taking the leader's local records to be of one size; None: not known."""
    offsets, size = pending_offsets(row), row.local_log_bytes
    start, end = row.local_log_start_offset, row.log_end_offset
    if offsets is None or size is None or start is None or end is None:
        return None
    return 0 if end <= start else round(size * min(1.0, offsets / (end - start)))


def pending_unknown_cause(row: PartitionRow) -> str:
    """Why pending is ``?``, in words."""
    if row.pending_reason is not None and row.pending_reason != PendingReason.ALL_COPIED:
        return REASONS.get(row.pending_reason, row.pending_reason)
    return row.error or "the leader did not answer"


def number(topic: TopicRow, name: str) -> int | None:
    """An integer setting of a topic; None when it is not known."""
    value = (topic.config or {}).get(name)
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def local_retention(topic: TopicRow) -> tuple[int | None, int | None]:
    """(bytes, ms) that a partition's local log may keep; None: no limit of that kind, or not known."""
    limits = []
    for local_name, total_name in (
        ("local.retention.bytes", "retention.bytes"),
        ("local.retention.ms", "retention.ms"),
    ):
        value = number(topic, local_name)
        if value == -2:
            value = number(topic, total_name)
        limits.append(None if value is None or value < 0 else value)
    return limits[0], limits[1]


def pending_limit_bytes(topic: TopicRow) -> int | None:
    """The limit for pending bytes of a partition; None: the topic has no byte limit for local data.

    At least two segments, so that the active one alone is never half of it.
    """
    size, _ = local_retention(topic)
    segment = number(topic, "segment.bytes") or 0
    return segment + max(size, segment) if size else None


def pending_status(pending: int | None, limit: int | None) -> str | None:
    """``warning`` from half the limit, ``critical`` at it; None below or when one of them is not known."""
    if pending is None or limit is None or pending < AMBER_SHARE * limit:
        return None
    return "critical" if pending >= limit else "warning"


def worst_pending_status(rows: Iterable[PartitionRow], topic_limits: Mapping[str, int | None]) -> str | None:
    """``critical`` when one partition is at its topic's limit, ``warning`` when one is half way there."""
    statuses = {pending_status(pending_bytes(row), topic_limits.get(row.topic)) for row in rows}
    return "critical" if "critical" in statuses else ("warning" if "warning" in statuses else None)


def disk_share(broker: BrokerRow) -> float | None:
    """The used share of the fullest log directory's disk; None: not known."""
    usable, total = _fullest(broker)
    return None if total == 0 else 1 - usable / total


def free_bytes(broker: BrokerRow) -> int | None:
    """The bytes that are free on its fullest disk, as `df` says them; None: not known.

    No share of use: Kafka tells what may be used, without what the file system keeps for itself, and `df` divides
    otherwise.
    """
    usable, total = _fullest(broker)
    return None if total == 0 else usable


def _fullest(broker: BrokerRow) -> tuple[int, int]:
    """(usable, total) bytes of the disk with the least share free; (0, 0): no directory tells."""
    sizes = [(d.get("usable_bytes", -1), d.get("total_bytes", 0)) for d in broker.log_dirs or []]
    measured = [(usable, total) for usable, total in sizes if total > 0 and usable >= 0]
    return min(measured, key=lambda size: size[0] / size[1], default=(0, 0))


def disk_status(share: float | None) -> str | None:
    """``warning`` from 85 % used, ``critical`` from 95 %; None below or when it is not known."""
    if share is None or share < DISK_WARNING:
        return None
    return "critical" if share >= DISK_CRITICAL else "warning"
