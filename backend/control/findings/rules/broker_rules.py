"""Rules about brokers, their disks and the throttles on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from backend.control.findings.finding_context import (
    CRITICAL,
    NOTICE,
    WARNING,
    Candidate,
    FindingContext,
    count,
)
from backend.control.formatting import in_bytes, in_time
from backend.store.queries.overview import BrokerRow

DISK_WARNING: Final = 0.85
DISK_CRITICAL: Final = 0.95
RUNWAY_MS: Final = 12 * 3_600_000
RUNWAY_CRITICAL_MS: Final = 2 * 3_600_000
# Tools set the throttle, then begin the move; and a change is seen when all settings are read next.
THROTTLE_FOR_MS: Final = 15_000


def brokers_away(context: FindingContext) -> Iterable[Candidate]:
    """A broker does not answer, or the controller keeps it from leading."""
    led = Counter(partition.leader for partition in context.partitions)
    for broker in context.brokers:
        name = f"broker {broker.broker_id}"
        if not broker.reachable:
            lead = f" Leads {count(led[broker.broker_id], 'partition')}." if led[broker.broker_id] else ""
            yield Candidate(
                slug="broker-away",
                object=name,
                severity=CRITICAL,
                sentence=f"Broker {broker.broker_id} does not answer",
                why=f"Silent for {in_time(context.at_ms - broker.seen_ms)}. {broker.error or ''}".strip() + lead,
                action="Look whether its process runs and its listener can be reached, then start it again.",
                facts={"seen_ms": broker.seen_ms, "leads": led[broker.broker_id]},
                broker_id=broker.broker_id,
            )
        elif broker.fenced:
            yield Candidate(
                slug="broker-fenced",
                object=name,
                severity=WARNING,
                sentence=f"Broker {broker.broker_id} is fenced",
                why="The controller keeps it from leading until it has caught up and its heartbeats arrive.",
                action="Wait while it starts; if it stays fenced, look at its connection to the controller.",
                broker_id=broker.broker_id,
            )


def disks(context: FindingContext) -> Iterable[Candidate]:
    """A log directory that is offline, nearly full, or full within hours at the present rate."""
    for broker in context.brokers:
        for directory in broker.log_dirs or []:
            if directory.get("error"):
                yield Candidate(
                    slug="disk-offline",
                    object=f"broker {broker.broker_id}",
                    severity=CRITICAL,
                    sentence=f"Log directory offline: {directory.get('path', '?')} on broker {broker.broker_id}",
                    why=f"The broker says {directory['error']}.",
                    action="Repair the disk, then start the broker again.",
                    facts={"path": directory.get("path")},
                    broker_id=broker.broker_id,
                )
            else:
                yield from _full(context, broker, directory)


def _full(context: FindingContext, broker: BrokerRow, directory: Mapping[str, Any]) -> Iterable[Candidate]:
    total, usable = directory.get("total_bytes"), directory.get("usable_bytes")
    if not total or usable is None:
        return
    share = 1 - usable / total
    rate = context.disk_rates.get((broker.broker_id, str(directory.get("path"))))
    runway_ms = round(usable / rate * 3_600_000) if rate and rate > 0 else None
    soon = runway_ms is not None and runway_ms < RUNWAY_MS
    if share < DISK_WARNING and not soon:
        return
    urgent = share >= DISK_CRITICAL or (runway_ms is not None and runway_ms < RUNWAY_CRITICAL_MS)
    name = f"broker {broker.broker_id}"
    why = f"{in_bytes(usable)} of {in_bytes(total)} are free at {directory.get('path')}."
    if rate is not None and runway_ms is not None:
        why += f" At {in_bytes(round(rate))} an hour it is full in {in_time(runway_ms)}."
    yield Candidate(
        slug="disk-runway",
        object=name,
        severity=CRITICAL if urgent else WARNING,
        sentence=f"Disk {share:.0%} full: {name}" if not soon else f"Disk full within hours: {name}",
        why=why,
        action="See whether copying keeps up and what local retention allows; slow producers down if neither helps.",
        facts={"path": directory.get("path"), "usable_bytes": usable, "total_bytes": total, "runway_ms": runway_ms},
        broker_id=broker.broker_id,
    )


def set_aside(context: FindingContext) -> Iterable[Candidate]:
    """Unused replica folders that a broker keeps: they may be the only copy, and take room."""
    for broker in context.brokers:
        kept = [
            (directory.get("path"), folder)
            for directory in broker.log_dirs or []
            for folder in directory.get("set_aside") or []
        ]
        if not kept:
            continue
        # The oldest of each directory are stored, and how many and how large all of them are.
        folders = sum(directory.get("set_aside_count") or 0 for directory in broker.log_dirs or [])
        total_bytes = sum(directory.get("set_aside_bytes") or 0 for directory in broker.log_dirs or [])
        oldest = min((folder for _, folder in kept), key=lambda folder: int(folder["since_ms"]))
        age_ms = max(0, context.at_ms - int(oldest["since_ms"]))
        yield Candidate(
            slug="set-aside",
            object=f"broker {broker.broker_id}",
            severity=NOTICE,
            sentence=f"{count(folders, 'replica folder')} set aside on broker {broker.broker_id}",
            why=f"{in_bytes(total_bytes)}, for {in_time(age_ms)}; the oldest is {oldest['name']}: {oldest['reason']}.",
            action="See that nothing in them is missed (Config, Brokers, or ebbline set-aside); then remove them by a"
            f" plan that sets ebbline.remove.set.aside of broker {broker.broker_id} to their names.",
            facts={"folders": [{"path": path, **folder} for path, folder in kept], "size_bytes": total_bytes},
            broker_id=broker.broker_id,
        )


def throttles_left(context: FindingContext) -> Iterable[Candidate]:
    """A replication throttle that no move uses slows ordinary replication down."""
    moving = {row.topic for row in context.partitions if row.adding_replicas or row.removing_replicas}
    for throttle in context.throttles:
        if throttle.topic in moving or (throttle.topic is None and moving):
            continue
        where = throttle.topic or (f"broker {throttle.broker_id}" if throttle.broker_id != -1 else "all brokers")
        yield Candidate(
            slug="throttle-left",
            object=f"{where} {throttle.name}",
            severity=WARNING,
            sentence=f"Throttle without a move: {where}",
            why=f"{throttle.name} is {throttle.value[:200]}, and no replica moves there.",
            action=f"Remove {throttle.name} from {where}: it holds ordinary replication back.",
            facts={"name": throttle.name, "value": throttle.value[:200]},
            topic=throttle.topic,
            broker_id=None if throttle.broker_id == -1 else throttle.broker_id,
            for_ms=THROTTLE_FOR_MS,
        )
