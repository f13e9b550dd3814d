"""Reads of findings: what needs attention, since when, what people did about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, func, select

from backend.store import tables as t

ROWS_MAX: Final = 1_001  # a page of the API, and one more that tells of the next page
# One finding per rule and object at most; 42 rules give 1,000 objects at most (`backend.control.findings.evaluate`). A
# row that is open and not read would be opened again each round.
OPEN_MAX: Final = 50_000
State = Literal["open", "closed", "all"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One time in which a rule spoke of an object; `closed_ms` None: still so. Times in epoch milliseconds.

    `maintenance_until_ms` is no column: the API says it of what is in a maintenance window.
    """

    id: int
    slug: str
    object: str
    topic: str | None
    partition: int | None
    broker_id: int | None
    severity: str
    sentence: str
    action: str
    evidence: dict[str, Any] | None
    opened_ms: int
    seen_ms: int
    closed_ms: int | None
    acknowledged_ms: int | None
    acknowledged_by: str | None
    muted_until_ms: int | None
    cause_slug: str | None = None
    cause_object: str | None = None
    maintenance_until_ms: int | None = None

    @property
    def cause(self) -> tuple[str, str] | None:
        """(slug, object) of the finding that explains it; None: it stands for itself."""
        return None if self.cause_slug is None or self.cause_object is None else (self.cause_slug, self.cause_object)


_COLUMNS: Final = [t.finding.c[name] for name in Finding.__slots__ if name in t.finding.c]


def findings(
    connection: Connection,
    cluster_id: str,
    *,
    state: State = "open",
    severity: str | None = None,
    slug: str | None = None,
    topic: str | None = None,
    cause: tuple[str, str] | None = None,
    not_muted_at_ms: int | None = None,
    before_id: int | None = None,
    limit: int = 100,
) -> list[Finding]:
    """Findings, the one opened last first; ``before_id`` continues below the last row of the page before.

    ``cause``: only those that the finding of this (slug, object) explains. ``not_muted_at_ms`` leaves out those that
    are muted at that time.
    """
    table = t.finding
    query = select(*_COLUMNS).where(table.c.cluster_id == cluster_id)
    if state != "all":
        query = query.where(table.c.closed_ms.is_(None) if state == "open" else table.c.closed_ms.is_not(None))
    cause_slug, cause_object = cause or (None, None)
    for column, value in (
        (table.c.severity, severity),
        (table.c.slug, slug),
        (table.c.topic, topic),
        (table.c.cause_slug, cause_slug),
        (table.c.cause_object, cause_object),
    ):
        if value is not None:
            query = query.where(column == value)
    if not_muted_at_ms is not None:
        query = query.where(table.c.muted_until_ms.is_(None) | (table.c.muted_until_ms <= not_muted_at_ms))
    if before_id is not None:
        query = query.where(table.c.id < before_id)
    rows = connection.execute(query.order_by(table.c.id.desc()).limit(min(limit, ROWS_MAX)))
    return [Finding(**row._mapping) for row in rows]


def finding(connection: Connection, cluster_id: str, finding_id: int) -> Finding | None:
    """One finding; None when this cluster has none of that number."""
    table = t.finding
    row = connection.execute(
        select(*_COLUMNS).where(table.c.cluster_id == cluster_id, table.c.id == finding_id)
    ).one_or_none()
    return None if row is None else Finding(**row._mapping)


def all_open(connection: Connection, cluster_id: str) -> list[Finding]:
    """Every open finding: what the next round is compared with."""
    table = t.finding
    rows = connection.execute(
        select(*_COLUMNS).where(table.c.cluster_id == cluster_id, table.c.closed_ms.is_(None)).limit(OPEN_MAX)
    )
    return [Finding(**row._mapping) for row in rows]


def muted_until(connection: Connection, cluster_id: str, now_ms: int) -> dict[tuple[str, str], int]:
    """Until when findings of (slug, object) are muted, for those that are muted now."""
    table = t.finding
    rows = connection.execute(
        select(table.c.slug, table.c.object, table.c.muted_until_ms)
        .where(table.c.cluster_id == cluster_id, table.c.muted_until_ms > now_ms)
        .order_by(table.c.id)
    )
    return {(row.slug, row.object): int(row.muted_until_ms) for row in rows}


