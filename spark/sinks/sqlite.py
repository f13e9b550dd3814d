"""Bulk statements of SQLite: many rows a statement, and keys as one JSON value."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table

from backend.store.connection.database import sqlite_file
from backend.store.connection.writer_lock import give_way
from spark.sinks.bulk import Keys, OnConflict, Rows, insert_suffix, quoted
from spark.sinks.checkpointer import LOG_PAGES_MAX, Checkpointer

CACHE_KB: Final = 32_768
# A statement of so many rows takes a fifth less time than one for each, and lets other threads run meanwhile. The
# widest table has 22 columns, which makes 5,632 parameters; SQLite takes 32,766.
ROWS_AT_ONCE: Final = 256

# For each value that is neither a number nor text the driver looks for a way to adapt it, until an error says that it
# has none: 0.23 µs for each NULL, and an event has six. A way that leaves it as it is takes a third of that.
sqlite3.register_adapter(type(None), {None: None}.get)
sqlite3.register_adapter(bool, int)


class SqliteBulk:
    """See `spark.sinks.bulk.Bulk`."""

    def __init__(self) -> None:
        self._checkpointer = Checkpointer()

    def lock(self, connection: Connection, cluster_id: str, job: str) -> None:
        # BEGIN IMMEDIATE admits one writer to the whole database, so there is nothing to lock. The ids of segments are
        # random: with SQLite's own 2 MB, a large ledger would read and write its indexes' pages many times over.
        connection.exec_driver_sql(f"PRAGMA cache_size=-{CACHE_KB}")
        connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={LOG_PAGES_MAX}")

    def load(self, connection: Connection, table: Table, columns: Sequence[str], keys: Keys) -> Iterable[Any]:
        # One JSON parameter: a statement takes 32,766 parameters at most.
        match = " AND ".join(f"t.\"{name}\" = json_extract(k.value, '$[{i}]')" for i, name in enumerate(keys.names))
        chosen = ", ".join(f"t.{name}" for name in quoted(columns))
        # CROSS JOIN keeps SQLite from scanning the table and looking up the keys instead.
        sql = (
            f'SELECT {chosen} FROM json_each(?) AS k CROSS JOIN "{table.name}" AS t WHERE t.cluster_id = ? AND {match}'
        )
        return connection.exec_driver_sql(sql, (json.dumps(list(keys.values)), keys.cluster_id))

    def insert(
        self, connection: Connection, table: Table, columns: Sequence[str], rows: Rows, on_conflict: OnConflict
    ) -> None:
        if not rows:
            return
        placeholders, suffix = f"({', '.join('?' * len(columns))})", insert_suffix(table, columns, on_conflict)
        # A statement of several rows that SQLite must be able to undo by itself costs what the rows save: hence FAIL,
        # which leaves the rows before the one that fails. A replacement it undoes all the same.
        into = f'INSERT OR FAIL INTO "{table.name}" ({", ".join(quoted(columns))}) VALUES '
        whole = 0 if on_conflict == "replace" else len(rows) - len(rows) % ROWS_AT_ONCE
        if whole:
            parts = (rows[at : at + ROWS_AT_ONCE] for at in range(0, whole, ROWS_AT_ONCE))
            many = f"{into}{', '.join([placeholders] * ROWS_AT_ONCE)} {suffix}"
            connection.exec_driver_sql(many, [tuple(chain.from_iterable(part)) for part in parts])
        if whole < len(rows):
            connection.exec_driver_sql(f"{into}{placeholders} {suffix}", list(rows[whole:]))

    def stored(self, engine: Engine, records: int) -> None:
        file = sqlite_file(engine)
        if file is not None:
            self._checkpointer.stored(engine, records)
            give_way(file)

    def close(self) -> None:
        self._checkpointer.close()

    def analyze(self, connection: Connection, tables: Sequence[Table]) -> None:
        # SQLite gets no statistics, so its plans are the same whatever the tables hold
        # (tests/unit/store/test_page_plans.py).
        pass
