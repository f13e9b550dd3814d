"""Rules about log directories: offline, nearly full, or full soon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend.control.findings.finding_context import (
    CRITICAL,
    NAMED_MAX,
    WARNING,
    Candidate,
    FindingContext,
    count,
    ids,
    name_of,
)
from backend.control.findings.thresholds import Thresholds
from backend.control.formatting import in_bytes, in_time
from backend.store.queries.overview import BrokerRow

HOUR_MS: Final = 3_600_000
# Brokers are asked one after the other: within seconds a disk that they share changes by less.
SAME_DISK_SHARE: Final = 0.01


def offline_directories(context: FindingContext) -> Iterable[Candidate]:
    """Log directories that a broker uses no more: one finding a broker, since one fault may take several."""
    for broker in context.brokers:
        failed = [directory for directory in broker.log_dirs or [] if directory.get("error")]
        if not failed:
            continue
        paths = [str(directory.get("path", "?")) for directory in failed]
        lost = _without_another(context, broker.broker_id)
        says = "; ".join(f"{path}: {directory['error']}" for path, directory in zip(paths, failed, strict=True))
        why = f"The broker says {failed[0]['error']}." if len(failed) == 1 else f"The broker says {says}."
        if lost:
            why += f" No other broker has a replica in sync of {count(len(lost), 'partition')}:"
            why += f" {', '.join(lost[:NAMED_MAX])}."
        yield Candidate(
            slug="disk-offline",
            object=f"broker {broker.broker_id}",
            severity=CRITICAL if lost else WARNING,
            sentence=f"Log directory offline: {', '.join(paths)} on broker {broker.broker_id}",
            why=why,
            action=_after_a_lost_disk(context, broker.broker_id, last_copies=bool(lost)),
            facts={"path": paths[0], "paths": paths, "without_another": lost[:NAMED_MAX]},
            broker_id=broker.broker_id,
        )


def _after_a_lost_disk(context: FindingContext, broker_id: int, *, last_copies: bool) -> str:
    """Apache Kafka lets a broker with a new disk lead what it was the last one in sync of, empty: others cut theirs."""
    if not (last_copies and context.kafka_rules):
        return "Repair the disk, then start the broker again."
    return (
        f"Start broker {broker_id} again only with the disk's old content. If that is lost, do not start it: it would"
        " lead with an empty disk, and the other replicas would cut their logs to its. Let another replica lead first:"
        " runbook last-leader-behind, step 3."
    )


def _without_another(context: FindingContext, broker_id: int) -> list[str]:
    """Partitions with no other replica in sync that the broker does not lead: what it leads is on another disk."""
    return [
        name_of(row)
        for row in context.partitions
        if broker_id in row.replicas and row.leader != broker_id and not set(row.isr) - {broker_id}
    ]


@dataclass(frozen=True, slots=True)
class _Disk:
    """A log directory and the file system below it; `bytes_per_hour` None: not known yet."""

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    bytes_per_hour: float | None
    silent: bool = False
    """Whether this is what a broker that does not answer told last."""

    @property
    def used(self) -> float:
        return 1 - self.usable_bytes / self.total_bytes

    @property
    def runway_ms(self) -> int | None:
        rate = self.bytes_per_hour
        return round(self.usable_bytes / rate * HOUR_MS) if rate and rate > 0 else None

    def severity(self, limits: Thresholds) -> str | None:
        """None: there is room, and for long."""
        if self.used >= limits.disk_critical_share or self._is_full_within(limits.disk_critical_hours):
            return CRITICAL
        return WARNING if self.used >= limits.disk_warning_share or self.is_full_soon(limits) else None

    def is_full_soon(self, limits: Thresholds) -> bool:
        return self._is_full_within(limits.disk_warning_hours)

    def urgency(self, limits: Thresholds) -> tuple[int, int, float, float]:
        """The most urgent sorts first: the gravest, the soonest full, the fullest."""
        runway_ms = self.runway_ms
        rank = (CRITICAL, WARNING, None).index(self.severity(limits))
        return rank, runway_ms is None, float(runway_ms or 0), -self.used

    def _is_full_within(self, hours: float) -> bool:
        return self.runway_ms is not None and self.runway_ms < hours * HOUR_MS


def full_disks(context: FindingContext) -> Iterable[Candidate]:
    """Disks that are nearly full, or full within hours at the present rate: of each broker the most urgent one."""
    by_object: dict[tuple[int, ...], list[list[_Disk]]] = defaultdict(list)
    for of_file_system in _file_systems(context):
        by_object[tuple(sorted({disk.broker_id for disk in of_file_system}))].append(of_file_system)
    limits = context.thresholds
    for broker_ids, file_systems in by_object.items():
        worst = [min(disks, key=lambda disk: disk.urgency(limits)) for disks in file_systems]
        full = sorted((disk for disk in worst if disk.severity(limits)), key=lambda disk: disk.urgency(limits))
        if full:
            disks = next(disks for disks in file_systems if full[0] in disks)
            yield _full(broker_ids, disks, full, limits)


def fullest_directory(context: FindingContext, broker: BrokerRow) -> tuple[str, int] | None:
    """Path and free bytes of a broker's log directory that is as good as full, as it was last seen."""
    disks = [_disk(context, broker, directory) for directory in broker.log_dirs or []]
    full = [disk for disk in disks if disk is not None and disk.used >= context.thresholds.disk_critical_share]
    fullest = max(full, key=lambda disk: disk.used, default=None)
    return None if fullest is None else (fullest.path, fullest.usable_bytes)


