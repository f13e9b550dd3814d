"""Rules about brokers, their disks and the throttles on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend.control.findings.finding_context import (
    CRITICAL,
    NOTICE,
    WARNING,
    Candidate,
    FindingContext,
    ThrottleSetting,
    count,
    ids,
    setting,
)
from backend.control.findings.thresholds import Thresholds
from backend.control.formatting import in_bytes, in_time
from backend.store.queries.overview import BrokerRow
from backend.tiering.durability import MIN_ISR

HOUR_MS: Final = 3_600_000
# Of a list of replicas a value has 8 bytes each.
VALUE_CHARS_MAX: Final = 200
# A broker that starts is fenced until it has caught up, which takes seconds.
FENCED_FOR_MS: Final = 15_000
THROTTLES_NAMED_MAX: Final = 5
THROTTLES_STORED_MAX: Final = 100
ELECTIONS_NAMED_MAX: Final = 3


def brokers_away(context: FindingContext) -> Iterable[Candidate]:
    """A broker does not answer, or the controller keeps it from leading."""
    led = Counter(partition.leader for partition in context.partitions)
    held = Counter(broker_id for partition in context.partitions for broker_id in partition.replicas)
    needed = _needed_brokers(context) if any(not broker.reachable for broker in context.brokers) else frozenset()
    for broker in context.brokers:
        name = f"broker {broker.broker_id}"
        if not broker.reachable:
            lead = f" It has replicas of {count(held[broker.broker_id], 'partition')}"
            lead += f" and leads {led[broker.broker_id]}." if led[broker.broker_id] else "."
            yield Candidate(
                slug="broker-away",
                object=name,
                severity=CRITICAL
                if broker.broker_id in needed
                else WARNING,  # its consequences may be graver: `causes`
                sentence=f"Broker {broker.broker_id} does not answer",
                why=f"Silent for {in_time(context.at_ms - broker.seen_ms)}. {broker.error or ''}".strip() + lead,
                action=_action_away(context, broker.broker_id),
                facts={
                    "seen_ms": broker.seen_ms,
                    "leads": led[broker.broker_id],
                    "replicas": held[broker.broker_id],
                },
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
                for_ms=FENCED_FOR_MS,
            )


def _action_away(context: FindingContext, broker_id: int) -> str:
    if context.kafka_rules and broker_id in context.endangered.last_leaders:
        return "Leave it stopped until other replicas lead the partitions that last-leader-behind names."
    held = [election for election in context.unclean_elections if election.lost and broker_id in election.unsaved]
    if held:
        named = ", ".join(f"{election.topic}-{election.partition}" for election in held[:ELECTIONS_NAMED_MAX])
        more = "" if len(held) <= ELECTIONS_NAMED_MAX else f" and {len(held) - ELECTIONS_NAMED_MAX} more"
        return (
            f"Before it starts again, copy its folders of {named}{more}: only there are records that their leaders lack"
            " (unclean-recovery), and it cuts its logs to theirs."
        )
    return "Look whether its process runs and its listener can be reached, then start it again."


def _needed_brokers(context: FindingContext) -> frozenset[int]:
    """Brokers in an ISR that is too small without them: such a partition takes no writes as soon as they are missed."""
    least = {name: setting(topic, MIN_ISR) or 1 for name, topic in context.topics.items()}
    return frozenset(
        broker_id
        for row in context.partitions
        if len(row.isr) <= min(least.get(row.topic, 1), len(row.replicas))
        for broker_id in row.isr
    )


def disks(context: FindingContext) -> Iterable[Candidate]:
    """A log directory that is offline, nearly full, or full within hours at the present rate."""
    shared: dict[tuple[str, int], list[_Disk]] = defaultdict(list)
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
            elif (disk := _disk(context, broker, directory)) is not None:
                shared[broker.host, disk.total_bytes].append(disk)
    for of_host in shared.values():
        yield from _full(of_host, context.thresholds)


@dataclass(frozen=True, slots=True)
class _Disk:
    """A log directory and the file system below it; `bytes_per_hour` None: not known yet."""

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    bytes_per_hour: float | None

    @property
    def used(self) -> float:
        return 1 - self.usable_bytes / self.total_bytes

    @property
    def runway_ms(self) -> int | None:
        rate = self.bytes_per_hour
        return round(self.usable_bytes / rate * HOUR_MS) if rate and rate > 0 else None


def _disk(context: FindingContext, broker: BrokerRow, directory: Mapping[str, Any]) -> _Disk | None:
    total, usable = directory.get("total_bytes"), directory.get("usable_bytes")
    if not total or usable is None:
        return None
    path = str(directory.get("path"))
    return _Disk(broker.broker_id, path, total, usable, context.disk_rates.get((broker.broker_id, path)))


def _full(disks: Sequence[_Disk], limits: Thresholds) -> Iterable[Candidate]:
    """File systems of one machine that have the same size are taken for one: brokers that share a disk fill it
    together, and what it tells of one is true of all.
    """
    disk = min(disks, key=lambda d: (d.runway_ms is None, d.runway_ms or 0, d.usable_bytes))
    runway_ms = disk.runway_ms
    soon = runway_ms is not None and runway_ms < limits.disk_warning_hours * HOUR_MS
    if disk.used < limits.disk_warning_share and not soon:
        return
    urgent = disk.used >= limits.disk_critical_share or (
        runway_ms is not None and runway_ms < limits.disk_critical_hours * HOUR_MS
    )
    broker_ids = sorted({d.broker_id for d in disks})
    name = f"broker {ids(broker_ids)}"
    why = f"{in_bytes(disk.usable_bytes)} of {in_bytes(disk.total_bytes)} are free at {disk.path}."
    if runway_ms is not None and disk.bytes_per_hour is not None:
        why += f" At {in_bytes(round(disk.bytes_per_hour))} an hour it is full in {in_time(runway_ms)}."
    yield Candidate(
        slug="disk-runway",
        object=name,
        severity=CRITICAL if urgent else WARNING,
        sentence=f"Disk {disk.used:.0%} full: {name}" if not soon else f"Disk full within hours: {name}",
        why=why,
        action="See whether copying keeps up and what local retention allows; slow producers down if neither helps.",
        facts={
            "paths": {str(d.broker_id): d.path for d in disks},
            "usable_bytes": disk.usable_bytes,
            "total_bytes": disk.total_bytes,
            "runway_ms": runway_ms,
        },
        broker_id=broker_ids[0] if len(broker_ids) == 1 else None,
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
    """Replication throttles that no move uses: they slow ordinary replication down. One act sets several, so all that
    are left are one finding.
    """
    moving = {row.topic for row in context.partitions if row.adding_replicas or row.removing_replicas}
    left = [
        throttle
        for throttle in context.throttles
        if throttle.topic not in moving and (throttle.topic is not None or not moving)
    ]
    if not left:
        return
    texts = [f"{throttle.name} of {_place(throttle)} is {throttle.value[:VALUE_CHARS_MAX]}" for throttle in left]
    more = f", and {len(left) - THROTTLES_NAMED_MAX} more" if len(left) > THROTTLES_NAMED_MAX else ""
    yield Candidate(
        slug="throttle-left",
        object="cluster",
        severity=WARNING,
        sentence=f"{count(len(left), 'throttle')} without a move",
        why=f"{'; '.join(texts[:THROTTLES_NAMED_MAX])}{more}. No replica moves there.",
        action="Remove them, since they hold ordinary replication back: ebbline plan clear-throttle.",
        facts={
            "throttles": [
                {"name": t.name, "value": t.value[:VALUE_CHARS_MAX], "topic": t.topic, "broker_id": t.broker_id}
                for t in left[:THROTTLES_STORED_MAX]
            ]
        },
        for_ms=round(context.thresholds.throttle_left_s * 1000),
    )


def _place(throttle: ThrottleSetting) -> str:
    if throttle.topic is not None:
        return throttle.topic
    return f"broker {throttle.broker_id}" if throttle.broker_id != -1 else "all brokers"
