"""Opens the database: SQLite (one file, WAL) or PostgreSQL, by URL.

SQLite has two writers, the observer and the pipeline. WAL lets readers go on during a write;
writers take the lock at once (``BEGIN IMMEDIATE``) and wait for each other up to
``BUSY_TIMEOUT_MS`` (`backend.store.turn`), so a read that turns into a write can never fail half way.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from backend.store import turn

BUSY_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_S = 5
# One process holds at most 5 idle and 10 busy connections more: 15 threads at work at once.
POOL_SIZE, POOL_OVERFLOW = 5, 10


_JSON: Final = json.JSONDecoder()


class StoreError(Exception):
    """The database cannot be used. The message is one sentence for people."""


def parse_url(url: str) -> URL:
    """The URL with the driver this product ships. Raises StoreError for any other database."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without its text: where that cannot be read, nobody knows which part is the password.
        raise StoreError("The database URL cannot be read: use sqlite:///FILE or postgresql://USER@HOST/DB.") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return parsed.set(drivername="sqlite")
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise StoreError(f"The database {kind!r} is not supported: use sqlite:///FILE or postgresql://...")


def create_engine(url: str) -> Engine:
    """An engine for ``url``. Opens nothing yet; the first connection does.

    Raises StoreError when the URL is not one of the two supported databases, or names a SQLite
    file in a folder that does not exist (SQLite would say only "unable to open").
    """
    parsed = parse_url(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            return _sqlite_engine(parsed)
        return sqlalchemy.create_engine(
            parsed,
            pool_size=POOL_SIZE,
            max_overflow=POOL_OVERFLOW,
            pool_pre_ping=True,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        )
    except NoSuchModuleError as error:
        raise StoreError(f"The driver of {describe(url)} is not installed.") from error


def _sqlite_engine(url: URL) -> Engine:
    file = _file(url)
    if file is not None and not file.absolute().parent.is_dir():
        raise StoreError(f"The folder of the database {file} does not exist: create it or change the database URL.")
    options: dict[str, int] = {} if file is None else {"pool_size": POOL_SIZE, "max_overflow": POOL_OVERFLOW}
    waits = {"timeout": BUSY_TIMEOUT_MS / 1000}
    engine = sqlalchemy.create_engine(url, connect_args=waits, json_deserializer=_read_json, **options)

    @event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        # NORMAL: survives a killed process; a power cut may lose the newest transactions, never
        # a part of one. The pipeline reads them again, as its offsets are in the same transaction.
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("ebbline_writes", False)
        if not writes:
            connection.exec_driver_sql("BEGIN")
            return
        with nullcontext() if file is None else turn.waiting(file):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def sqlite_file(engine: Engine) -> Path | None:
    """The file of a SQLite engine; None for a database in memory."""
    return _file(engine.url)


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
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write: committed at the end of the block, rolled back on any exception."""
    with engine.connect().execution_options(ebbline_writes=True) as connection, connection.begin():
        yield connection


def describe(url: str) -> str:
    """The URL for messages and logs: without the password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return "the database URL"
    # A password may stand in the query as well, and so may a key's.
    return parsed.set(query={}).render_as_string(hide_password=True)
