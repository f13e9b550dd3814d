"""Brings a database to this program's schema, or says in one sentence why not.

`ebbline up` runs it before any other process opens the database. The table ``ebbline_schema``
holds the revision and marks the database as ours: one with other tables and without it belongs
to another product, one with a revision we do not know was written by a newer release. Neither
is touched. Every upgrade is one transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, select, text
from sqlalchemy.exc import DBAPIError

from backend.store import tables
from backend.store.backups.automatic_backups import back_up
from backend.store.connection import sqlite
from backend.store.connection.database import (
    StoreError,
    adopt,
    create_engine,
    describe,
    inspection_engine,
    is_sqlite,
    parse_url,
    sqlite_file_of,
    store_error,
)
from backend.store.connection.limits import MIGRATION, Limits
from backend.store.connection.requirements import lack
from backend.store.history import event_months

_log = logging.getLogger(__name__)
VERSION_TABLE: Final = "ebbline_schema"
# Any number that other programs on the same PostgreSQL server are unlikely to lock.
ADVISORY_LOCK: Final = 0x6562626C  # "ebbl"
PRE, POST = "pre", "post"
SILENT_INTERVALS: Final = 3  # of a process's promised heartbeats: then it is gone


class MigrationError(StoreError):
    """The database cannot be brought to this program's schema. The message is one sentence for people."""


class SchemaBehind(MigrationError):
    """The database has an older schema, or none: `ebbline up` brings it to this program's."""


@dataclass(frozen=True, slots=True)
class Step:
    """One revision. ``pre``: programs of the release before work on with it; ``post``: apply once all are replaced."""

    revision: str
    phase: str
    title: str


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """The result of `check`; ``differences`` are looked for only when nothing is missing."""

    revision: str | None
    head: str
    missing: list[Step]
    differences: list[str]


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
        with inspection_engine(url).connect() as connection:
            return _revision(connection, url)


def upgrade(url: str, revision: str = "head") -> str:
    """Apply what is missing, in one transaction; returns the revision reached.

    Raises MigrationError for a database of another product or of a newer release, StoreError for
    one that cannot be opened or written; nothing has been changed then.
    """
    before = current(url)
    _refuse_newer(before, url)
    if before is not None and before == head():
        return before
    if (file := sqlite_file_of(url)) is not None:
        if before is None:
            sqlite.create(file)
        else:
            try:
                back_up(file, f"before-{head()}", time.time_ns() // 1_000_000)
            except StoreError as error:
                # The migration is one transaction: it may fail and leaves the database as it is.
                _log.warning("%s", error)
    with _errors(url):
        engine = create_engine(url, MIGRATION, name="migration")
        try:
            with _migrating(engine) as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
                _refuse_newer(_revision(connection, url), url)  # another process may have been faster
                command.upgrade(_config(connection), revision)
                return str(_revision(connection, url))
        finally:
            engine.dispose()


def check(url: str) -> MigrationReport:
    """Compares the database with this program: its revision, missing steps, tables that differ. Changes nothing.

    Raises as `current` does, and MigrationError for a database of a newer release.
    """
    revision = current(url)
    _refuse_newer(revision, url)
    missing = steps_after(revision)
    differences: list[str] = []
    if revision is not None and not missing:
        with _errors(url), inspection_engine(url).connect() as connection:
            differences = [_difference(difference) for difference in compared(connection)]
            if connection.dialect.name == "sqlite":
                damage = connection.exec_driver_sql("PRAGMA quick_check(3)").scalars().all()
                differences += [f"the file is damaged: {line}" for line in damage if line != "ok"]
    return MigrationReport(revision, head(), missing, differences)


def compared(connection: Connection) -> list[Any]:
    """Alembic's words for what differs between the database and this program's tables."""

    def named(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or not event_months.is_part(name)

    def described(thing: object, *_: object) -> bool:
        # Alembic does not look at `ddl_if`.
        return thing is not tables.EVENTS_BY_PARTITION or connection.dialect.name == "sqlite"

    options = {
        "version_table": VERSION_TABLE,
        "compare_type": True,
        "compare_server_default": True,
        "include_name": named,
        "include_object": described,
    }
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata))


def _difference(difference: Any) -> str:
    """Alembic's tuples, or lists of them, in words: what it would do to make the database as the program wants it."""
    first = difference[0] if isinstance(difference, list) else difference
    what, subject = str(first[0]).replace("_", " "), first[-1] if not str(first[0]).startswith("modify") else first[3]
    table = getattr(subject, "table", None)
    name = getattr(subject, "name", subject)
    return f"to {what} {name}" + ("" if table is None else f" of {table.name}")


def steps_after(revision: str | None) -> list[Step]:
    """The revisions that a database with ``revision`` lacks, the oldest first."""
    walked = [_step(script) for script in _scripts().walk_revisions("base", "heads")][::-1]
    if revision is None:
        return walked
    names = [step.revision for step in walked]
    return walked[names.index(revision) + 1 :]


def last_pre(revision: str | None) -> str:
    """The newest revision that can be reached from ``revision`` without one that older programs cannot bear.

    A database without tables goes to the newest: there is no older program to spare.
    """
    if revision is None:
        return head()
    reached = revision
    for step in steps_after(revision):
        if step.phase != PRE:
            break
        reached = step.revision
    return reached


