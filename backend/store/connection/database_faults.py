"""Diagnoses the database by an error: a class of fault, and one sentence. Pure.

PostgreSQL says it by SQLSTATE (its manual, appendix A), SQLite by its result code, of which the lower eight bits are
the primary one. An error of no class is about the statement, not about the database: asking again does not help.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout


class DatabaseFault(StrEnum):
    """Why a database does not do what it was asked. All of them may pass by themselves, or by an operator's hand."""

    AWAY = "away"
    CONNECTIONS = "too many connections"
    READ_ONLY = "read-only"
    DENIED = "permission denied"
    FULL = "full"
    LOCKED = "locked"
    SLOW = "slow"
    SCHEMA = "other schema"
    DAMAGED = "damaged"
    GONE = "gone"
    UNSUITABLE = "unsuitable"


# Faults that an operator of the database mends while this product runs.
PASSING: Final = frozenset(
    {
        DatabaseFault.AWAY,
        DatabaseFault.CONNECTIONS,
        DatabaseFault.READ_ONLY,
        DatabaseFault.FULL,
        DatabaseFault.LOCKED,
        DatabaseFault.SLOW,
    }
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`cause`: the database's own words."""

    fault: DatabaseFault
    cause: str

    @property
    def what(self) -> str:
        """The fault in words that follow the database's name."""
        return f"{_SAYS[self.fault]}: {self.cause}"

    @property
    def sentence(self) -> str:
        """The fault and the remedy, in words that follow the database's name."""
        return f"{self.what}: {_NEXT[self.fault]}"

    @property
    def renews(self) -> bool:
        """Whether connections are thrown away: what refuses may stick to a session though the server was mended."""
        return self.fault not in (DatabaseFault.LOCKED, DatabaseFault.SLOW, DatabaseFault.SCHEMA)


class DatabaseFileGone(sqlite3.OperationalError):
    """The file is not where it was: moved, deleted, or replaced by another."""


_SQLSTATES: Final = {
    "25006": DatabaseFault.READ_ONLY,
    "25P03": DatabaseFault.AWAY,  # it sat idle in a transaction: stopped as a process may be
    "25P04": DatabaseFault.SLOW,
    "28": DatabaseFault.DENIED,
    "3D000": DatabaseFault.AWAY,
    "3F000": DatabaseFault.SCHEMA,
    "40001": DatabaseFault.LOCKED,
    "40P01": DatabaseFault.LOCKED,
    "42501": DatabaseFault.DENIED,
    "42P01": DatabaseFault.SCHEMA,
    "42703": DatabaseFault.SCHEMA,
    "42883": DatabaseFault.SCHEMA,
    "53300": DatabaseFault.CONNECTIONS,
    "53": DatabaseFault.FULL,
    "55006": DatabaseFault.LOCKED,
    "55P03": DatabaseFault.LOCKED,
    "57014": DatabaseFault.SLOW,
    "57": DatabaseFault.AWAY,
    "08": DatabaseFault.AWAY,
    "58": DatabaseFault.DAMAGED,
    "XX001": DatabaseFault.DAMAGED,
    "XX002": DatabaseFault.DAMAGED,
}
_SQLITE_CODES: Final = {
    3: DatabaseFault.DENIED,
    5: DatabaseFault.LOCKED,
    6: DatabaseFault.LOCKED,
    7: DatabaseFault.FULL,
    8: DatabaseFault.READ_ONLY,
    9: DatabaseFault.SLOW,
    10: DatabaseFault.DAMAGED,
    11: DatabaseFault.DAMAGED,
    13: DatabaseFault.FULL,
    14: DatabaseFault.DENIED,  # the file is there, see `backend.store.connection.sqlite.connect`
    15: DatabaseFault.LOCKED,
    22: DatabaseFault.FULL,
    23: DatabaseFault.DENIED,
    26: DatabaseFault.DAMAGED,
}
_DBMOVED: Final = 1032  # SQLITE_READONLY_DBMOVED: a name of the file was taken away
_NO_SUCH: Final = re.compile(r"^no such (table|column)|has no column named")
# Messages of libpq without a SQLSTATE, in English, when the server refuses a connection.
_CONNECTIONS_TEXT: Final = ("too many connections", "too many clients", "remaining connection slots", "no more connect")
_LOGIN_TEXT: Final = (
    "authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "does not exist",
)
_TLS_TEXT: Final = ("certificate", "SSL error", "does not support SSL", "root.crt")
# The remedy that stands after the cause.
_NEXT: Final = {
    DatabaseFault.AWAY: "see whether its server runs and can be reached; it is asked again",
    DatabaseFault.CONNECTIONS: "close other connections, or allow more of them; it is asked again",
    DatabaseFault.READ_ONLY: "make it writable, or name the server that is; it is asked again",
    DatabaseFault.DENIED: "give it this right again; it is asked again",
    DatabaseFault.FULL: "make room for it; it is asked again",
    DatabaseFault.LOCKED: "end the other program if it does not go on by itself; it is asked again",
    DatabaseFault.SLOW: "look what else it is doing; it is asked again",
    DatabaseFault.SCHEMA: "`ebbline db check` says what is missing",
    DatabaseFault.DAMAGED: "keep a copy of it as it is, look at its disk, and restore a backup",
    DatabaseFault.GONE: "put it back where it was",
    DatabaseFault.UNSUITABLE: "give ebbline a database as docs/database.md describes it",
}
_SAYS: Final = {
    DatabaseFault.AWAY: "does not answer",
    DatabaseFault.CONNECTIONS: "takes no more connections",
    DatabaseFault.READ_ONLY: "refuses writes, it is read-only",
    DatabaseFault.DENIED: "refuses",
    DatabaseFault.FULL: "has no room",
    DatabaseFault.LOCKED: "is held by another program",
    DatabaseFault.SLOW: "takes too long",
    DatabaseFault.SCHEMA: "is not as this program left it",
    DatabaseFault.DAMAGED: "cannot be read as it is",
    DatabaseFault.GONE: "is not where it was",
    DatabaseFault.UNSUITABLE: "cannot be used",
}


def diagnose(error: BaseException) -> Diagnosis | None:
    """The fault of the database that an error of SQLAlchemy or a driver shows; None for an error of the statement."""
    if isinstance(error, PoolTimeout):
        return Diagnosis(DatabaseFault.LOCKED, "all connections of this process wait for it")
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    fault = _of_sqlite(origin) if isinstance(origin, sqlite3.Error) else _of_postgresql(origin)
    return None if fault is None else Diagnosis(fault, _cause(fault, origin))


def first_line(error: BaseException) -> str:
    """The driver's own words, without the statement that SQLAlchemy adds."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(origin).strip() or type(origin).__name__).splitlines()[0].rstrip(".")


def _of_sqlite(error: sqlite3.Error) -> DatabaseFault | None:
    if isinstance(error, DatabaseFileGone):
        return DatabaseFault.GONE
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the module's own, of a connection that is closed
        return DatabaseFault.AWAY if isinstance(error, sqlite3.InterfaceError | sqlite3.ProgrammingError) else None
    if code == _DBMOVED:
        return DatabaseFault.GONE
    if code & 0xFF == 1:
        return DatabaseFault.SCHEMA if _NO_SUCH.search(str(error)) else None
    return _SQLITE_CODES.get(code & 0xFF)


def _of_postgresql(error: BaseException) -> DatabaseFault | None:
    names = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("psycopg")}
    if not names:
        return None
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return _SQLSTATES.get(state) or _SQLSTATES.get(state[:2])
    if "NotSupportedError" in names:
        return DatabaseFault.UNSUITABLE
    if not names & {"OperationalError", "InterfaceError"}:
        return None
    text = str(error)
    if any(phrase in text for phrase in _CONNECTIONS_TEXT):
        return DatabaseFault.CONNECTIONS
    if any(phrase in text for phrase in (*_LOGIN_TEXT, *_TLS_TEXT)):
        return DatabaseFault.DENIED
    return DatabaseFault.AWAY


def _cause(fault: DatabaseFault, error: BaseException) -> str:
    cause = first_line(error).removeprefix("connection failed: ")
    if fault is DatabaseFault.LOCKED and (name := _pointed_at(str(error))) is not None:
        return f"table {name} is locked"
    return cause


def _pointed_at(text: str) -> str | None:
    """The name to which the caret points that PostgreSQL puts below the statement."""
    lines = text.splitlines()
    for line, below in pairwise(lines):
        if line.startswith("LINE ") and below.strip() == "^":
            match = re.match(r'"?(\w+)', line[below.index("^") :])
            return None if match is None else match[1]
    return None
