"""The classification of the errors of both databases, and the errors that have no class."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.store.connection import sqlite
from backend.store.connection.database import DatabaseAway, create_engine, reading, store_error, writing
from backend.store.connection.database_faults import DatabaseFault, diagnose

POSTGRESQL = {
    "08006": DatabaseFault.AWAY,
    "25006": DatabaseFault.READ_ONLY,
    "25P03": DatabaseFault.AWAY,
    "28P01": DatabaseFault.DENIED,
    "3D000": DatabaseFault.AWAY,
    "40001": DatabaseFault.LOCKED,
    "40P01": DatabaseFault.LOCKED,
    "42501": DatabaseFault.DENIED,
    "42P01": DatabaseFault.SCHEMA,
    "42703": DatabaseFault.SCHEMA,
    "53100": DatabaseFault.FULL,
    "53200": DatabaseFault.FULL,
    "53300": DatabaseFault.CONNECTIONS,
    "53400": DatabaseFault.FULL,
    "55006": DatabaseFault.LOCKED,
    "55P03": DatabaseFault.LOCKED,
    "57014": DatabaseFault.SLOW,
    "57P01": DatabaseFault.AWAY,
    "57P02": DatabaseFault.AWAY,
    "57P03": DatabaseFault.AWAY,
    "58030": DatabaseFault.DAMAGED,
    "XX001": DatabaseFault.DAMAGED,
    # About the statement.
    "22P02": None,
    "23505": None,
    "42601": None,
    "22P05": None,
}
SQLITE = {
    sqlite3.SQLITE_BUSY: DatabaseFault.LOCKED,
    sqlite3.SQLITE_LOCKED: DatabaseFault.LOCKED,
    sqlite3.SQLITE_READONLY: DatabaseFault.READ_ONLY,
    sqlite3.SQLITE_READONLY_DBMOVED: DatabaseFault.GONE,
    sqlite3.SQLITE_FULL: DatabaseFault.FULL,
    sqlite3.SQLITE_IOERR_WRITE: DatabaseFault.DAMAGED,
    sqlite3.SQLITE_CORRUPT: DatabaseFault.DAMAGED,
    sqlite3.SQLITE_NOTADB: DatabaseFault.DAMAGED,
    sqlite3.SQLITE_CANTOPEN: DatabaseFault.DENIED,
    sqlite3.SQLITE_PERM: DatabaseFault.DENIED,
    sqlite3.SQLITE_NOMEM: DatabaseFault.FULL,
    # About the statement.
    sqlite3.SQLITE_CONSTRAINT: None,
    sqlite3.SQLITE_MISMATCH: None,
}


def wrapped(error: Exception) -> BaseException:
    return DBAPIError.instance(
        "SELECT 1", None, error, (sqlite3.Error, psycopg.Error)[isinstance(error, psycopg.Error)]
    )


@pytest.mark.parametrize(("state", "trouble"), POSTGRESQL.items())
def test_a_sqlstate_has_its_class_whatever_kind_of_error_the_driver_makes_of_it(
    state: str, trouble: DatabaseFault | None
) -> None:
    kind = errors.lookup(state)
    diagnosis = diagnose(wrapped(kind("the server's words\nDETAIL: more")))
    assert (None if diagnosis is None else diagnosis.fault) is trouble
    if diagnosis is not None:
        assert "the server's words: " in diagnosis.sentence
        assert "\n" not in diagnosis.sentence


@pytest.mark.parametrize(("code", "trouble"), SQLITE.items())
def test_a_result_code_has_its_class(code: int, trouble: DatabaseFault | None) -> None:
    error = sqlite3.OperationalError("its words")
    error.sqlite_errorcode = code
    diagnosis = diagnose(wrapped(error))
    assert (None if diagnosis is None else diagnosis.fault) is trouble


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ('connection failed: FATAL:  too many connections for role "e"', DatabaseFault.CONNECTIONS),
        ("connection failed: FATAL:  sorry, too many clients already", DatabaseFault.CONNECTIONS),
        ('connection failed: FATAL:  password authentication failed for user "e"', DatabaseFault.DENIED),
        ("connection failed: server certificate for x does not match host name", DatabaseFault.DENIED),
        ("connection failed: Connection refused", DatabaseFault.AWAY),
        ("the connection is closed", DatabaseFault.AWAY),
    ],
)
def test_a_connection_that_is_not_made_has_no_sqlstate_and_a_class(text: str, trouble: DatabaseFault) -> None:
    diagnosis = diagnose(wrapped(psycopg.OperationalError(text)))
    assert diagnosis is not None
    assert diagnosis.fault is trouble


def test_a_table_that_another_program_holds_is_named() -> None:
    text = "canceling statement due to lock timeout\nLINE 1: SELECT * FROM cluster WHERE x\n                      ^"
    diagnosis = diagnose(errors.LockNotAvailable(text))
    assert diagnosis is not None
    assert "table cluster is locked" in diagnosis.sentence


def test_what_is_no_trouble_of_the_database_is_none() -> None:
    assert diagnose(ValueError("x")) is None
    assert diagnose(PoolTimeout("QueuePool limit")) is not None


def test_an_engine_makes_no_file_and_writes_into_none_that_was_moved_or_deleted(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    engine = create_engine(f"sqlite:///{file}")
    with pytest.raises(DBAPIError) as nothing, reading(engine):
        pass
    assert not file.exists()
    assert isinstance(store_error("sqlite:///x", nothing.value), DatabaseAway)
    sqlite.create(file)
    assert file.stat().st_mode & 0o777 == 0o600
    with writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE x (n INTEGER)")
    moved = file.rename(tmp_path / "moved.db")
    with pytest.raises(DBAPIError) as gone, writing(engine) as connection:
        connection.exec_driver_sql("INSERT INTO x VALUES (1)")
    diagnosis = diagnose(gone.value)
    assert diagnosis is not None
    assert diagnosis.fault is DatabaseFault.GONE
    assert not file.exists()
    moved.rename(file)
    with writing(engine) as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM x").scalar() == 0
    engine.dispose()


def test_a_file_that_took_the_place_of_another_is_used_from_then_on(tmp_path: Path) -> None:
    file, other = tmp_path / "x.db", tmp_path / "y.db"
    for path in (file, other):
        sqlite.create(path)
        made = create_engine(f"sqlite:///{path}")
        with writing(made) as connection:
            connection.exec_driver_sql("CREATE TABLE x (name TEXT)")
            connection.exec_driver_sql(f"INSERT INTO x VALUES ('{path.name}')")
        made.dispose()
    engine = create_engine(f"sqlite:///{file}")
    with reading(engine) as connection:
        assert connection.exec_driver_sql("SELECT name FROM x").scalar() == "x.db"
    with writing(engine) as connection:
        connection.exec_driver_sql("INSERT INTO x VALUES ('more')")
    other.rename(file)
    # With the log of the former SQLite would read the former.
    with pytest.raises(DBAPIError, match="was replaced, and the log"), reading(engine):
        pass
    sqlite.log_of(file).rename(tmp_path / "aside-wal")
    with reading(engine) as connection:
        assert connection.exec_driver_sql("SELECT name FROM x").scalar() == "y.db"
    engine.dispose()