def undone_by(revision_now: str | None, revision: str) -> list[Step]:
    """The revisions that a downgrade from ``known`` to ``revision`` undoes, the newest first.

    Raises MigrationError for a revision this program does not know, or that is newer than the database.
    """
    every = [step.revision for step in steps_after(None)]
    if revision_now is None:
        raise MigrationError("The database has no tables of ebbline: nothing to undo.")
    if revision != "base" and revision not in every:
        raise MigrationError(f"There is no schema {revision}: choose one of base, {', '.join(every)}.")
    of_target = 0 if revision == "base" else every.index(revision) + 1
    if revision_now not in every:
        raise MigrationError(
            f"The database has schema {revision_now}, which only a newer program can undo: use that one."
        )
    if of_target > every.index(revision_now) + 1:
        raise MigrationError(
            f"The database has schema {revision_now}, older than {revision}: use `ebbline db upgrade`."
        )
    return steps_after(None)[of_target : every.index(revision_now) + 1][::-1]


def running(url: str, cluster_id: str | None = None) -> list[str]:
    """The processes, of this cluster or of any, that gave a sign of life in the database a moment ago.

    None where there is no such table.
    """
    with _errors(url):
        if _is_new_file(url):
            return []
        with inspection_engine(url).connect() as connection:
            if tables.process_status.name not in inspect(connection).get_table_names():
                return []
            row = tables.process_status.c
            oldest = time.time_ns() // 1_000_000 - SILENT_INTERVALS * row.interval_ms
            alive = select(row.process).where(row.updated_ms >= oldest, row.state.not_in(("stopped", "failed")))
            of_cluster = alive if cluster_id is None else alive.where(row.cluster_id == cluster_id)
            return sorted(set(connection.scalars(of_cluster)))


def downgrade(url: str, revision: str) -> None:
    """Undo revisions down to ``revision`` (``base``: all tables are dropped), in one transaction."""
    _refuse_newer(current(url), url)
    with _errors(url):
        engine = create_engine(url, MIGRATION, name="migration")
        try:
            with _migrating(engine) as connection:
                command.downgrade(_config(connection), revision)
        finally:
            engine.dispose()


def require_usable(url: str) -> None:
    """Raises MigrationError for a database of another product, of a newer release, or that lacks what is needed
    (`backend.store.connection.requirements`), StoreError for one that does not answer. Changes nothing: a database
    that `upgrade` can bring to this program's schema is usable.
    """
    _refuse_newer(current(url), url)
    if is_sqlite(parse_url(url)):
        return
    with _errors(url), inspection_engine(url).connect() as connection:
        lacking = lack(connection)
    if lacking is not None:
        raise MigrationError(f"The database {describe(url)} cannot be used: {lacking}.")


def open_current(url: str, limits: Limits, *, name: str) -> Engine:
    """An engine of a database that has exactly this program's schema, asked on the connection that is used next.

    Raises MigrationError for any other schema, SchemaBehind for one that lacks something, StoreError for a database
    that does not answer; a database that is refused has not been changed.
    """
    if _is_new_file(url):
        _require_head(None, url)
    engine = create_engine(url, limits, name=name, foreign=True)
    try:
        with _errors(url), engine.connect() as connection:
            _require_head(_revision(connection, url), url)
            adopt(connection)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _require_head(revision: str | None, url: str) -> None:
    _refuse_newer(revision, url)
    if revision != head():
        have = "has no ebbline tables yet" if revision is None else f"has the older schema {revision}"
        raise SchemaBehind(
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
                "give ebbline its own database or schema."
            )
        return None
    row = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).first()
    return None if row is None else str(row[0])


def _is_new_file(url: str) -> bool:
    """A SQLite file that is not there yet, in a folder that is; looking must not create it."""
    file = sqlite_file_of(url)
    if file is None:
        return False
    create_engine(url).dispose()  # raises when the folder is missing
    return not file.exists() or file.stat().st_size == 0


@contextmanager
def _migrating(engine: Engine) -> Iterator[Connection]:
    """A transaction in which tables may be replaced.

    SQLite changes a table by copying it and dropping the former, which rows that refer to it would forbid; so they are
    looked at when all is done. The setting cannot be changed within a transaction.
    """
    with engine.connect().execution_options(ebbline_writes=True) as connection:
        sqlite_only = connection.dialect.name == "sqlite"
        if sqlite_only:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA foreign_keys=OFF")
        with connection.begin():
            yield connection
            if sqlite_only and (left := connection.exec_driver_sql("PRAGMA foreign_key_check").first()) is not None:
                raise MigrationError(f"Rows of table {left[0]} would refer to rows that are gone: nothing was changed.")


@contextmanager
def _errors(url: str) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, OSError) as error:
        raise store_error(url, error) or StoreError(str(error)) from error


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # By name, not by import: `migrations` imports this package, never the other way round.
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _step(script: Script) -> Step:
    return Step(script.revision, str(script.module.phase), (script.doc or "").split("\n")[0])


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
