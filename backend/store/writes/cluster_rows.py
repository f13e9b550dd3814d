"""Writes of the observer and of every process's heartbeat; each function runs in the caller's transaction.

Rows are dicts of column names; a row that exists is replaced as a whole. Offsets and phases,
which keep a history, are written by `backend/store/writes/samples.py`; the ledger by the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, delete, text, update
from sqlalchemy.dialects import postgresql, sqlite

from backend.store import tables as t
from backend.store.storable import storable_key

RowValues = Mapping[str, Any]

# How long samples stay: 24 h is the longest range the pages offer, twice that for comparison.
SAMPLE_RETENTION_MS: Final = 48 * 3_600_000


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insert of the connection's database: both know ``ON CONFLICT`` in the same words."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def upsert(connection: Connection, table: Table, rows: Sequence[RowValues], *, keep: Iterable[str] = ()) -> None:
    """Insert ``rows`` or replace those with the same primary key.

    All rows have the same columns. Columns in ``keep`` are written only when the row is new.
    """
    if not rows:
        return
    insert = insert_into(connection, table)
    key = [column.name for column in table.primary_key]
    changed = [name for name in rows[0] if name not in key and name not in set(keep)]
    statement = insert.values({name: bindparam(name) for name in rows[0]})
    if changed:
        values = {name: statement.excluded[name] for name in changed}
        statement = statement.on_conflict_do_update(index_elements=key, set_=values)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=key)
    connection.execute(statement, [dict(row) for row in rows])


def heartbeat(
    connection: Connection,
    cluster_id: str,
    process: str,
    *,
    pid: int,
    started_ms: int,
    now_ms: int,
    interval_ms: int,
    state: str,
    message: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Notes that ``process`` lives. Keeps its ``data_version``, see `data_changed`."""
    row = {
        "cluster_id": cluster_id,
        "process": process,
        "pid": pid,
        "started_ms": started_ms,
        "updated_ms": now_ms,
        "interval_ms": interval_ms,
        "state": state,
        "message": message,
        "detail": None if detail is None else dict(detail),
    }
    upsert(connection, t.process_status, [row])


def data_changed(connection: Connection, cluster_id: str, process: str) -> None:
    """Marks that ``process`` wrote data: readers skip a redraw while no version has grown.

    Does nothing before the first heartbeat of the process.
    """
    table = t.process_status
    connection.execute(
        update(table)
        .where(table.c.cluster_id == cluster_id, table.c.process == process)
        .values(data_version=table.c.data_version + 1)
    )


def save_cluster(connection: Connection, row: RowValues) -> None:
    """The cluster as it was last seen; ``first_seen_ms`` keeps its first value."""
    upsert(connection, t.cluster, [row], keep=["first_seen_ms"])


def save_brokers(connection: Connection, cluster_id: str, rows: Sequence[RowValues]) -> None:
    """The brokers as the metadata lists them now; one that is no longer listed is removed."""
    upsert(connection, t.broker, rows)
    _remove_others(connection, t.broker, cluster_id, "broker_id", [row["broker_id"] for row in rows])


def save_topics(connection: Connection, cluster_id: str, rows: Sequence[RowValues]) -> None:
    """The topics as the metadata lists them now; one that is gone is removed with its latest offsets.

    History and ledger of a removed topic stay.
    """
    upsert(connection, t.topic, rows)
    names = [row["topic"] for row in rows]
    for table in (t.topic, t.partition_current, t.replica_current):
        _remove_others(connection, table, cluster_id, "topic", names)


def save_config_values(connection: Connection, cluster_id: str, rows: Sequence[RowValues]) -> None:
    """Configuration values of some resources; values these resources no longer have are removed."""
    upsert(connection, t.config_value, rows)
    table = t.config_value
    sampled: dict[tuple[str, str], int] = {}
    for row in rows:
        resource = (row["resource_type"], row["resource"])
        sampled[resource] = max(row["sampled_ms"], sampled.get(resource, row["sampled_ms"]))
    for (kind, resource_name), sampled_ms in sampled.items():
        connection.execute(
            delete(table).where(
                table.c.cluster_id == cluster_id,
                table.c.resource_type == kind,
                table.c.resource == resource_name,
                table.c.sampled_ms < sampled_ms,
            )
        )


def save_cluster_sample(connection: Connection, row: RowValues) -> None:
    """One point of the cluster's totals."""
    upsert(connection, t.cluster_sample, [row])


def append_engine_events(connection: Connection, rows: Sequence[RowValues]) -> None:
    """Events of ``__ebbline_events``; one that was stored before is left as it is."""
    columns = [column.name for column in t.engine_event.columns]
    upsert(connection, t.engine_event, rows, keep=columns)


def prune(connection: Connection, cluster_id: str, now_ms: int, retention_ms: int = SAMPLE_RETENTION_MS) -> int:
    """Remove samples and engine events older than ``retention_ms``; returns how many rows."""
    removed = 0
    times = {
        t.partition_sample: t.partition_sample.c.sampled_ms,
        t.replica_sample: t.replica_sample.c.sampled_ms,
        t.cluster_sample: t.cluster_sample.c.sampled_ms,
        t.engine_event: t.engine_event.c.at_ms,
    }
    for table, time_column in times.items():
        done = connection.execute(
            delete(table).where(table.c.cluster_id == cluster_id, time_column < now_ms - retention_ms)
        )
        removed += done.rowcount
    return removed


def _remove_others(connection: Connection, table: Table, cluster_id: str, column: str, keep: Sequence[Any]) -> None:
    stored = connection.execute(
        table.select().with_only_columns(table.c[column]).where(table.c.cluster_id == cluster_id).distinct()
    ).scalars()
    gone = set(stored) - {storable_key(name) if isinstance(name, str) else name for name in keep}
    if gone:
        statement = delete(table).where(table.c.cluster_id == cluster_id, table.c[column] == bindparam("gone"))
        connection.execute(statement, [{"gone": value} for value in gone])


def touch(connection: Connection) -> None:
    """Takes the write lock and changes nothing: whether the database takes writes."""
    connection.execute(text("UPDATE process_status SET state = state WHERE cluster_id = ''"))
