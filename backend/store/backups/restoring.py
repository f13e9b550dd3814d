"""Puts a SQLite database back that is gone or damaged: from the newest good copy, or from what is still open of it.

A file is never written over. A damaged one is set aside under another name, and so is the log (``-wal``) of a file
that is gone, which SQLite would take for the log of the one that is put back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from backend.store.backups.automatic_backups import (
    TIME,
    WHOLE_BYTES_MAX,
    Backup,
    backups,
    copy_content,
    describe_error,
    irreplaceable_rows,
    opened,
    read_irreplaceable,
    sync,
)
from backend.store.connection.database import StoreError
from backend.store.connection.sqlite import log_of


@dataclass(frozen=True, slots=True)
class Restored:
    """A database that was put back: from where, and what it lacks, in words."""

    at_ms: int
    sentence: str
    missing: str


def damage_of(database: Path, *, thorough: bool = False) -> str | None:
    """The damage of a file that is there; None: none. `thorough` reads each page, a second for 256 MiB."""
    if database.stat().st_size == 0:
        return "it is empty"
    try:
        with opened(database) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if thorough or database.stat().st_size <= WHOLE_BYTES_MAX:
                row = connection.execute("PRAGMA quick_check(1)").fetchone()
                return None if row[0] == "ok" else str(row[0]).splitlines()[0]
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return describe_error(error)
        raise
    return None


def restore(database: Path, now_ms: int, *, thorough: bool = False) -> Restored | None:
    """Puts the newest good copy in the place of a file that is gone or damaged; None: nothing had to be done.

    Raises StoreError for a damaged file without a good copy, and for what cannot be written; nothing is lost then.
    """
    copies = backups(database)
    try:
        if not database.parent.is_dir():
            return None
        damage = damage_of(database, thorough=thorough) if database.exists() else None
        if database.exists() and (damage is None or (damage == "it is empty" and not copies)):
            return None
        good = next((copy for copy in copies if _is_good(copy.path)), None)
        if good is None:
            if damage is None:
                return None
            raise StoreError(
                f"The database {database} is damaged ({damage}) and has no backup beside it: keep a copy of it, and put"
                " a backup of yours in its place."
            )
        aside = set_aside(database, now_ms)
        put_back(good.path, database)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"The database {database} cannot be restored: {describe_error(error)}.") from error
    what = "was missing" if damage is None else f"was damaged ({damage})"
    kept = f"; what was there is kept as {aside.name}" if aside is not None else ""
    age = _age(now_ms - good.at_ms)
    missing = _missing(database, good)
    return Restored(
        now_ms, f"The database {database} {what} and was restored from {good.path.name}, {age} old{kept}", missing
    )


def rescue(held: sqlite3.Connection, database: Path, now_ms: int) -> Restored:
    """Copies a database whose file was moved or deleted from a connection that is still open to its place.

    Raises StoreError; nothing is written over.
    """
    half = database.with_name(f".{database.name}.rescued")
    try:
        half.unlink(missing_ok=True)
        os.close(os.open(half, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(half)) as new:
            copy_content(held, new, whole=True)
        set_aside(database, now_ms)
        put_back(half, database)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"The database {database} cannot be put back: {describe_error(error)}.") from error
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)
    sentence = f"The database {database} was moved or deleted while it was in use and was put back from what was open"
    return Restored(now_ms, sentence, "")


def set_aside(database: Path, now_ms: int, *, logs_only: bool = False) -> Path | None:
    """Gives the file, its log and the index of the log other names; that of the file, None where there is none."""
    stamp = f"{datetime.fromtimestamp(now_ms / 1000, UTC):{TIME}}"
    aside = None
    for path in (database, log_of(database), database.with_name(f"{database.name}-shm")):
        if path.exists() and not (logs_only and path == database):
            kept = path.with_name(f"{path.name}.aside-{stamp}")
            path.rename(kept)
            aside = kept if path == database else aside
    return aside


def put_back(copy: Path, database: Path) -> None:
    """The copy's content as the database. FileExistsError when there is one: none is written over."""
    half = database.with_name(f".{database.name}.restored")
    half.unlink(missing_ok=True)
    try:
        with (
            open(copy, "rb") as source,
            os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
        os.link(half, database)
    finally:
        half.unlink(missing_ok=True)
    sync(database.parent)


def _missing(database: Path, copy: Backup) -> str:
    """In words, the rows that the database was last seen to have and the copy lacks."""
    since = f"what was planned, noted or acknowledged after {datetime.fromtimestamp(copy.at_ms / 1000, UTC):%F %T} UTC"
    held = read_irreplaceable(database)
    if held is None or held.at_ms < copy.at_ms:
        return since
    with opened(copy.path) as connection:
        had = irreplaceable_rows(connection, copy.at_ms)
    lost = []
    if held.plan > had.plan:
        first = had.plan + 1
        lost.append(f"plan {first}" if first == held.plan else f"plans {first} to {held.plan}")
    if held.audit > had.audit:
        lost.append(f"{held.audit - had.audit} entries of the audit")
    if gone := sorted(set(held.tokens) - set(had.tokens)):
        lost.append(f"the token{'' if len(gone) == 1 else 's'} {', '.join(gone)}")
    if not lost:
        return "acknowledgements of findings and history of samples since then"
    return f"{', '.join(lost)}: {since}"


def _is_good(copy: Path) -> bool:
    try:
        with opened(copy) as connection:
            version = connection.execute("SELECT version_num FROM ebbline_schema").fetchone()
            return version is not None and connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except (OSError, sqlite3.Error):
        return False


def _age(age_ms: int) -> str:
    minutes = max(0, age_ms) // 60_000
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
