"""Log starts that groups' offsets are compared with, and groups that could still read theirs when they were seen. Pure.

Groups are read seldom, log starts with each round. A group whose offset is old may have gone on since: then the log
starts stay those of the time of the offsets, so that facts of two moments are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend.control.findings.finding_context import GroupOffset, LogBounds
from backend.control.findings.still_offsets import PartitionKey
from backend.store.writes.samples import PartitionSample

# Two readings of the groups, 15 s apart.
OFFSETS_AGE_MS_MAX: Final = 30_000


@dataclass(frozen=True, slots=True)
class GroupStarts:
    """`bounds`: of logs, by partition. `readable`: (group, topic, partition) that were at or above the start once."""

    offsets_ms: int | None = None
    bounds: Mapping[PartitionKey, LogBounds] = field(default_factory=dict)
    readable: frozenset[tuple[str, str, int]] = frozenset()


def remember_starts(
    before: GroupStarts,
    offsets: Sequence[GroupOffset],
    offsets_ms: int | None,
    partitions: Sequence[PartitionSample],
    at_ms: int,
) -> GroupStarts:
    """The memory with this round; `offsets_ms`: when the offsets were read."""
    if offsets_ms is None or at_ms - offsets_ms > OFFSETS_AGE_MS_MAX:
        return before
    bounds = {
        (row.topic, row.partition): LogBounds(row.log_start_offset, row.log_end_offset)
        for row in partitions
        if row.log_start_offset is not None and row.answered_ms is None
    }
    if offsets_ms == before.offsets_ms:
        return GroupStarts(offsets_ms, bounds, before.readable)
    readable = set()
    for offset in offsets:
        key, of_partition = (offset.group, offset.topic, offset.partition), bounds.get((offset.topic, offset.partition))
        if key in before.readable or (of_partition is not None and offset.committed >= of_partition.start):
            readable.add(key)
    return GroupStarts(offsets_ms, bounds, frozenset(readable))
