"""Bulk statements of SQLite: the driver's executemany, and keys as one JSON value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table

from spark.sinks.bulk import Keys, OnConflict, Rows, insert_suffix, quoted

CACHE_KB: Final = 32_768
# SQLite copies its log into the file after a commit that finds 1,000 pages in it, as every commit of a load does, and
# pages that change with each were copied each time. 128 MiB, some 30,000 events.
LOG_PAGES: Final = 32_768


class SqliteBulk:
    """See `spark.sinks.bulk.Bulk`."""

    def lock(self, connection: Connection, cluster_id: str, job: str) -> None:
        # BEGIN IMMEDIATE admits one writer to the whole database, so there is nothing to lock. The ids of segments are
        # random: with SQLite's own 2 MB, a large ledger would read and write its indexes' pages many times over.
        connection.exec_driver_sql(f"PRAGMA cache_size=-{CACHE_KB}")
        connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")

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
        marks = ", ".join("?" * len(columns))
        suffix = insert_suffix(table, columns, on_conflict)
        sql = f'INSERT INTO "{table.name}" ({", ".join(quoted(columns))}) VALUES ({marks}) {suffix}'
        connection.exec_driver_sql(sql, list(rows))

    def analyze(self, connection: Connection, tables: Sequence[Table]) -> None:
        # It is never told, so its plans are the same whatever the tables hold (tests/unit/store/test_page_plans.py).
        pass
