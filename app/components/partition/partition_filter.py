"""Selection and order of the partitions in a list: by typed text, one state, one rank. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.components.partition.pending_limits import pending_bytes
from backend.store.queries.partitions import PartitionRow

PENDING_BYTES_MIN: Final = 1_000_000_000
# The words are what the URL holds, too.
OVER_1_GB: Final = "Pending > 1 GB"
NOT_IN_SYNC: Final = "Not in sync"
GAP_OR_OUTSIDE: Final = "Gap or outside lineage"
COPY_OPEN: Final = "Copy open"
NOT_KNOWN: Final = "Not known"
STATES: Final = (OVER_1_GB, NOT_IN_SYNC, GAP_OR_OUTSIDE, COPY_OPEN, NOT_KNOWN)
RANKS: Final = ("pending upload", "remote size", "local size", "not in sync", "name")

PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter that a person chose; the defaults show everything, the furthest behind first."""

    text: str = ""
    state: str | None = None
    rank: str = RANKS[0]

    @property
    def active(self) -> bool:
        return bool(self.text.strip()) or self.state is not None


def name_of(row: PartitionRow) -> str:
    """``orders-7``."""
    return f"{row.topic}-{row.partition}"


def parse_name(name: str) -> PartitionKey | None:
    """``orders-eu-7`` → (``orders-eu``, 7); None when it is no partition's name."""
    topic, dash, number = name.strip().rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit() or len(number) > 9:
        return None
    return topic, int(number)


def remote_bytes(row: PartitionRow) -> int | None:
    """Finished copies; the ledger's bytes count before the observer's. None: not known."""
    return row.ledger_bytes if row.ledger_bytes is not None else row.remote_log_bytes


def gap(row: PartitionRow) -> tuple[int, int] | None:
    """Offsets ``[a, b)`` that are neither in the remote tier nor on the leader's disk; None: none, or not known."""
    start, local, tiered = row.log_start_offset, row.local_log_start_offset, row.latest_tiered_offset
    if start is None or local is None or tiered is None or tiered < 0:
        return None
    first = max(start, tiered + 1)
    return (first, local) if local > first else None


def unknown(row: PartitionRow) -> bool:
    """Whether an offset or size that the leader reports is not known."""
    facts = (row.log_start_offset, row.local_log_start_offset, row.log_end_offset, row.local_log_bytes)
    return row.error is not None or None in facts or pending_bytes(row) is None


def select(
    rows: Iterable[PartitionRow], chosen: Filter, outside: Collection[PartitionKey] = frozenset()
) -> list[PartitionRow]:
    """The rows that match, in rank order. ``outside``: partitions with remote segments outside their lineage."""
    needles = chosen.text.lower().split()
    matching = [
        row
        for row in rows
        if all(needle in name_of(row).lower() for needle in needles) and _in_state(row, chosen.state, outside)
    ]
    return ranked(matching, chosen.rank)


def ranked(rows: Iterable[PartitionRow], rank: str) -> list[PartitionRow]:
    """The largest first; what is not known comes after what is; ties by name."""
    if rank == "name":
        return sorted(rows, key=lambda row: (row.topic, row.partition))

    def weight(row: PartitionRow) -> int:
        size = {
            "remote size": remote_bytes(row),
            "local size": row.local_log_bytes,
            "not in sync": len(set(row.replicas) - set(row.isr)),
        }.get(rank, pending_bytes(row))
        return -1 if size is None else size

    return sorted(rows, key=lambda row: (-weight(row), row.topic, row.partition))


def _in_state(row: PartitionRow, state: str | None, outside: Collection[PartitionKey]) -> bool:
    if state == OVER_1_GB:
        return (pending_bytes(row) or 0) > PENDING_BYTES_MIN
    if state == NOT_IN_SYNC:
        return bool(set(row.replicas) - set(row.isr))
    if state == GAP_OR_OUTSIDE:
        return gap(row) is not None or (row.topic, row.partition) in outside
    if state == COPY_OPEN:
        return bool(row.ledger_open_copies)
    if state == NOT_KNOWN:
        return unknown(row)
    return True


def near_topics(topic: str, topics: Sequence[str]) -> list[str]:
    """At most three known topics whose name has something of this one."""
    lowered = topic.lower()
    return [name for name in topics if lowered in name.lower() or name.lower() in lowered][:3]
