"""A partition at two instants, side by side: what was remote, where the leader's offsets stood, what changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from backend.store.queries.partitions import PartitionPoint
from backend.store.queries.time_travel import RemoteTotalsThen

# A sample stands for the leader's offsets during this many sampling intervals after it.
SAMPLE_VALID_INTERVALS: Final = 15
NO_SAMPLE: Final = "? no sample of then"
Fact = tuple[str, int | None, bool]


@dataclass(frozen=True, slots=True)
class Instant:
    """The known facts of the partition at an instant. ``point`` None: no sample of that time is kept."""

    at_ms: int
    remote: RemoteTotalsThen
    point: PartitionPoint | None


def point_at(points: Sequence[PartitionPoint], at_ms: int, interval_ms: int) -> PartitionPoint | None:
    """The last sample before an instant, if it is not too old to stand for it. ``points``: the oldest first."""
    before = [point for point in points if point.sampled_ms <= at_ms]
    if not before or at_ms - before[-1].sampled_ms > SAMPLE_VALID_INTERVALS * interval_ms:
        return None
    return before[-1]


def _facts(instant: Instant) -> list[Fact]:
    """Name, value, whether it is in bytes. None is unknown, or nothing was there."""
    remote, point = instant.remote, instant.point
    return [
        ("Remote segments", remote.segments, False),
        ("Remote bytes", remote.bytes, True),
        ("First remote offset", remote.first_offset, False),
        ("Last remote offset, incl.", remote.last_offset, False),
        ("Local start", None if point is None else point.local_log_start_offset, False),
        ("Latest tiered, incl.", None if point is None else point.latest_tiered_offset, False),
        ("Log end", None if point is None else point.log_end_offset, False),
    ]


def _value(instant: Instant, fact: Fact) -> str:
    name, value, in_bytes = fact
    if value is None:
        if "remote offset" in name:
            return "nothing was remote"
        return NO_SAMPLE if instant.point is None else "? not told then"
    return fmt.size(value) if in_bytes else fmt.count(value)


def _change(first: Fact, second: Fact) -> str:
    if first[1] is None or second[1] is None:
        return "?"
    change = second[1] - first[1]
    if change == 0:
        return "same"
    amount = fmt.size(abs(change)) if first[2] else fmt.count(abs(change))
    return f"{'+' if change > 0 else '−'}{amount}"


def _lines(first: Instant, second: Instant) -> list[tuple[str, str, str, str]]:
    return [
        (before[0], _value(first, before), _value(second, after), _change(before, after))
        for before, after in zip(_facts(first), _facts(second), strict=True)
    ]


def table_html(first: Instant, second: Instant, clock_first: str, clock_second: str) -> str:
    """One line a fact."""
    columns = [("", "left"), (clock_first, "right"), (clock_second, "right"), ("Change", "right")]
    return markup.table(columns, _lines(first, second), caption=f"The partition at {clock_first} and {clock_second}")


def rows(first: Instant, second: Instant) -> pd.DataFrame:
    """The same as plain values; bytes and offsets, empty where not known."""
    lines = [(before[0], before[1], after[1]) for before, after in zip(_facts(first), _facts(second), strict=True)]
    frame = pd.DataFrame(lines, columns=["fact", "first", "second"])
    return frame.astype({"first": "Int64", "second": "Int64"})
