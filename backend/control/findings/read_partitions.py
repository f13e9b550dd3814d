"""Partitions that consumers read from the remote tier of a broker: the meters that tell of its reads name topics only.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from backend.control.findings.finding_context import FindingContext, first_names
from backend.control.findings.remote_reads import remote_reads
from backend.control.findings.still_offsets import PartitionKey
from backend.store.queries.findings import FailedRead
from backend.store.writes.samples import PartitionSample

NOT_TOLD: Final = "The meters do not tell the partitions."


def read_partitions(
    context: FindingContext, broker_ids: Collection[int], topics: Collection[str], reports: Iterable[FailedRead] = ()
) -> list[PartitionKey]:
    """Partitions of the engine's reports, else those that groups read there, else the only one with remote records.

    Empty: not known. `topics` empty: all of the brokers.
    """
    reported = {(read.topic, read.partition) for read in reports}
    if reported:
        return sorted(reported)
    rows = [
        row
        for row in context.tiered
        if row.leader in broker_ids and (not topics or row.topic in topics) and _has_remote_records(row)
    ]
    by_groups = {(read.topic, read.partition) for read in remote_reads(context.group_offsets, rows, context.at_ms)}
    if by_groups:
        return sorted(by_groups)
    return [(rows[0].topic, rows[0].partition)] if len(rows) == 1 else []


def names(partitions: Sequence[PartitionKey]) -> str:
    """`orders-0, orders-1, and 3 more`."""
    return first_names([f"{topic}-{number}" for topic, number in partitions])


def _has_remote_records(row: PartitionSample) -> bool:
    start, local = row.log_start_offset, row.local_log_start_offset
    return start is not None and local is not None and start < local
