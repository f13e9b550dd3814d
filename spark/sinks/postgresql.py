"""Bulk statements of PostgreSQL: COPY, by way of a temporary table where rows may exist; keys as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format
from sqlalchemy import JSON, Connection, Engine, Integer, SmallInteger, Table
from sqlalchemy.exc import DataError, IntegrityError, OperationalError, ProgrammingError

from backend.store.connection.database_faults import diagnose
from spark.sinks.bulk import Keys, OnConflict, Rows, insert_suffix, quoted

_ARRAY_TYPES: Final = {str: "text[]", int: "integer[]"}
# Below this many rows the round trips of COPY cost more than they save.
COPY_ROWS_MIN: Final = 32
_LIMITS: Final[dict[type[Any], int]] = {SmallInteger: 1 << 15, Integer: 1 << 31}


class PostgresqlBulk:
    """See `spark.sinks.bulk.Bulk`."""

    def lock(self, connection: Connection, cluster_id: str, job: str) -> None:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{cluster_id} {job}",))

    def load(self, connection: Connection, table: Table, columns: Sequence[str], keys: Keys) -> Iterable[Any]:
        if not keys.values:
            return ()
        chosen = ", ".join(f't."{name}"' + _as_text(table, name) for name in columns)
        arrays = ", ".join(f"%s::{_ARRAY_TYPES[type(value)]}" for value in keys.values[0])
        match = " AND ".join(f't."{name}" = k."{name}"' for name in keys.names)
        names = ", ".join(quoted(keys.names))
        joined = f'unnest({arrays}) AS k({names}) JOIN "{table.name}" AS t ON t.cluster_id = %s AND {match}'
        sql = f"SELECT {chosen} FROM {joined}"
        by_column = [list(column) for column in zip(*keys.values, strict=True)]
        return connection.exec_driver_sql(sql, (*by_column, keys.cluster_id))

    def insert(
        self, connection: Connection, table: Table, columns: Sequence[str], rows: Rows, on_conflict: OnConflict
    ) -> None:
        if not rows:
            return
        names = ", ".join(quoted(columns))
        # Names no key columns: the events' table, which has partitions, has another key than `tables` describes.
        suffix = "ON CONFLICT DO NOTHING" if on_conflict == "leave" else insert_suffix(table, columns, on_conflict)
        if len(rows) < COPY_ROWS_MIN:
            marks = ", ".join("%s" + _cast(table, name) for name in columns)
            connection.exec_driver_sql(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks}) {suffix}', list(rows))
        elif on_conflict == "raise":
            _copy(connection, table, table.name, columns, rows)
        elif on_conflict == "replace" or not _copied_as_new(connection, table, columns, rows):
            staging = f"load_{table.name}"
            connection.exec_driver_sql(
                f'CREATE TEMPORARY TABLE IF NOT EXISTS "{staging}" (LIKE "{table.name}") ON COMMIT DELETE ROWS'
            )
            _copy(connection, table, staging, columns, rows)
            connection.exec_driver_sql(f'INSERT INTO "{table.name}" ({names}) SELECT {names} FROM "{staging}" {suffix}')
            connection.exec_driver_sql(f'DELETE FROM "{staging}"')

    def stored(self, engine: Engine, records: int) -> None:
        pass  # its server copies its log by itself

    def close(self) -> None:
        pass

    def analyze(self, connection: Connection, tables: Sequence[Table]) -> None:
        # A VACUUM by hand analyzes the table too, and need not be waited for.
        connection.exec_driver_sql(f"ANALYZE (SKIP_LOCKED) {', '.join(table.name for table in tables)}")


def _copied_as_new(connection: Connection, table: Table, columns: Sequence[str], rows: Rows) -> bool:
    """COPY without a staging table, half the work; False, and nothing done, when a row is refused."""
    try:
        with connection.begin_nested():
            _copy(connection, table, table.name, columns, rows)
    except IntegrityError:
        return False
    return True


class _JsonText(Dumper):
    """JSON that is text already, as jsonb."""

    format, oid = Format.BINARY, types["jsonb"].oid

    def dump(self, obj: str) -> bytes:
        return b"\x01" + obj.encode()  # the version of jsonb's binary form


def _copy(connection: Connection, table: Table, into: str, columns: Sequence[str], rows: Rows) -> None:
    """Raises the errors that SQLAlchemy raises for its statements.

    In binary, which takes a sixth less of the driver's time than text; so each value must be of its column's type.
    """
    _require_fitting(table, columns, rows)
    driver: Any = connection.connection.driver_connection  # psycopg's: only it can COPY
    sql = f'COPY "{into}" ({", ".join(quoted(columns))}) FROM STDIN (FORMAT BINARY)'
    try:
        with driver.cursor() as cursor:
            cursor.adapters.register_dumper(None, _JsonText)
            with cursor.copy(sql) as copy:
                copy.set_types([table.c[name].type.compile(connection.dialect).lower() for name in columns])
                for row in rows:
                    copy.write_row(row)
    except psycopg.IntegrityError as error:
        raise IntegrityError(sql, None, error) from error
    except (psycopg.OperationalError, psycopg.InternalError, psycopg.ProgrammingError) as error:
        if (diagnosis := diagnose(error)) is not None and diagnosis.renews:
            connection.invalidate(error)  # SQLAlchemy, which does it for its own statements, has not seen this one
        kind = OperationalError if isinstance(error, psycopg.OperationalError) else ProgrammingError
        raise kind(sql, None, error) from error
    except (psycopg.DataError, OverflowError, TypeError) as error:
        raise DataError(sql, None, error) from error


def _require_fitting(table: Table, columns: Sequence[str], rows: Rows) -> None:
    """DataError for a number that is too large for its column: the driver would send some other number."""
    for at, column in enumerate(table.c[name] for name in columns):
        limit = _LIMITS.get(type(column.type))
        if limit is not None:
            values = [row[at] for row in rows if row[at] is not None]
            if values and not -limit <= min(values) <= max(values) < limit:
                reason = ValueError(f"{min(values)} to {max(values)} do not fit {column.type!r}")
                raise DataError(f"COPY of {column}", None, reason)


def _is_json(table: Table, name: str) -> bool:
    return isinstance(table.c[name].type, JSON)


def _as_text(table: Table, name: str) -> str:
    return "::text" if _is_json(table, name) else ""


def _cast(table: Table, name: str) -> str:
    return "::jsonb" if _is_json(table, name) else ""
