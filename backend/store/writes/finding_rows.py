"""Writes of findings; each runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, update

from backend.store import tables as t


def open_findings(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """New findings, as rows of the table without their number."""
    if rows:
        connection.execute(insert(t.finding), [dict(row) for row in rows])


def refresh_findings(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Findings that are still true: rows of `finding_id` and what is true of them now, all with the same names."""
    if not rows:
        return
    values: dict[str, Any] = {name: bindparam(name) for name in rows[0] if name != "finding_id"}
    statement = update(t.finding).where(t.finding.c.id == bindparam("finding_id")).values(values)
    connection.execute(statement, [dict(row) for row in rows])


def close_findings(connection: Connection, finding_ids: Iterable[int], at_ms: int) -> None:
    """Findings that are no longer true."""
    rows = [{"finding_id": finding_id} for finding_id in finding_ids]
    if rows:
        statement = update(t.finding).where(t.finding.c.id == bindparam("finding_id")).values(closed_ms=at_ms)
        connection.execute(statement, rows)


def acknowledge_finding(connection: Connection, cluster_id: str, finding_id: int, at_ms: int, by: str) -> None:
    """A user takes a finding over."""
    table = t.finding
    connection.execute(
        update(table)
        .where(table.c.cluster_id == cluster_id, table.c.id == finding_id)
        .values(acknowledged_ms=at_ms, acknowledged_by=by)
    )


def mute_findings(connection: Connection, cluster_id: str, slug: str, object_: str, until_ms: int | None) -> None:
    """Silence for all findings of a slug and object, closed ones too: the next one takes it over. None ends it."""
    table = t.finding
    connection.execute(
        update(table)
        .where(table.c.cluster_id == cluster_id, table.c.slug == slug, table.c.object == object_)
        .values(muted_until_ms=until_ms)
    )


def prune_findings(connection: Connection, cluster_id: str, closed_before_ms: int) -> int:
    """Removes findings that were closed before then and are not muted beyond it; returns how many."""
    table = t.finding
    done = connection.execute(
        delete(table).where(
            table.c.cluster_id == cluster_id,
            table.c.closed_ms < closed_before_ms,
            table.c.muted_until_ms.is_(None) | (table.c.muted_until_ms < closed_before_ms),
        )
    )
    return done.rowcount
