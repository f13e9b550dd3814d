"""Requirements on a PostgreSQL database before anything is started on it; each lack is one sentence.

Encoding and version are looked at by each connection (`backend.store.connection.postgresql.check_server`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from backend.store import tables

# Connections that stay open: 5 of the backend, 3 of the pipeline, 2 of the dashboard. Under load each process opens up
# to 15.
CONNECTIONS_MIN: Final = 10
CONNECTIONS_MAX: Final = 45
_RIGHTS: Final = """
SELECT c.relname,
       has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
       AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') AS used,
       pg_has_role(c.relowner, 'USAGE') AS owned
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND c.relname = ANY(:names) ORDER BY 1
"""
_CONNECTIONS: Final = """
SELECT least(
    nullif(r.rolconnlimit, -1), nullif(d.datconnlimit, -1),
    current_setting('max_connections')::int
    - CASE WHEN r.rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::int END
)
FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()
"""


def lack(connection: Connection) -> str | None:
    """The lack of the database or of the role; None: there is none. SQLite lacks nothing."""
    if connection.dialect.name != "postgresql":
        return None
    return _schema(connection) or _tables(connection) or _connections(connection)


def _schema(connection: Connection) -> str | None:
    row = connection.execute(
        text(
            "SELECT current_schema() AS schema, current_user AS role, current_database() AS name,"
            " has_schema_privilege(current_schema(), 'CREATE') AS creates,"
            " has_database_privilege(current_database(), 'TEMPORARY') AS temporary"
        )
    ).one()
    if row.schema is None:
        return f"the role {row.role} has no schema to make tables in: CREATE SCHEMA {row.role} AUTHORIZATION {row.role}"
    if not row.creates:
        return f"the role {row.role} may not make tables: GRANT CREATE ON SCHEMA {row.schema} TO {row.role}"
    if not row.temporary:
        return (
            f"the role {row.role} may not make temporary tables: GRANT TEMPORARY ON DATABASE {row.name} TO {row.role}"
        )
    return None


def _tables(connection: Connection) -> str | None:
    names = [table.name for table in tables.metadata.sorted_tables]
    for row in connection.execute(text(_RIGHTS), {"names": names}):
        if not row.used:
            return f"permission denied for table {row.relname}: the role needs SELECT, INSERT, UPDATE and DELETE on it"
        if not row.owned:
            return (
                f"the role does not own table {row.relname}, which it must change: ALTER TABLE {row.relname} OWNER TO …"
            )
    return None


def _connections(connection: Connection) -> str | None:
    allowed = connection.scalar(text(_CONNECTIONS))
    if allowed is None or allowed >= CONNECTIONS_MIN:
        return None
    return (
        f"it allows {allowed} connections, and ebbline keeps {CONNECTIONS_MIN} open and uses up to {CONNECTIONS_MAX}:"
        " raise max_connections, or the limit of the role or the database"
    )
