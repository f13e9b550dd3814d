"""Opens this product's SQLite file: never by making one, and never one that was moved or deleted meanwhile.

A file that is deleted while it is open goes on taking writes, which nobody finds again. So an engine remembers which
file it opened, and uses it no more once another, or none, has its name. Another one is opened only without the log
(``-wal``) of the former, which SQLite would take for its own.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DisconnectionError

from backend.store.connection import writer_lock
from backend.store.connection.database_faults import DatabaseFileGone

Identity = tuple[int, int]
"""Device and inode."""
_WAL = "PRAGMA journal_mode=WAL"
_FOREIGN = "ebbline_foreign"


def file_identity(file: Path) -> Identity | None:
    """The file that has this name now; None: there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def log_of(file: Path) -> Path:
    """The log beside the file, with writes that are not in the file yet."""
    return file.with_name(f"{file.name}-wal")


class OpenFile:
    """The file of the connections of one engine."""

    def __init__(self, file: Path, busy_ms: int) -> None:
        self.file = file
        self._busy_ms = busy_ms
        self._opened: Identity | None = None
        self._log: Identity | None = None

    def connect(self) -> sqlite3.Connection:
        """A connection to the file that has the name now. Raises DatabaseFileGone."""
        now = file_identity(self.file)
        if now is None:
            raise DatabaseFileGone(f"{self.file} was moved or deleted" if self._opened else f"there is no {self.file}")
        if self._opened not in (None, now) and self._log is not None and file_identity(log_of(self.file)) == self._log:
            raise DatabaseFileGone(f"{self.file} was replaced, and the log of the former file still lies beside it")
        connection = connect(self.file, self._busy_ms)
        self._opened = now
        return connection

    def saw_log(self) -> None:
        """Remembers the log of the file that is open."""
        self._log = file_identity(log_of(self.file))


def connect(file: Path, busy_ms: int) -> sqlite3.Connection:
    """A connection to a file that is there; none is made."""
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=busy_ms / 1000, check_same_thread=False
    )


def create(file: Path) -> None:
    """Makes an empty file, for its owner alone, where there is none."""
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def listen(engine: Engine, opened: OpenFile | None, busy_ms: int, *, foreign: bool) -> None:
    """Sets up each connection of `engine`; without `opened` it is a database in memory.

    ``foreign``: the file may be another product's and is not turned to WAL before `adopt`.
    """
    engine.update_execution_options(**{_FOREIGN: foreign})

    @event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, record: Any) -> None:
        record.info["ebbline_opening"] = None if opened is None else file_identity(opened.file)
        connection.isolation_level = None  # we say BEGIN ourselves, below
        connection.execute(f"PRAGMA busy_timeout={busy_ms}")
        if not engine.get_execution_options()[_FOREIGN]:
            connection.execute(_WAL)
        # NORMAL: survives a killed process; a power cut may lose the newest transactions, never
        # a part of one. The pipeline reads them again, as its offsets are in the same transaction.
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "checkout")
    def _on_checkout(_connection: Any, record: Any, _proxy: Any) -> None:
        if opened is None:
            return
        if record.info.get("ebbline_opening") != file_identity(opened.file):
            raise DisconnectionError("the database file is another one")
        opened.saw_log()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("ebbline_writes", False)
        if not writes:
            connection.exec_driver_sql("BEGIN")
            return
        with nullcontext() if opened is None else writer_lock.waiting(opened.file):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def adopt(connection: Connection) -> None:
    """Turns the file of a connection that is in no transaction to WAL, and those of its engine's later connections."""
    connection.engine.update_execution_options(**{_FOREIGN: False})
    driver: Any = connection.connection.driver_connection
    driver.execute(_WAL)
