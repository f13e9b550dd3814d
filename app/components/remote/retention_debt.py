"""Local data past local retention, by the reason why it is still there. Pure.

Retention deletes whole segments from the start of the local log, and only what is in the remote tier (KIP-405). So of
the bytes that are too many, the oldest ones that are copied go at the next check, and the rest waits for its copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from app.components.partition import pending_limits
from app.components.shared import format as fmt
from app.components.shared import markup
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionRow

NOT_COPIED: Final = "Not copied yet"
ACTIVE: Final = "Active segment"
NOT_STABLE: Final = "Not yet stable"
PAUSED: Final = "Copying is paused"
NEXT: Final = "Next retention check"
UNKNOWN: Final = "Unknown"
REASONS: Final = (NOT_COPIED, PAUSED, ACTIVE, NOT_STABLE, NEXT, UNKNOWN)
# Reasons that do not pass by themselves.
BAD: Final = frozenset({NOT_COPIED, PAUSED, UNKNOWN})
# Always listed, so that the card keeps its shape.
ALWAYS: Final = (NOT_COPIED, ACTIVE, NOT_STABLE, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Debt:
    """Bytes of the leaders' local logs past ``local.retention.bytes``, and the partitions that have some, by reason."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    by_time_only: int = 0  # partitions without a limit in bytes
    size_unknown: int = 0  # partitions whose local size is not known

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())


def debt(rows: Iterable[PartitionRow], topics: Iterable[TopicRow]) -> Debt:
    """Of tiered partitions."""
    limits = {topic.topic: (topic, pending_limits.local_retention(topic)[0]) for topic in topics}
    sizes: Counter[str] = Counter()
    partitions: Counter[str] = Counter()
    by_time_only = size_unknown = 0
    for row in rows:
        topic, limit = limits.get(row.topic, (None, None))
        if topic is None or row.local_log_bytes is None:
            size_unknown += 1
        elif limit is None:
            by_time_only += 1
        elif row.local_log_bytes > limit:
            reasons = split(row, topic, row.local_log_bytes - limit)
            sizes.update(reasons)
            partitions.update(reasons.keys())
    return Debt(sizes, partitions, by_time_only, size_unknown)


def split(row: PartitionRow, topic: TopicRow, over: int) -> dict[str, int]:
    """``over`` bytes from the start of the local log, by reason; none of them 0."""
    size = row.local_log_bytes or 0
    if (topic.config or {}).get("remote.log.copy.disable") == "true":
        return {PAUSED: over}
    pending = pending_limits.pending_bytes(row)
    if pending is None:
        return {UNKNOWN: over}
    segment = pending_limits.number(topic, "segment.bytes")
    active = pending if segment is None else min(segment, pending)
    unstable = min(pending, _unstable_bytes(row, size))
    # From the start of the log to its end.
    parts = (
        (NEXT, size - pending),
        (NOT_COPIED, pending - max(active, unstable)),
        (ACTIVE, max(0, active - unstable)),
        (NOT_STABLE, unstable),
    )
    by_reason = {}
    for reason, there in parts:
        taken = min(over, there)
        over -= taken
        if taken > 0:
            by_reason[reason] = taken
    return by_reason


def _unstable_bytes(row: PartitionRow, size: int) -> int:
    """Above the last stable offset, which is the high watermark or an open transaction's first: never copied yet."""
    start, end, watermark = row.local_log_start_offset, row.log_end_offset, row.high_watermark
    if start is None or end is None or watermark is None or end <= start:
        return 0
    stable = watermark if row.last_stable_offset is None else min(watermark, row.last_stable_offset)
    return round(size * min(1.0, max(0, end - stable) / (end - start)))


def html(total: Debt) -> str:
    """One bar a reason, as long as its bytes."""
    top = max(total.sizes.values(), default=0) or 1
    inner = ""
    for reason in REASONS:
        size = total.sizes.get(reason, 0)
        if not size and reason not in ALWAYS:
            continue
        css = "eb-debt-bad" if reason in BAD and size else ""
        many = total.partitions.get(reason, 0)
        title = f"{fmt.count(many)} partition{'' if many == 1 else 's'}"
        inner += (
            f'<span>{markup.text(reason)}</span><div class="eb-debt-lane" title="{title}">'
            f'<i class="{css}" style="width:{70 * size / top:.1f}%"></i>'
            f"<span>{markup.text(fmt.size(size))}</span></div>"
        )
    notes = []
    if total.by_time_only:
        notes.append(f"{fmt.count(total.by_time_only)} partitions are limited by time only and not counted.")
    if total.size_unknown:
        notes.append(f"? {fmt.count(total.size_unknown)} have not told their size.")
    note = f'<div class="eb-note">{markup.text(" ".join(notes))}</div>' if notes else ""
    return f'<div class="eb-debt">{inner}</div>{note}'


def rows(total: Debt) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame(
        {
            "reason": list(REASONS),
            "bytes": [total.sizes.get(reason, 0) for reason in REASONS],
            "partitions": [total.partitions.get(reason, 0) for reason in REASONS],
        }
    )
