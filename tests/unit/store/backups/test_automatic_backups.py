"""Copies of a SQLite database that are made by themselves, and the newest put in the place of what is lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backend.store.backups import automatic_backups as copies
from backend.store.backups import restoring
from backend.store.connection.database import StoreError, reading, writing
from backend.store.connection.sqlite import log_of
from tests.databases import new_sqlite, opened_engine

T0 = 1_795_620_000_000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    new_sqlite(tmp_path / "ebbline.db")
    return tmp_path / "ebbline.db"


def run(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def add_plan(database: Path) -> None:
    names = "cluster_id, kind, state, author, role, inputs, created_ms, updated_ms"
    run(database, f"INSERT INTO operation ({names}) VALUES ('c', 'k', 's', 'a', 'operator', '{{}}', 1, 1)")


def plans(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        count: int = connection.execute("SELECT count(*) FROM operation").fetchone()[0]
        return count


def test_the_newest_seven_are_kept_for_the_owner_alone(database: Path) -> None:
    assert copies.due(database, T0)
    made = [copies.back_up(database, copies.DAILY, T0 + n * copies.DAY_MS) for n in range(9)]
    assert [backup.path for backup in copies.backups(database)] == made[:1:-1]
    assert copies.folder_of(database).stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in copies.folder_of(database).iterdir()} == {0o600}
    assert not copies.due(database, T0 + 9 * copies.DAY_MS - 1)
    assert copies.due(database, T0 + 9 * copies.DAY_MS)
    assert copies.due(database, T0), "copies of the future say nothing"


@pytest.mark.parametrize("how", ["deleted", "overwritten", "cut", "empty", "page"])
def test_what_is_lost_comes_back_from_the_newest_good_copy_and_what_it_lacks_is_named(database: Path, how: str) -> None:
    add_plan(database)
    copies.back_up(database, copies.DAILY, T0)
    newest = copies.back_up(database, "before-0011", T0 + 1_000)
    newest.write_bytes(b"no database" * 1000)  # the one before is good
    add_plan(database)
    run(
        database,
        "INSERT INTO api_token (cluster_id, name, role, hash, created_ms) VALUES ('c', 'ci', 'viewer', 'x', 1)",
    )
    with closing(sqlite3.connect(database)) as connection:
        copies.note_irreplaceable(database, copies.irreplaceable_rows(connection, T0 + 2_000))
    run(database, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = database.read_bytes()
    log_of(database).write_bytes(b"the log of the former")
    if how == "deleted":
        database.unlink()
    else:
        middle = len(content) // 2 // 4096 * 4096
        wrong = {
            "overwritten": b"x" * len(content),
            "cut": content[: 4096 * 9],
            "empty": b"",
            "page": content[: 4096 * 4] + b"\xff" * middle + content[4096 * 4 + middle :],
        }
        database.write_bytes(wrong[how])
    done = restoring.restore(database, T0 + 3 * 3_600_000)
    assert done is not None
    assert "20261125T" in done.sentence
    assert "-daily.db, 3 h old" in done.sentence
    assert done.missing.startswith("plan 2, the token ci: what was planned, noted or acknowledged after 2026-11-")
    assert plans(database) == 1
    aside = sorted(
        path.name.split(".aside")[0] for path in database.parent.glob("*.aside-*") if "-shm" not in path.name
    )
    assert aside == (["ebbline.db-wal"] if how == "deleted" else ["ebbline.db", "ebbline.db-wal"])
    assert restoring.restore(database, T0 + 4 * 3_600_000) is None
    with opened_engine(f"sqlite:///{database}") as engine, writing(engine) as connection:
        connection.exec_driver_sql("DELETE FROM operation")


def test_a_damaged_file_without_a_copy_stays_as_it_is(database: Path) -> None:
    database.write_bytes(b"x" * 10_000)
    with pytest.raises(StoreError, match=r"is damaged .* and has no backup beside it: keep a copy of it"):
        restoring.restore(database, T0)
    assert database.read_bytes() == b"x" * 10_000
    database.unlink()
    assert restoring.restore(database, T0) is None
    assert not database.exists()


def test_of_a_large_database_what_the_cluster_cannot_tell_again_is_kept(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "WHOLE_BYTES_MAX", 1)
    add_plan(database)
    run(database, "INSERT INTO source_topic (cluster_id, job, topic, topic_id) VALUES ('c', 'j', 't', 'i')")
    copies.back_up(database, copies.DAILY, T0)
    database.unlink()
    assert restoring.restore(database, T0, thorough=True) is not None
    assert plans(database) == 1
    with opened_engine(f"sqlite:///{database}") as engine, reading(engine) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM source_topic").scalar() == 0
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


def test_a_copy_that_does_not_fit_is_refused_with_the_numbers(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "ROOM_BYTES", 1 << 60)
    with pytest.raises(StoreError, match=r"MiB are free, .* are needed"):
        copies.back_up(database, copies.DAILY, T0)
    assert copies.backups(database) == []


def test_what_is_still_open_is_put_back_whole(database: Path) -> None:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as held:
        held.execute("SELECT count(*) FROM operation").fetchone()
        add_plan(database)
        database.unlink()
        done = restoring.rescue(held, database, T0)
    assert done.missing == ""
    assert plans(database) == 1
    assert database.stat().st_mode & 0o777 == 0o600