@dataclass(frozen=True, slots=True)
class StoredCopyEvent:
    """An event of a copy in a broker of the embedded engine; `outcome`: started, finished or failed."""

    topic: str
    partition: int
    broker_id: int
    at_ms: int
    outcome: str
    error: str | None


@dataclass(frozen=True, slots=True)
class UncleanRecovery:
    """A partition whose leader was elected by comparing logs; `complete`: of `min.insync.replicas` or more."""

    topic: str
    partition: int
    leader: int
    complete: bool
    at_ms: int


# As many are published of one round of elections (`broker.unclean_recovery`); 200 bytes each.
RECOVERIES_MAX: Final = 1000


def unclean_recoveries(connection: Connection, cluster_id: str, since_ms: int) -> list[UncleanRecovery]:
    """The newest since then, newest first; one start of a cluster may have one of each partition."""
    table = t.engine_event
    rows = connection.execute(
        select(table.c.topic, table.c.partition, table.c.at_ms, table.c.body)
        .where(table.c.cluster_id == cluster_id, table.c.at_ms >= since_ms, table.c.type == "unclean_recovery")
        .order_by(table.c.at_ms.desc(), table.c.source_offset.desc())
        .limit(RECOVERIES_MAX)
    )
    return [
        UncleanRecovery(row.topic, row.partition, int(row.body["leader"]), bool(row.body["complete"]), row.at_ms)
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class FailedRead:
    """The newest failed read of the remote tier that a broker of the embedded engine reported of a partition."""

    topic: str
    partition: int
    broker_id: int
    at_ms: int
    offset: int
    error: str | None


# A broker reports one of a partition every 10 s: all of a minute of 80 partitions; 200 bytes each.
FAILED_READS_MAX: Final = 500


def quarantined_records(connection: Connection, cluster_id: str, since_ms: int) -> int:
    """Records of the metadata topic that the pipeline has kept aside since then."""
    table = t.quarantine
    query = select(func.count()).where(table.c.cluster_id == cluster_id, table.c.ingested_ms >= since_ms)
    return int(connection.execute(query).scalar_one())


def failed_reads(connection: Connection, cluster_id: str, since_ms: int) -> list[FailedRead]:
    """The newest failed read of each partition and broker since then, newest first."""
    table = t.engine_event
    rows = connection.execute(
        select(table.c.topic, table.c.partition, table.c.broker_id, table.c.at_ms, table.c.body)
        .where(table.c.cluster_id == cluster_id, table.c.at_ms >= since_ms, table.c.type == "remote_read")
        .order_by(table.c.at_ms.desc(), table.c.source_offset.desc())
        .limit(FAILED_READS_MAX)
    )
    newest: dict[tuple[str, int, int], FailedRead] = {}
    for row in rows:
        read = FailedRead(
            row.topic, row.partition, row.broker_id, row.at_ms, int(row.body["offset"]), row.body.get("error")
        )
        newest.setdefault((row.topic, row.partition, row.broker_id), read)
    return list(newest.values())


# The newest are enough: a copy that fails is tried again every task interval (30 s).
COPY_EVENTS_MAX: Final = 500


def copy_events(connection: Connection, cluster_id: str, since_ms: int) -> list[StoredCopyEvent]:
    """The newest events of copies since then, newest first."""
    table = t.engine_event
    rows = connection.execute(
        select(table.c.topic, table.c.partition, table.c.broker_id, table.c.at_ms, table.c.body)
        .where(table.c.cluster_id == cluster_id, table.c.at_ms >= since_ms, table.c.type == "copy")
        .order_by(table.c.at_ms.desc(), table.c.source_offset.desc())
        .limit(COPY_EVENTS_MAX)
    )
    return [
        StoredCopyEvent(
            row.topic, row.partition, row.broker_id, row.at_ms, str(row.body["outcome"]), row.body.get("error")
        )
        for row in rows
    ]
