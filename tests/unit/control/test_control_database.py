"""The observer's jobs on the database: one at a time, and one failure for all that waited for it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from backend.control.control_database import Database, DatabaseAway
from tests.databases import new_sqlite


def test_a_job_that_waited_for_a_locked_database_gets_the_same_error(tmp_path: Path) -> None:
    url = new_sqlite(tmp_path / "own.db")
    began, submitted = threading.Event(), threading.Event()
    ran: list[str] = []

    def locked() -> None:
        began.set()
        submitted.wait()
        with database.engine.connect() as connection:
            connection.execute(text("PRAGMA busy_timeout = 100"))
            connection.execute(text("CREATE TABLE other (id INTEGER)"))

    async def both() -> list[object]:
        first = asyncio.ensure_future(database.observe(locked))
        await asyncio.to_thread(began.wait)
        second = asyncio.ensure_future(database.observe(lambda: ran.append("second")))
        await asyncio.sleep(0)
        submitted.set()
        errors = list(await asyncio.gather(first, second, return_exceptions=True))
        return [*errors, await database.observe(lambda: ran.append("later"))]

    database = Database(url)
    with closing(sqlite3.connect(tmp_path / "own.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        first, second, _ = asyncio.run(both())
    asyncio.run(database.close())
    assert isinstance(first, DatabaseAway)
    assert str(second) == str(first)
    assert ran == ["later"]


def test_a_refused_statement_is_an_error_of_its_own_job(tmp_path: Path) -> None:
    database = Database(new_sqlite(tmp_path / "own.db"))

    def refused() -> None:
        raise ValueError("the statement is refused")

    async def both() -> list[object]:
        return list(
            await asyncio.gather(database.observe(refused), database.observe(lambda: "done"), return_exceptions=True)
        )

    first, second = asyncio.run(both())
    asyncio.run(database.close())
    with pytest.raises(ValueError, match="the statement is refused"):
        raise first  # type: ignore[misc]
    assert second == "done"
