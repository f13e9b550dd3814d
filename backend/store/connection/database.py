"""Opens the database: SQLite (one file, WAL) or PostgreSQL, by URL.

SQLite has two writers, the observer and the pipeline. WAL lets readers go on during a write;
writers take the lock at once (``BEGIN IMMEDIATE``) and wait for each other up to
``BUSY_TIMEOUT_MS`` (`backend.store.connection.writer_lock`), so a read that turns into a write can never fail half way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from backend.store.connection import sqlite
from backend.store.connection.database_faults import Diagnosis, diagnose, first_line
from backend.store.connection.limits import MIGRATION, POOL_TIMEOUT_S, SERVING, Limits
from backend.store.storable import storable_json

BUSY_TIMEOUT_MS = 30_000  # at most; a program that serves people waits less
# One process holds at most 5 idle and 10 busy connections more: 15 threads at work at once.
POOL_SIZE, POOL_OVERFLOW = 5, 10


_SERVERS: Final = re.compile(
    r"(?P<before>postgres(?:ql)?(?:\+\w+)?://(?:[^/?#]*@)?)(?P<servers>[^/?#@,]+(?:,[^/?#@,]+)+)(?P<after>/.*)?"
)
_JSON: Final = json.JSONDecoder()


class StoreError(Exception):
    """The database cannot be used. The message is one sentence for people."""


class DatabaseAway(StoreError):
    """The database does not do what was asked, for a reason that may pass: `diagnosis`. Asking again may work."""

    def __init__(self, text: str, diagnosis: Diagnosis | None = None) -> None:
        super().__init__(text)
        self.diagnosis = diagnosis


def store_error(url: str, error: Exception) -> StoreError | None:
    """An error of the database as one sentence: DatabaseAway for a fault of the database; None for any other error."""
    diagnosis = diagnose(error)
    if diagnosis is not None:
        return DatabaseAway(f"The database {describe(url)} {diagnosis.sentence}.", diagnosis)
    if isinstance(error, DBAPIError | OSError):
        return StoreError(f"The database {describe(url)} cannot be used: {first_line(error)}.")
    return None


def parse_url(url: str) -> URL:
    """The URL with the driver this product ships. Raises StoreError for any other database."""
    try:
        parsed = _read_url(url)
    except (ArgumentError, ValueError):
        # Without its text: where that cannot be read, nobody knows which part is the password.
        raise StoreError("The database URL cannot be read: use sqlite:///FILE or postgresql://USER@HOST/DB.") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return parsed.set(drivername="sqlite")
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise StoreError(f"The database {kind!r} is not supported: use sqlite:///FILE or postgresql://...")


def _read_url(url: str) -> URL:
    """As SQLAlchemy's `make_url`, which knows no list of servers: ``postgresql://user@one:5432,two:5432/db``."""
    if (match := _SERVERS.fullmatch(url)) is None:
        return make_url(url)
    hosts = tuple(server if ":" in server else f"{server}:5432" for server in match["servers"].split(","))
    parsed = make_url(f"{match['before']}{match['after']}")
    return parsed.set(query={**parsed.query, "host": hosts})


def without_password(url: str) -> str:
    """The URL with all but its passwords: PGPASSWORD or ~/.pgpass may have it. Raises StoreError."""
    parsed = parse_url(url)
    secrets = [name for name in parsed.query if "password" in name.lower()]
    kept = parsed._replace(password=None).difference_update_query(secrets)  # `set` takes None for "as it is"
    return kept.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=False)


def create_engine(url: str, limits: Limits = SERVING, *, name: str = "", foreign: bool = False) -> Engine:
    """An engine for ``url``. Opens nothing yet; the first connection does.

    An error closes the connections that may go on failing for its cause. ``name`` is what PostgreSQL shows of them.
    ``foreign``: the database may be another product's; a SQLite file is not turned to WAL before `adopt`.
    Raises StoreError when the URL is not one of the two supported databases, or names a SQLite
    file in a folder that does not exist (SQLite would say only "unable to open").
    """
    parsed = parse_url(url)
    try:
        engine = (
            _sqlite_engine(parsed, limits, foreign) if is_sqlite(parsed) else _postgresql_engine(parsed, limits, name)
        )
    except NoSuchModuleError as error:
        raise StoreError(f"The driver of {describe(url)} is not installed.") from error

    @event.listens_for(engine, "handle_error")
    def _on_error(context: ExceptionContext) -> None:
        diagnosis = diagnose(context.original_exception)
        if diagnosis is not None and diagnosis.renews:
            context.is_disconnect = True

    return engine


