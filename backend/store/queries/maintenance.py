"""Reads of maintenance windows."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, func, select

from backend.store import tables as t
from backend.store.maintenance_window import MaintenanceWindow

# As many may be open or planned: one a week for each of 20 teams, a year ahead. They are read with each round, 0.2 kB
# each.
WINDOWS_MAX: Final = 1_000
# Windows that have ended are shown for so long.
ENDED_SHOWN_MS: Final = 7 * 86_400_000


_COLUMNS: Final = [t.maintenance_window.c[name] for name in MaintenanceWindow.__slots__]


def windows_at(connection: Connection, cluster_id: str, at_ms: int) -> list[MaintenanceWindow]:
    """Windows that hold at that moment."""
    table = t.maintenance_window
    rows = connection.execute(
        select(*_COLUMNS)
        .where(table.c.cluster_id == cluster_id, table.c.ends_ms > at_ms, table.c.begins_ms <= at_ms)
        .limit(WINDOWS_MAX)
    )
    return [MaintenanceWindow(*row) for row in rows]


def windows(connection: Connection, cluster_id: str, ended_after_ms: int) -> list[MaintenanceWindow]:
    """Windows that hold, are planned, or ended after that moment; by their beginning."""
    table = t.maintenance_window
    rows = connection.execute(
        select(*_COLUMNS)
        .where(table.c.cluster_id == cluster_id, table.c.ends_ms > ended_after_ms)
        .order_by(table.c.begins_ms, table.c.id)
        .limit(2 * WINDOWS_MAX)
    )
    return [MaintenanceWindow(*row) for row in rows]


def window(connection: Connection, cluster_id: str, window_id: int) -> MaintenanceWindow | None:
    """One window; None when this cluster has none of that number."""
    table = t.maintenance_window
    row = connection.execute(
        select(*_COLUMNS).where(table.c.cluster_id == cluster_id, table.c.id == window_id)
    ).one_or_none()
    return None if row is None else MaintenanceWindow(*row)


def unended(connection: Connection, cluster_id: str, at_ms: int) -> int:
    """Number of windows that hold or are planned."""
    table = t.maintenance_window
    number = connection.scalar(
        select(func.count()).select_from(table).where(table.c.cluster_id == cluster_id, table.c.ends_ms > at_ms)
    )
    return int(number or 0)
