"""Operations of a database that the ledger sink needs beyond plain SQL: many rows at once, one writer at a time.

SQLAlchemy's own inserts cost 20 µs a row, the drivers' bulk paths 3 µs; hence two small
implementations, and everything that is not bulk is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from sqlalchemy import Connection, Engine, Table

Rows = Sequence[tuple[Any, ...]]
OnConflict = Literal["replace", "leave", "raise"]
"""The fate of a row whose primary key exists."""


class Bulk(Protocol):
    """Bulk statements of one database. Values: JSON as text, bytes, None, plain numbers and text."""

    def lock(self, connection: Connection, cluster_id: str, job: str) -> None:
        """Let no other run of the job write until this transaction ends."""

    def load(self, connection: Connection, table: Table, columns: Sequence[str], keys: Keys) -> Iterable[Any]:
        """Rows of ``table`` (``columns`` in order) whose key columns equal one of ``keys``."""

    def insert(
        self, connection: Connection, table: Table, columns: Sequence[str], rows: Rows, on_conflict: OnConflict
    ) -> None:
        """Insert rows; where the primary key exists, replace the row, leave it as it is, or raise IntegrityError.

        The last is the quickest. After an error some of the rows may be there: the transaction must be given up.
        """

    def stored(self, engine: Engine, records: int) -> None:
        """Runs after a commit of so many records, before the next transaction; others may write meanwhile."""

    def close(self) -> None:
        """Wait for what goes on beside the transactions; nothing is stored afterwards."""

    def analyze(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Let the database look at what the tables hold now, if it plans by that."""


class Keys(Protocol):
    """Keys to look up: the cluster, the names of the other key columns, and their values."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def values(self) -> Rows: ...


def insert_suffix(table: Table, columns: Sequence[str], on_conflict: OnConflict) -> str:
    """``ON CONFLICT`` in the words that SQLite and PostgreSQL share."""
    if on_conflict == "raise":
        return ""
    key = [column.name for column in table.primary_key]
    conflict = f"ON CONFLICT ({', '.join(quoted(key))})"
    changed = [name for name in quoted(columns) if name not in quoted(key)]
    if on_conflict == "leave" or not changed:
        return f"{conflict} DO NOTHING"
    return f"{conflict} DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in changed)


def quoted(names: Iterable[str]) -> list[str]:
    """Column names as SQL identifiers (``offset`` is a word of SQL)."""
    return [f'"{name}"' for name in names]
