"""Reads of operations and of who did what: Activity, plan tracker, history of the Config page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from backend.store import tables as t

ROWS_MAX: Final = 1_001  # a page of the API, and one more that tells of the next page


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One attempt to change the cluster, refused ones included."""

    id: int
    at_ms: int
    actor: str
    role: str
    action: str
    object: str
    diff: Any
    reason: str | None
    operation_id: int | None
    cli: Any
    result: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class OperationRow:
    """A stored plan and how far it got."""

    id: int
    kind: str
    state: str
    author: str
    role: str
    reason: str | None
    inputs: Any
    snapshot: Any
    diff: Any
    checks: Any
    cli: Any
    estimate: Any
    result: Any
    idempotency_key: str | None
    reverts_id: int | None
    created_ms: int
    updated_ms: int
    requested_ms: int | None
    finished_ms: int | None
    progress: Any = None
    intent: str | None = None
    throttle_bytes_per_s: int | None = None


def entries(
    connection: Connection,
    cluster_id: str,
    *,
    before_id: int | None = None,
    actions: Sequence[str] | None = None,
    limit: int = 100,
) -> list[AuditRow]:
    """The audit, newest first; ``before_id`` continues below the last row of the page before."""
    table = t.audit
    query = select(*(column for column in table.c if column.name != "cluster_id")).where(
        table.c.cluster_id == cluster_id
    )
    if before_id is not None:
        query = query.where(table.c.id < before_id)
    if actions is not None:
        query = query.where(table.c.action.in_(list(actions)))
    rows = connection.execute(query.order_by(table.c.at_ms.desc(), table.c.id.desc()).limit(min(limit, ROWS_MAX)))
    return [AuditRow(**row._mapping) for row in rows]


def actors(connection: Connection, cluster_id: str, action: str, since_ms: int) -> dict[str, str]:
    """By object: who did this to it last since then, refused attempts left out."""
    table = t.audit
    rows = connection.execute(
        select(table.c.object, table.c.actor)
        .where(
            table.c.cluster_id == cluster_id,
            table.c.at_ms >= since_ms,
            table.c.action == action,
            table.c.result != "refused",
        )
        .order_by(table.c.at_ms, table.c.id)
    )
    return {row.object: row.actor for row in rows}


def operations(
    connection: Connection,
    cluster_id: str,
    *,
    kinds: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    before_id: int | None = None,
    limit: int = 100,
) -> list[OperationRow]:
    """Plans, newest first; ``before_id`` continues below the last row of the page before."""
    table = t.operation
    query = select(*(column for column in table.c if column.name != "cluster_id")).where(
        table.c.cluster_id == cluster_id
    )
    if kinds is not None:
        query = query.where(table.c.kind.in_(list(kinds)))
    if states is not None:
        query = query.where(table.c.state.in_(list(states)))
    if before_id is not None:
        query = query.where(table.c.id < before_id)
    rows = connection.execute(query.order_by(table.c.created_ms.desc(), table.c.id.desc()).limit(min(limit, ROWS_MAX)))
    return [OperationRow(**row._mapping) for row in rows]


def operation(connection: Connection, cluster_id: str, operation_id: int) -> OperationRow | None:
    """One plan; None when this cluster has none of that number."""
    table = t.operation
    row = connection.execute(
        select(*(column for column in table.c if column.name != "cluster_id")).where(
            table.c.cluster_id == cluster_id, table.c.id == operation_id
        )
    ).one_or_none()
    return None if row is None else OperationRow(**row._mapping)
