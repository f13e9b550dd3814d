"""Offsets that do not move: since when each partition has waited at the same one. Pure.

The first pending offset stands still where nothing is copied, the last stable one where a transaction is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from backend.store.writes.samples import PartitionSample
from backend.tiering.pending import pending_from

# Rounds of a small cluster end every 2 s, and wait 10 s for brokers that hang.
UNSEEN_MS_MIN: Final = 30_000
PartitionKey = tuple[str, int]
"""(topic, partition)."""


@dataclass(frozen=True, slots=True)
class StillOffset:
    """An offset, and since when the partition has been seen there."""

    offset: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class PartitionStill:
    """Offsets that a partition waits at. `pending`: records from there on are not copied; None: none waits, or not
    known. `stable`: a transaction is open from there on; None: none is. `end`: the log end, and since when nothing was
    appended; `pending_to`: the log end when `pending` was first seen.
    """

    topic_id: str
    pending: StillOffset | None
    stable: StillOffset | None
    end: StillOffset | None = None
    pending_to: int | None = None


def remember_still(
    before: Mapping[PartitionKey, PartitionStill], partitions: Iterable[PartitionSample], at_ms: int
) -> dict[PartitionKey, PartitionStill]:
    """The memory with this round. A partition that was made again, and what waits at nothing, is forgotten."""
    result = {}
    for row in partitions:
        key = (row.topic, row.partition)
        last = before.get(key)
        if last is not None and last.topic_id != row.topic_id:
            last = None
        pending = _still(_pending(row), None if last is None else last.pending, at_ms)
        stable = _still(_stable(row), None if last is None else last.stable, at_ms)
        if pending is not None or stable is not None:
            end = _still(row.log_end_offset, None if last is None else last.end, at_ms)
            pending_to = last.pending_to if last is not None and last.pending == pending else row.log_end_offset
            result[key] = PartitionStill(row.topic_id, pending, stable, end, pending_to)
    return result


def unseen_ms(since_round_ms: int, interval_ms: int) -> int:
    """The time since the last round where it is longer than a round takes, else 0: the cluster was away meanwhile."""
    return since_round_ms if since_round_ms > max(UNSEEN_MS_MIN, 3 * interval_ms) else 0


def with_jump(memory: Mapping[PartitionKey, PartitionStill], jump_ms: int) -> dict[PartitionKey, PartitionStill]:
    """The memory by a wall clock that was set forward by `jump_ms`: nothing has waited longer for that."""

    def later(still: StillOffset | None) -> StillOffset | None:
        return None if still is None else StillOffset(still.offset, still.since_ms + jump_ms)

    return {
        key: replace(still, pending=later(still.pending), stable=later(still.stable), end=later(still.end))
        for key, still in memory.items()
    }


def _still(offset: int | None, last: StillOffset | None, at_ms: int) -> StillOffset | None:
    if offset is None:
        return None
    # A clock that was set back makes nothing older.
    return last if last is not None and last.offset == offset and last.since_ms <= at_ms else StillOffset(offset, at_ms)


def _pending(row: PartitionSample) -> int | None:
    if not row.tiered:
        return None
    offset, end = pending_from(row).offset, row.log_end_offset
    return None if offset is None or end is None or offset >= end else offset


def _stable(row: PartitionSample) -> int | None:
    stable, watermark = row.last_stable_offset, row.high_watermark
    return None if stable is None or watermark is None or stable >= watermark else stable
