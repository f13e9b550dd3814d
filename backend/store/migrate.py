"""Brings a database to this program's schema, or says in one sentence why not.

`ebbline up` runs it before any other process opens the database. The table ``ebbline_schema``
holds the revision and marks the database as ours: one with other tables and without it belongs
to another product, one with a revision we do not know was written by a newer release. Neither
is touched. Every upgrade is one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from backend.store.engine import StoreError, create_engine, describe, parse_url, writing

VERSION_TABLE: Final = "ebbline_schema"
# Any number that other programs on the same PostgreSQL server are unlikely to lock.
ADVISORY_LOCK: Final = 0x6562626C  # "ebbl"


class MigrationError(StoreError):
    """The database cannot be brought to this program's schema. The message is one sentence for people."""


def head() -> str:
    """The revision this program needs."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise MigrationError("This installation has no database migrations: install ebbline again.")
    return revision


def current(url: str) -> str | None:
    """The revision of the database; None for one without tables. Changes nothing.

    Raises MigrationError for another product's database and StoreError for one that does not answer.
    """
    with _errors(url):
        if _is_new_file(url):
            return None
        # Opened without the pragmas of `create_engine`, which would turn a foreign file to WAL.
        engine = sqlalchemy.create_engine(parse_url(url), poolclass=NullPool)
        with engine.connect() as connection:
            return _revision(connection, url)


def upgrade(url: str, revision: str = "head") -> str:
    """Apply what is missing, in one transaction; returns the revision reached.

    Raises MigrationError for a database of another product or of a newer release, StoreError for
    one that cannot be opened or written; nothing has been changed then.
    """
    known = current(url)
    _refuse_newer(known, url)
    if known is not None and known == head():
        return known
    with _errors(url):
        engine = create_engine(url)
        try:
            with writing(engine) as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
                _refuse_newer(_revision(connection, url), url)  # another process may have been faster
                command.upgrade(_config(connection), revision)
                return str(_revision(connection, url))
        finally:
            engine.dispose()


def downgrade(url: str, revision: str) -> None:
    """Undo revisions down to ``revision`` (``base``: all tables are dropped), in one transaction."""
    _refuse_newer(current(url), url)
    with _errors(url):
        engine = create_engine(url)
        try:
            with writing(engine) as connection:
                command.downgrade(_config(connection), revision)
        finally:
            engine.dispose()


def require_current(url: str) -> None:
    """Raises MigrationError unless the database has exactly this program's schema. Changes nothing."""
    known = current(url)
    _refuse_newer(known, url)
    if known != head():
        have = "has no ebbline tables yet" if known is None else f"has the older schema {known}"
        raise MigrationError(
            f"The database {describe(url)} {have}, this program needs {head()}: "
            "start `ebbline up` with this database, which brings it up to date before anything else."
        )


def _refuse_newer(revision: str | None, url: str) -> None:
    if revision is not None and revision not in {script.revision for script in _scripts().walk_revisions()}:
        raise MigrationError(
            f"The database {describe(url)} has schema {revision}, which is newer than this program ({head()}): "
            "start the newer ebbline, or restore a backup made before it."
        )


def _revision(connection: Connection, url: str) -> str | None:
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        if tables:
            some = ", ".join(sorted(tables)[:3])
            raise MigrationError(
                f"The database {describe(url)} holds tables of another product ({some}): "
                "give ebbline a database or schema of its own."
            )
        return None
    row = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).first()
    return None if row is None else str(row[0])


def _is_new_file(url: str) -> bool:
    """A SQLite file that is not there yet, in a folder that is; looking must not create it."""
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return False
    create_engine(url).dispose()  # raises when the folder is missing
    file = Path(str(parsed.database))
    return not file.exists() or file.stat().st_size == 0


@contextmanager
def _errors(url: str) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, OSError) as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise StoreError(
            f"The database {describe(url)} cannot be used: {cause}. Check the URL, the server and the permissions."
        ) from error


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # By name, not by import: `migrations` imports this package, never the other way round.
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
