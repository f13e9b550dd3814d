"""Writes of operations and of the audit; each runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from backend.store import tables as t


class KeyInUse(Exception):
    """The idempotency key was given for another operation of this cluster."""


def add_operation(connection: Connection, row: Mapping[str, Any]) -> int:
    """Stores a new operation; its number."""
    key = connection.execute(insert(t.operation).values(dict(row))).inserted_primary_key
    if key is None:  # SQLAlchemy's type allows it; both databases tell the number
        raise RuntimeError("The database did not number the new operation.")
    return int(key[0])


def advance_operation(
    connection: Connection,
    cluster_id: str,
    operation_id: int,
    from_states: Collection[str],
    values: Mapping[str, Any],
) -> bool:
    """Changes an operation that is in one of `from_states`; False when it is not (any more): another was faster.

    Raises KeyInUse when `values` brings an idempotency key that another operation has.
    """
    table = t.operation
    statement = (
        update(table)
        .where(table.c.cluster_id == cluster_id, table.c.id == operation_id, table.c.state.in_(sorted(from_states)))
        .values(dict(values))
    )
    try:
        return connection.execute(statement).rowcount == 1
    except IntegrityError as error:
        raise KeyInUse(str(values.get("idempotency_key"))) from error


def note_progress(connection: Connection, cluster_id: str, operation_id: int, values: Mapping[str, Any]) -> None:
    """Stores how far an operation is, whatever its state."""
    table = t.operation
    connection.execute(
        update(table).where(table.c.cluster_id == cluster_id, table.c.id == operation_id).values(dict(values))
    )


def lock_cluster(connection: Connection, cluster_id: str) -> None:
    """Until the end of the transaction no other one comes past here (SQLite: it has one writer anyway)."""
    connection.execute(select(t.cluster.c.cluster_id).where(t.cluster.c.cluster_id == cluster_id).with_for_update())


def open_operation(connection: Connection, cluster_id: str, kind: str, states: Collection[str]) -> int | None:
    """An operation of this kind that is in one of these states."""
    table = t.operation
    number = connection.scalar(
        select(table.c.id)
        .where(table.c.cluster_id == cluster_id, table.c.kind == kind, table.c.state.in_(sorted(states)))
        .order_by(table.c.id)
        .limit(1)
    )
    return None if number is None else int(number)


def operation_of_key(connection: Connection, cluster_id: str, idempotency_key: str) -> int | None:
    """The operation that was executed under this key."""
    table = t.operation
    number = connection.scalar(
        select(table.c.id).where(table.c.cluster_id == cluster_id, table.c.idempotency_key == idempotency_key)
    )
    return None if number is None else int(number)


def add_audit(connection: Connection, row: Mapping[str, Any]) -> None:
    """Appends to the audit, which is never changed or pruned."""
    connection.execute(insert(t.audit).values(dict(row)))
