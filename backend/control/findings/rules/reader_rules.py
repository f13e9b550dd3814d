"""The rule about consumers that read what is no more in the local log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.findings.finding_context import NOTICE, WARNING, Candidate, FindingContext, GroupOffset, count, ids
from backend.control.formatting import in_bytes
from backend.store.writes.samples import PartitionSample

# Longer than two readings of the groups: one read of an old offset is what the remote tier is for.
STORM_FOR_MS: Final = 40_000


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


def remote_reads(offsets: Iterable[GroupOffset], partitions: Iterable[PartitionSample]) -> list[RemoteReads]:
    """Groups that will read from the remote tier next, with the amount."""
    tiered = {(row.topic, row.partition): row for row in partitions if row.tiered}
    result = []
    for offset in offsets:
        row = tiered.get((offset.topic, offset.partition))
        if row is None or row.local_log_start_offset is None or row.log_start_offset is None:
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
                )
            )
    return result


def _bytes(row: PartitionSample, offsets: int) -> int | None:
    """Taking the remote records to be of one size."""
    start, tiered = row.log_start_offset, row.latest_tiered_offset
    if row.remote_log_bytes is None or start is None or tiered is None or tiered < start:
        return None
    return round(row.remote_log_bytes * min(1.0, offsets / (tiered + 1 - start)))


def remote_read_storms(context: FindingContext) -> Iterable[Candidate]:
    """A group reads from the remote tier while reads wait for a reader there.

    Where the brokers do not tell how many wait, only that the group reads and goes on is known: a notice, inferred.
    """
    by_group: dict[str, list[RemoteReads]] = defaultdict(list)
    for reads in remote_reads(context.group_offsets, context.partitions):
        by_group[reads.group].append(reads)
    for group, rows in by_group.items():
        leaders = {row.leader for row in rows}
        queues = {leader: context.reader_queues[leader] for leader in leaders if leader in context.reader_queues}
        busy = {leader: queue for leader, queue in queues.items() if queue > 0}
        if busy or (len(queues) < len(leaders) and any(row.moved for row in rows if row.leader not in queues)):
            yield _storm(group, rows, busy)


def _storm(group: str, rows: list[RemoteReads], busy: Mapping[int, float]) -> Candidate:
    sizes = [row.bytes_left for row in rows]
    left = sum(row.offsets_left for row in rows)
    leaders = [size for size in sizes if size is not None]
    much = f" ({in_bytes(sum(leaders))})" if len(leaders) == len(sizes) else ""
    why = f"It is below the local log of {count(len(rows), 'partition')}: {left} records{much} to read from there."
    if busy:
        why += f" {round(sum(busy.values()))} reads wait on broker {ids(busy)}."
    else:
        why += " It goes on; how many reads wait is not known without the brokers' metrics."
    return Candidate(
        slug="remote-read-storm",
        object=f"group {group}",
        severity=WARNING if busy else NOTICE,
        sentence=f"Group reads from the remote tier: {group}" + (", and reads wait" if busy else ""),
        why=why,
        action="Is it one group? Limit it with a quota, or keep more local data for what it reads again and again.",
        facts={
            "group": group,
            "offsets_left": left,
            "bytes_left": sum(leaders) if len(leaders) == len(sizes) else None,
            "partitions": [f"{row.topic}-{row.partition}" for row in rows[:20]],
            "reader_queue": round(sum(busy.values())) if busy else None,
            "source": "exact" if busy else "inferred",
        },
        topic=rows[0].topic if len({row.topic for row in rows}) == 1 else None,
        for_ms=STORM_FOR_MS,
    )
