"""The rules about consumers: those that read what is no more in the local log, and those that have lost records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Final

from backend.control.findings.finding_context import NOTICE, WARNING, Candidate, FindingContext, GroupOffset, count, ids
from backend.control.findings.holds import default_for_ms
from backend.control.findings.kafka_commands import command
from backend.control.findings.remote_reads import RemoteReads, remote_reads
from backend.control.formatting import grouped, in_bytes

STORM_FOR_MS: Final = default_for_ms("remote-read-storm")
LOST_FOR_MS: Final = default_for_ms("group-below-log-start")
# A client commits the offset after its last record; the markers of transactions above it are no records. In a log
# that was emptied nothing tells them from records.
MARKERS_MAX: Final = 10
# Partitions that a command names, as the evidence does.
RESET_MAX: Final = 20


def remote_read_storms(context: FindingContext) -> Iterable[Candidate]:
    """A group reads from the remote tier while reads wait for a reader there.

    Where the brokers do not tell how many wait, only that the group reads and goes on is known: a notice, inferred.
    """
    by_group: dict[str, list[RemoteReads]] = defaultdict(list)
    for reads in remote_reads(context.group_offsets, context.partitions, context.at_ms):
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
        depends_on=frozenset(busy),
        for_ms=STORM_FOR_MS,
    )


def lost_records(context: FindingContext) -> Iterable[Candidate]:
    """A group's committed offset is below the log start: records that it had not read are gone."""
    by_group: dict[str, list[tuple[GroupOffset, int]]] = defaultdict(list)
    for offset in context.group_offsets:
        log = context.group_bounds.get((offset.topic, offset.partition))
        if log is None or offset.committed >= log.start:
            continue
        if log.empty and log.start - offset.committed <= MARKERS_MAX:
            continue
        by_group[offset.group].append((offset, log.start))
    for group, offsets in by_group.items():
        yield _lost(context, group, offsets)


def _remedy(
    context: FindingContext, group: str, offsets: Sequence[tuple[GroupOffset, int]], topic: str, *, reads: bool
) -> str:
    """Where a group goes on is its owner's decision: at the log start nothing is passed over that is still there."""
    tool, named = "kafka-consumer-groups.sh", f"--group {quote(group)}"
    if reads:
        return (
            "Lengthen the retention of what it reads until it has caught up; tell its owner which offsets it missed."
            f" How far behind it is: {command(context, tool, f'--describe {named}')}."
        )
    by_topic: dict[str, list[int]] = defaultdict(list)
    for offset, _ in offsets[:RESET_MAX]:
        by_topic[offset.topic].append(offset.partition)
    where = " ".join(f"--topic {name}:{','.join(map(str, sorted(by_topic[name])))}" for name in sorted(by_topic))
    more = f" (and {count(len(offsets) - RESET_MAX, 'more partition')})" if len(offsets) > RESET_MAX else ""
    reset = command(context, tool, f"{named} {where} --reset-offsets --to-earliest --dry-run")
    return (
        f"See whether the retention of {topic} was cut by mistake: what is deleted does not come back. Tell the group's"
        " owner which offsets are missing. Only if the owner wants the group to go on behind them, while it has no"
        f" members: {reset}{more}, and then with --execute instead of --dry-run; of these partitions it skips only"
        " records that are lost already. The owner may also delete the group when nobody needs it."
    )


def _lost(context: FindingContext, group: str, offsets: Sequence[tuple[GroupOffset, int]]) -> Candidate:
    reads = any(offset.is_read(context.at_ms) for offset, _ in offsets)
    seen = any((group, offset.topic, offset.partition) in context.readable_offsets for offset, _ in offsets)
    lost = sum(start - offset.committed for offset, start in offsets)
    first, first_start = max(offsets, key=lambda pair: pair[1] - pair[0].committed)
    name = f"{first.topic}-{first.partition}"
    why = f"{count(lost, 'record')} of {count(len(offsets), 'partition')} are gone before it has read them: of {name}"
    why += f" it has committed {grouped(first.committed)}, and the log starts at {grouped(first_start)}."
    if not any(offset.members for offset, _ in offsets):
        why += " It has no members"
        why += ", and goes on to commit." if reads else "; when it starts again, they are missing."
    return Candidate(
        slug="group-below-log-start",
        object=f"group {group}",
        severity=WARNING if reads or seen else NOTICE,  # else it was abandoned before anybody looked
        sentence=f"Group has lost records: {group}",
        why=why,
        action=_remedy(context, group, offsets, first.topic, reads=reads),
        facts={
            "group": group,
            "lost_records": lost,
            "members": any(offset.members for offset, _ in offsets),
            "partitions": [
                {
                    "partition": f"{offset.topic}-{offset.partition}",
                    "committed_offset": offset.committed,
                    "log_start_offset": start,
                }
                for offset, start in offsets[:RESET_MAX]
            ],
        },
        topic=first.topic if len({offset.topic for offset, _ in offsets}) == 1 else None,
        for_ms=LOST_FOR_MS,
    )
