"""Groups that read from the remote tier next: their committed offset is below the leader's local log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backend.control.findings.finding_context import GroupOffset
from backend.store.writes.samples import PartitionSample


@dataclass(frozen=True, slots=True)
class RemoteReads:
    """A group's committed offset below the leader's local log. `bytes_left` is None when sizes are not known."""

    group: str
    topic: str
    partition: int
    leader: int
    committed_offset: int
    local_log_start_offset: int
    offsets_left: int
    bytes_left: int | None
    moved: bool
    members: bool = True


def remote_reads(
    offsets: Iterable[GroupOffset], partitions: Iterable[PartitionSample], at_ms: int
) -> list[RemoteReads]:
    """Groups that will read from the remote tier next, with the amount."""
    tiered = {(row.topic, row.partition): row for row in partitions if row.tiered}
    result = []
    for offset in offsets:
        row = tiered.get((offset.topic, offset.partition))
        if row is None or not offset.is_read(at_ms):
            continue
        if row.local_log_start_offset is None or row.log_start_offset is None:
            continue
        if row.log_start_offset <= offset.committed < row.local_log_start_offset:
            left = row.local_log_start_offset - offset.committed
            result.append(
                RemoteReads(
                    offset.group,
                    offset.topic,
                    offset.partition,
                    row.leader,
                    offset.committed,
                    row.local_log_start_offset,
                    left,
                    _bytes(row, left),
                    offset.moved,
                    offset.members,
                )
            )
    return result


def _bytes(row: PartitionSample, offsets: int) -> int | None:
    """Taking the remote records to be of one size."""
    start, tiered = row.log_start_offset, row.latest_tiered_offset
    if row.remote_log_bytes is None or start is None or tiered is None or tiered < start:
        return None
    return round(row.remote_log_bytes * min(1.0, offsets / (tiered + 1 - start)))
