"""What is wrong with the database, told from an error: a class, and one sentence. Pure.

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


class Trouble(StrEnum):
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


# What an operator of the database mends while this product runs.
PASSING: Final = frozenset(
    {Trouble.AWAY, Trouble.CONNECTIONS, Trouble.READ_ONLY, Trouble.FULL, Trouble.LOCKED, Trouble.SLOW}
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`cause`: the database's own words."""

    trouble: Trouble
    cause: str

    @property
    def what(self) -> str:
        """What happened, after the database's name."""
        return f"{_SAYS[self.trouble]}: {self.cause}"

    @property
    def sentence(self) -> str:
        """What happened and what to do, after the database's name."""
        return f"{self.what}: {_NEXT[self.trouble]}"

    @property
    def renews(self) -> bool:
        """Whether connections are thrown away: what refuses may stick to a session though the server was mended."""
        return self.trouble not in (Trouble.LOCKED, Trouble.SLOW, Trouble.SCHEMA)


class DatabaseFileGone(sqlite3.OperationalError):
    """The file is not where it was: moved, deleted, or replaced by another."""


_SQLSTATES: Final = {
    "25006": Trouble.READ_ONLY,
    "25P03": Trouble.AWAY,  # it sat idle in a transaction: stopped as a process may be
    "25P04": Trouble.SLOW,
    "28": Trouble.DENIED,
    "3D000": Trouble.AWAY,
    "3F000": Trouble.SCHEMA,
    "40001": Trouble.LOCKED,
    "40P01": Trouble.LOCKED,
    "42501": Trouble.DENIED,
    "42P01": Trouble.SCHEMA,
    "42703": Trouble.SCHEMA,
    "42883": Trouble.SCHEMA,
    "53300": Trouble.CONNECTIONS,
    "53": Trouble.FULL,
    "55006": Trouble.LOCKED,
    "55P03": Trouble.LOCKED,
    "57014": Trouble.SLOW,
    "57": Trouble.AWAY,
    "08": Trouble.AWAY,
    "58": Trouble.DAMAGED,
    "XX001": Trouble.DAMAGED,
    "XX002": Trouble.DAMAGED,
}
_SQLITE_CODES: Final = {
    3: Trouble.DENIED,
    5: Trouble.LOCKED,
    6: Trouble.LOCKED,
    7: Trouble.FULL,
    8: Trouble.READ_ONLY,
    9: Trouble.SLOW,
    10: Trouble.DAMAGED,
    11: Trouble.DAMAGED,
    13: Trouble.FULL,
    14: Trouble.DENIED,  # the file is there, see `backend.store.sqlite.connect`
    15: Trouble.LOCKED,
    22: Trouble.FULL,
    23: Trouble.DENIED,
    26: Trouble.DAMAGED,
}
_DBMOVED: Final = 1032  # SQLITE_READONLY_DBMOVED: a name of the file was taken away
_NO_SUCH: Final = re.compile(r"^no such (table|column)|has no column named")
# What libpq says without a SQLSTATE, in English, when the server refuses a connection.
_CONNECTIONS_TEXT: Final = ("too many connections", "too many clients", "remaining connection slots", "no more connect")
_LOGIN_TEXT: Final = (
    "authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "does not exist",
)
_TLS_TEXT: Final = ("certificate", "SSL error", "does not support SSL", "root.crt")
# What people are told to do, after the cause.
_NEXT: Final = {
    Trouble.AWAY: "look whether it runs and can be reached; it is asked again",
    Trouble.CONNECTIONS: "close other connections, or allow more of them; it is asked again",
    Trouble.READ_ONLY: "make it writable, or name the server that is; it is asked again",
    Trouble.DENIED: "give it this right again; it is asked again",
    Trouble.FULL: "make room for it; it is asked again",
    Trouble.LOCKED: "end the other program if it does not go on by itself; it is asked again",
    Trouble.SLOW: "look what else it is doing; it is asked again",
    Trouble.SCHEMA: "`ebbline db check` says what is missing",
    Trouble.DAMAGED: "keep a copy of it as it is, look at its disk, and restore a backup",
    Trouble.GONE: "put it back where it was",
    Trouble.UNSUITABLE: "give ebbline a database as docs/database.md describes it",
}
_SAYS: Final = {
    Trouble.AWAY: "does not answer",
    Trouble.CONNECTIONS: "takes no more connections",
    Trouble.READ_ONLY: "refuses writes, it is read-only",
    Trouble.DENIED: "refuses",
    Trouble.FULL: "has no room",
    Trouble.LOCKED: "is held by another program",
    Trouble.SLOW: "takes too long",
    Trouble.SCHEMA: "is not as this program left it",
    Trouble.DAMAGED: "cannot be read as it is",
    Trouble.GONE: "is not where it was",
    Trouble.UNSUITABLE: "cannot be used",
}


def diagnose(error: BaseException) -> Diagnosis | None:
    """What an error of SQLAlchemy or of a driver says of the database; None for one that is about the statement."""
    if isinstance(error, PoolTimeout):
        return Diagnosis(Trouble.LOCKED, "all connections of this process wait for it")
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    trouble = _of_sqlite(origin) if isinstance(origin, sqlite3.Error) else _of_postgresql(origin)
    return None if trouble is None else Diagnosis(trouble, _cause(trouble, origin))


def first_line(error: BaseException) -> str:
    """The driver's own words, without the statement that SQLAlchemy adds."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(origin).strip() or type(origin).__name__).splitlines()[0].rstrip(".")


def _of_sqlite(error: sqlite3.Error) -> Trouble | None:
    if isinstance(error, DatabaseFileGone):
        return Trouble.GONE
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the module's own, of a connection that is closed
        return Trouble.AWAY if isinstance(error, sqlite3.InterfaceError | sqlite3.ProgrammingError) else None
    if code == _DBMOVED:
        return Trouble.GONE
    if code & 0xFF == 1:
        return Trouble.SCHEMA if _NO_SUCH.search(str(error)) else None
    return _SQLITE_CODES.get(code & 0xFF)


def _of_postgresql(error: BaseException) -> Trouble | None:
    names = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("psycopg")}
    if not names:
        return None
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return _SQLSTATES.get(state) or _SQLSTATES.get(state[:2])
    if "NotSupportedError" in names:
        return Trouble.UNSUITABLE
    if not names & {"OperationalError", "InterfaceError"}:
        return None
    text = str(error)
    if any(words in text for words in _CONNECTIONS_TEXT):
        return Trouble.CONNECTIONS
    if any(words in text for words in (*_LOGIN_TEXT, *_TLS_TEXT)):
        return Trouble.DENIED
    return Trouble.AWAY


def _cause(trouble: Trouble, error: BaseException) -> str:
    cause = first_line(error).removeprefix("connection failed: ")
    if trouble is Trouble.LOCKED and (name := _pointed_at(str(error))) is not None:
        return f"table {name} is locked"
    return cause


def _pointed_at(text: str) -> str | None:
    """The name to which the caret points that PostgreSQL puts below the statement."""
    lines = text.splitlines()
    for line, below in pairwise(lines):
        if line.startswith("LINE ") and below.strip() == "^":
            found = re.match(r'"?(\w+)', line[below.index("^") :])
            return None if found is None else found[1]
    return None
