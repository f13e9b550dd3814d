"""Writers of one SQLite file take turns."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from sqlalchemy import text

from backend.store.connection import sqlite
from backend.store.connection.database import create_engine, writing
from backend.store.connection.writer_lock import give_way, waiting


def test_who_goes_on_waits_until_nobody_waits(tmp_path: Path) -> None:
    database = tmp_path / "db"
    released_s: list[float] = []
    began = threading.Event()

    def wait() -> None:
        with waiting(database):
            began.set()
            time.sleep(0.05)
            released_s.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    began.wait(10)
    give_way(database, at_most_s=10)
    went_on_s = time.monotonic()
    waiter.join()
    assert went_on_s >= released_s[0]


def test_who_goes_on_waits_no_longer_than_the_time(tmp_path: Path) -> None:
    with waiting(tmp_path / "db"):
        began_s = time.monotonic()
        give_way(tmp_path / "db", at_most_s=0.05)
        assert 0.05 <= time.monotonic() - began_s < 5


def test_what_cannot_be_opened_is_as_if_nobody_waited(tmp_path: Path) -> None:
    (tmp_path / "db-turn").mkdir()
    for database in (tmp_path / "db", tmp_path / "no folder" / "db"):
        began_s = time.monotonic()
        with waiting(database):
            give_way(database, at_most_s=60)
        assert time.monotonic() - began_s < 30


def test_a_writer_gets_the_lock_between_two_transactions_of_one_that_never_stops(tmp_path: Path) -> None:
    """Left to SQLite, each of the 20 would wait for a pause of the other that never comes."""
    file, ended = tmp_path / "db", threading.Event()
    sqlite.create(file)
    engine = create_engine(f"sqlite:///{file}")
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE x (n INTEGER)"))

    def write_on() -> None:
        while not ended.is_set():
            with writing(engine) as connection:
                connection.execute(text("INSERT INTO x VALUES (0)"))
                time.sleep(0.05)
            give_way(file)

    busy = threading.Thread(target=write_on)
    busy.start()
    other = create_engine(f"sqlite:///{file}")
    try:
        waited_s = []
        for _ in range(20):
            began_s = time.monotonic()
            with writing(other) as connection:
                waited_s.append(time.monotonic() - began_s)
                connection.execute(text("INSERT INTO x VALUES (1)"))
    finally:
        ended.set()
        busy.join()
        engine.dispose()
        other.dispose()
    # Without the queue it takes 17 s. With it each waits for one transaction and at most for SQLite's longest time
    # between two looks, 0.1 s.
    assert sum(waited_s) < 20 * (0.05 + 0.1) * 2