def _file_systems(context: FindingContext) -> list[list[_Disk]]:
    """Log directories by the file system that they share, as far as can be seen: those of different brokers of one
    machine with the same size and room. Directories of one broker may well be disks of one size.
    """
    by_size: dict[tuple[str, int], list[_Disk]] = defaultdict(list)
    for broker in context.brokers:
        for directory in broker.log_dirs or []:
            disk = _disk(context, broker, directory)
            if disk is not None:
                by_size[broker.host, disk.total_bytes].append(disk)
    result: list[list[_Disk]] = []
    for (_, total_bytes), of_size in by_size.items():
        groups: list[list[_Disk]] = []
        for disk in sorted(of_size, key=lambda disk: (disk.usable_bytes, disk.broker_id, disk.path)):
            same = (
                group
                for group in groups
                if disk.usable_bytes - group[0].usable_bytes <= SAME_DISK_SHARE * total_bytes
                and all(disk.broker_id != other.broker_id for other in group)
            )
            group = next(same, None)
            if group is None:
                groups.append([disk])
            else:
                group.append(disk)
        result += groups
    return result


def _disk(context: FindingContext, broker: BrokerRow, directory: Mapping[str, Any]) -> _Disk | None:
    total, usable = directory.get("total_bytes"), directory.get("usable_bytes")
    if directory.get("error") or not total or usable is None:
        return None
    path = str(directory.get("path"))
    rate = context.disk_rates.get((broker.broker_id, path))
    return _Disk(broker.broker_id, path, total, usable, rate, silent=not broker.reachable)


def _full(broker_ids: Sequence[int], disks: Sequence[_Disk], full: Sequence[_Disk], limits: Thresholds) -> Candidate:
    """`disks`: the log directories of the most urgent file system; `full`: the worst of each that is nearly full."""
    disk, others = full[0], full[1:]
    runway_ms, name = disk.runway_ms, f"broker {ids(broker_ids)}"
    free = f"{in_bytes(disk.usable_bytes)} of {in_bytes(disk.total_bytes)}"
    why = f"{free} are free at {disk.path}."
    if disk.silent:
        why = f"{free} were free at {disk.path} when broker {disk.broker_id} was seen last."
    if runway_ms is not None and disk.bytes_per_hour is not None:
        why += f" At {in_bytes(round(disk.bytes_per_hour))} an hour it is full in {in_time(runway_ms)}."
    if others:
        why += f" {', '.join(f'{other.path} is {other.used:.0%} full' for other in others[:NAMED_MAX])}."
    return Candidate(
        slug="disk-runway",
        object=name,
        severity=disk.severity(limits) or WARNING,
        sentence=f"Disk full within hours: {name}"
        if disk.is_full_soon(limits)
        else f"Disk {disk.used:.0%} full: {name}",
        why=why,
        action="See whether copying keeps up and what local retention allows; slow producers down if neither helps.",
        facts={
            "paths": {str(each.broker_id): each.path for each in disks},
            "usable_bytes": disk.usable_bytes,
            "total_bytes": disk.total_bytes,
            "runway_ms": runway_ms,
        },
        broker_id=broker_ids[0] if len(broker_ids) == 1 else None,
    )
