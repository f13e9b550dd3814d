"""Automatic copies of a SQLite database, beside it.

Partitions, settings and remote segments can be read from the cluster again; plans, audit, tokens and acknowledged
findings stand in this file alone. A copy is made once a day and before each migration, and the newest seven are kept,
in ``<database>-backups`` for the owner alone. Up to 256 MiB it is the whole database, 1.75 GiB for seven; of a larger
one only what cannot be read from the cluster again, as a database whose other tables are empty: the pipeline fills them
from the topic. PostgreSQL has other means of backup, which are its operator's.

`backend.store.backups.restoring` puts them back.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from backend.runtime.private_files import write_private
from backend.store.connection.database import StoreError

KEPT: Final = 7
DAY_MS: Final = 86_400_000
WHOLE_BYTES_MAX: Final = 256 << 20
ROOM_BYTES: Final = 64 << 20  # beyond the copy itself
DAILY: Final = "daily"
IRREPLACEABLE: Final = ("ebbline_schema", "cluster", "operation", "audit", "api_token", "finding")
_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-([a-z0-9-]+)\.db")
TIME: Final = "%Y%m%dT%H%M%SZ"
_PAGES_AT_ONCE: Final = 4_096


@dataclass(frozen=True, slots=True)
class Backup:
    """One copy; `why` it was made."""

    path: Path
    at_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class IrreplaceableRows:
    """Rows that cannot be read from the cluster again: the newest plan and audit, and all tokens."""

    at_ms: int
    plan: int = 0
    audit: int = 0
    tokens: tuple[str, ...] = ()


def folder_of(database: Path) -> Path:
    """Where the copies of a database are."""
    return database.with_name(f"{database.name}-backups")


def backups(database: Path) -> list[Backup]:
    """The copies there are, the newest first."""
    copies = []
    with suppress(OSError):
        for path in folder_of(database).iterdir():
            if (match := _NAME.fullmatch(path.name)) is not None:
                at = datetime.strptime(match[1], TIME).replace(tzinfo=UTC)
                copies.append(Backup(path, int(at.timestamp() * 1000), match[2]))
    return sorted(copies, key=lambda copy: (copy.at_ms, copy.path.name), reverse=True)


def due(database: Path, now_ms: int) -> bool:
    """Whether there is no copy of the last day. Files of the future, of a clock that was wrong, do not count."""
    return not any(0 <= now_ms - copy.at_ms < DAY_MS for copy in backups(database))


def back_up(database: Path, why: str, now_ms: int) -> Path:
    """Makes a copy while others write, and removes all but the newest. Raises StoreError; no half copy is left."""
    folder = folder_of(database)
    target = folder / f"{datetime.fromtimestamp(now_ms / 1000, UTC):{TIME}}-{why}.db"
    half = folder / f".{target.name}.part"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        size = database.stat().st_size
        whole = size <= WHOLE_BYTES_MAX
        needed = (size if whole else 0) + ROOM_BYTES
        if (free := shutil.disk_usage(folder).free) < needed:
            raise StoreError(
                f"No backup of {database} is made: {free >> 20} MiB are free, {needed >> 20} are needed. Make room."
            )
        half.unlink(missing_ok=True)
        os.close(os.open(half, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with opened(database) as old, closing(sqlite3.connect(half)) as new:
            copy_content(old, new, whole=whole)
        sync(half)
        half.rename(target)
        sync(folder)
        for old_copy in backups(database)[KEPT:]:
            old_copy.path.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"No backup of {database} is made: {describe_error(error)}.") from error
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)
    return target


def note_irreplaceable(database: Path, held: IrreplaceableRows) -> None:
    """Keeps beside the copies what the database holds, so that what a copy lacks can be named. Errors are no matter."""
    path = folder_of(database) / "held.json"
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, json.dumps(asdict(held)))


def read_irreplaceable(database: Path) -> IrreplaceableRows | None:
    """The newest note; None: there is none, or none that can be read."""
    try:
        note = json.loads((folder_of(database) / "held.json").read_text())
        return IrreplaceableRows(
            int(note["at_ms"]), int(note["plan"]), int(note["audit"]), tuple(map(str, note["tokens"]))
        )
    except (OSError, ValueError, LookupError, TypeError):
        return None


def irreplaceable_rows(connection: sqlite3.Connection, now_ms: int) -> IrreplaceableRows:
    """The newest plan and audit and the tokens that a database of this product has."""
    (plan,), (audit,) = (connection.execute(f"SELECT max(id) FROM {t}").fetchone() for t in ("operation", "audit"))
    tokens = connection.execute("SELECT name FROM api_token ORDER BY name").fetchall()
    return IrreplaceableRows(now_ms, plan or 0, audit or 0, tuple(name for (name,) in tokens))


def copy_content(old: sqlite3.Connection, new: sqlite3.Connection, *, whole: bool) -> None:
    if whole:
        old.backup(new, pages=_PAGES_AT_ONCE)
        return
    made = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'index'"
    for (sql,) in old.execute(made).fetchall():
        new.execute(sql)
    for table in IRREPLACEABLE:
        rows = old.execute(f'SELECT * FROM "{table}"')
        marks = ", ".join("?" * len(rows.description))
        new.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)
    new.commit()


@contextmanager
def opened(database: Path) -> Iterator[sqlite3.Connection]:
    """To read one moment of it; no file is made."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN")
        yield connection


def describe_error(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
