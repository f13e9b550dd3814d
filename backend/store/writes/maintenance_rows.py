"""Writes of maintenance windows; each runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, case, insert, update

from backend.store import tables as t


def add_window(connection: Connection, row: Mapping[str, Any]) -> int:
    """Stores a new window; its number."""
    key = connection.execute(insert(t.maintenance_window).values(dict(row))).inserted_primary_key
    if key is None:  # SQLAlchemy's type allows it; both databases tell the number
        raise RuntimeError("The database did not number the new maintenance window.")
    return int(key[0])


def end_window(connection: Connection, cluster_id: str, window_id: int, at_ms: int) -> None:
    """A window ends now; one that has not begun never does. It stays for those who read the history."""
    table = t.maintenance_window
    connection.execute(
        update(table)
        .where(table.c.cluster_id == cluster_id, table.c.id == window_id)
        .values(ends_ms=at_ms, begins_ms=case((table.c.begins_ms > at_ms, at_ms), else_=table.c.begins_ms))
    )