def _sqlite_engine(url: URL, limits: Limits, foreign: bool) -> Engine:
    file = _file(url)
    if file is not None and not file.absolute().parent.is_dir():
        raise StoreError(f"The folder of the database {file} does not exist: create it or change the database URL.")
    busy_ms = min(limits.busy_ms, BUSY_TIMEOUT_MS)
    options: dict[str, Any] = {}
    opened = None if file is None else sqlite.OpenFile(file, busy_ms)
    if opened is not None:
        options = {"pool_size": POOL_SIZE, "max_overflow": POOL_OVERFLOW, "pool_timeout": POOL_TIMEOUT_S}
        options["creator"] = opened.connect
    engine = sqlalchemy.create_engine(url, json_serializer=storable_json, json_deserializer=_read_json, **options)
    sqlite.listen(engine, opened, busy_ms, foreign=foreign)
    return engine


def _postgresql_engine(url: URL, limits: Limits, name: str) -> Engine:
    from backend.store.connection import postgresql

    engine = sqlalchemy.create_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",  # whatever the database's default is: who waits for a lock then sees more
        json_serializer=storable_json,
        connect_args=postgresql.connect_arguments(name),
    )
    postgresql.listen(engine, limits)
    return engine


def adopt(connection: Connection) -> None:
    """The database of a `foreign` engine is this product's. Ends what the connection has begun."""
    connection.rollback()
    if connection.dialect.name == "sqlite":
        sqlite.adopt(connection)


def inspection_engine(url: str) -> Engine:
    """For inspecting a database that may be another product's: no file is turned to WAL, no connection is kept."""
    parsed = parse_url(url)
    if is_sqlite(parsed):
        file = _file(parsed)
        options = {} if file is None else {"creator": lambda: sqlite.connect(file, BUSY_TIMEOUT_MS)}
        return sqlalchemy.create_engine(parsed, poolclass=NullPool, **options)
    from backend.store.connection import postgresql

    arguments = postgresql.connect_arguments("look")
    engine = sqlalchemy.create_engine(
        parsed, poolclass=NullPool, isolation_level="READ COMMITTED", connect_args=arguments
    )
    postgresql.listen(engine, MIGRATION)
    return engine


def is_sqlite(url: URL) -> bool:
    """Whether a URL that `parse_url` gave is SQLite's."""
    return url.get_backend_name() == "sqlite"


def sqlite_file(engine: Engine) -> Path | None:
    """The file of a SQLite engine; None for a database in memory, or a server's."""
    return _file(engine.url) if is_sqlite(engine.url) else None


def sqlite_file_of(url: str) -> Path | None:
    """The file of a SQLite URL; None for a database in memory or another one. Raises StoreError."""
    parsed = parse_url(url)
    return _file(parsed) if is_sqlite(parsed) else None


def _file(url: URL) -> Path | None:
    return None if url.database in (None, "", ":memory:") else Path(str(url.database))


def _read_json(text: str) -> Any:
    """As `json.loads` for what `json.dumps` or jsonb wrote: no blank is looked for around it, a third of the time.

    A page reads 10,000 partitions with two lists each.
    """
    try:
        return _JSON.raw_decode(text)[0]
    except json.JSONDecodeError:
        return json.loads(text)  # by other hands: with blanks before it, or not JSON at all


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection with one consistent view for all statements in the block; changes nothing."""
    options = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**options) as connection:
        yield connection


@contextmanager
def writing(engine: Engine, *, retention: bool = False) -> Iterator[Connection]:
    """A transaction that may write: committed at the end of the block, rolled back on any exception. `retention`: it
    removes what is old.
    """
    options = {"ebbline_writes": True, "ebbline_retention": retention}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def describe(url: str) -> str:
    """The URL for messages and logs: without the password."""
    try:
        parsed = _read_url(url)
    except (ArgumentError, ValueError):
        return "the database URL"
    # A password may stand in the query as well, and so may a key's.
    hosts = parsed.query.get("host", ())
    shown = parsed.set(query={}).render_as_string(hide_password=True)
    if isinstance(hosts, tuple) and hosts and not parsed.host:
        return shown.replace("@/", f"@{','.join(hosts)}/", 1)
    return shown
