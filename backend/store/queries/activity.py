"""Reads of the Activity page: findings and events of brokers over time; the audit is read by `queries/audit.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, or_, select

from backend.store import tables as t
from backend.store.queries.overview import FindingRow

# Bars of a chart; a browser draws 1,000 in some 50 ms.
FINDINGS_MAX: Final = 1_000
BROKER_EVENTS_MAX: Final = 200
# Phases and finished copies come by the thousand and have other pages: of those only failures count here.
EVENTS_READ_MAX: Final = 5_000
ALWAYS: Final = ("leader", "rlmm_ready")


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """An event of a broker of the embedded engine."""

    at_ms: int
    type: str
    broker_id: int
    topic: str | None
    partition: int | None
    body: dict[str, Any]


def findings(connection: Connection, cluster_id: str, since_ms: int) -> list[FindingRow]:
    """At most FINDINGS_MAX findings that are open or were closed since ``since_ms``: the open ones, then the newest."""
    table = t.finding
    rows = connection.execute(
        select(*(table.c[name] for name in FindingRow.__slots__))
        .where(table.c.cluster_id == cluster_id, or_(table.c.closed_ms.is_(None), table.c.closed_ms >= since_ms))
        .order_by(table.c.closed_ms.is_not(None), table.c.opened_ms.desc())
        .limit(FINDINGS_MAX)
    )
    return [FindingRow(*row) for row in rows]


def broker_events(
    connection: Connection, cluster_id: str, since_ms: int, limit: int = BROKER_EVENTS_MAX
) -> list[BrokerEvent]:
    """Leader changes, metadata read from the beginning, and failures among the newest 5,000 events since ``since_ms``.

    Newest first; none on a cluster without such events.
    """
    table = t.engine_event
    columns = [table.c[name] for name in BrokerEvent.__slots__]
    newest = (
        select(*columns)
        .where(table.c.cluster_id == cluster_id, table.c.at_ms >= since_ms)
        .order_by(table.c.at_ms.desc())
        .limit(EVENTS_READ_MAX)
        .subquery()
    )
    body = newest.c.body
    notable = or_(
        newest.c.type.in_(ALWAYS),
        body["outcome"].as_string() == "failed",
        body["phase"].as_string().in_(("DELAYED", "FAILED")),
    )
    rows = connection.execute(select(*newest.c).where(notable).order_by(newest.c.at_ms.desc()).limit(limit))
    return [BrokerEvent(*row) for row in rows]
