"""SQLite's log is copied into its file by a thread of the pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from backend.store.connection import sqlite
from backend.store.connection.database import writing
from spark.sinks.checkpointer import LOG_PAGES_MAX, RECORDS_BETWEEN, Checkpointer
from tests.databases import opened_engine
from tests.waiting import wait_until

PAGE_BYTES = 4096


def _store(engine: Engine, pages: int) -> None:
    with writing(engine) as connection:
        connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={LOG_PAGES_MAX}")
        connection.execute(text("CREATE TABLE IF NOT EXISTS x (b BLOB)"))
        connection.execute(text(f"INSERT INTO x VALUES (zeroblob({pages * PAGE_BYTES}))"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    sqlite.create(tmp_path / "x.db")
    return tmp_path / "x.db"


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    with opened_engine(f"sqlite:///{file}") as made:
        yield made


def _wait_for_pages(file: Path, pages: int) -> None:
    wait_until(f"{file.name} has {pages} pages", lambda: file.stat().st_size >= pages * PAGE_BYTES, 10)


def test_the_log_is_copied_once_enough_is_stored(file: Path, engine: Engine) -> None:
    checkpointer = Checkpointer()
    _store(engine, 2_000)
    checkpointer.stored(engine, RECORDS_BETWEEN - 1)
    time.sleep(0.1)
    assert file.stat().st_size < 2_000 * PAGE_BYTES
    checkpointer.stored(engine, 1)
    _wait_for_pages(file, 2_000)


def test_a_commit_copies_a_log_that_has_become_too_long(file: Path, engine: Engine) -> None:
    _store(engine, LOG_PAGES_MAX)
    assert file.stat().st_size >= LOG_PAGES_MAX * PAGE_BYTES
    _store(engine, LOG_PAGES_MAX // 2)  # the log starts over: it does not grow
    assert Path(f"{file}-wal").stat().st_size < 1.1 * LOG_PAGES_MAX * PAGE_BYTES


def test_a_log_that_cannot_be_copied_is_told_and_tried_again(
    file: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = Checkpointer()
    file.unlink()
    file.mkdir()  # SQLite cannot open it
    checkpointer.stored(engine, RECORDS_BETWEEN)
    wait_until("it is told", lambda: "could not be copied into its file" in caplog.text, 10)
    file.rmdir()
    sqlite.create(file)
    _store(engine, 10)
    checkpointer.stored(engine, RECORDS_BETWEEN)
    _wait_for_pages(file, 10)
