"""`ebbline db`: what an operator does with the database without starting anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner, Result

from backend.cli.main import app
from backend.store import migrate, tables
from backend.store.connection.database import create_engine, reading, writing
from backend.store.connection.limits import PIPELINE
from backend.store.writes.cluster_rows import heartbeat
from tests.migrations.postgresql import Server, new_database
from tests.migrations.test_migrate import catalogue


def db(url: str, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["db", *arguments, "--database-url", url], input=answer)


@pytest.fixture
def engine(empty_database: str) -> Iterator[Engine]:
    made = create_engine(empty_database)
    yield made
    made.dispose()


def test_check_upgrade_and_downgrade_say_what_they_find_and_do(empty_database: str, engine: Engine) -> None:
    checked = db(empty_database, "check")
    assert (checked.exit_code, "schema none yet" in checked.output) == (1, True)
    assert "missing: 0001 (pre)" in checked.output
    done = db(empty_database, "upgrade")
    assert (done.exit_code, done.output) == (0, f"The database has schema {migrate.head()}.\n")
    assert db(empty_database, "upgrade", "--pre").output.endswith("Nothing was missing.\n")
    checked = db(empty_database, "check")
    assert (checked.exit_code, "Nothing to do." in checked.output) == (0, True), checked.output
    kept = db(empty_database, "downgrade", "0002", answer="n\n")
    assert kept.exit_code == 1
    assert migrate.current(empty_database) == migrate.head()
    done = db(empty_database, "downgrade", "0002", "--yes")
    assert (done.exit_code, migrate.current(empty_database)) == (0, "0002")
    assert "0003" in done.output
    assert db(empty_database, "downgrade", "0002", "--yes").output == "The database has schema 0002 already.\n"


def test_an_upgrade_that_stops_before_a_post_revision_says_which_it_left_out(empty_database: str) -> None:
    migrate.upgrade(empty_database, "0007")
    done = db(empty_database, "upgrade", "--pre")
    assert (done.exit_code, "schema 0007. Left out: 0008" in done.output) == (0, True), done.output
    assert "Nothing was missing" not in done.output


def test_check_names_what_somebody_changed_by_hand(empty_database: str, engine: Engine) -> None:
    migrate.upgrade(empty_database)
    with writing(engine) as connection:
        connection.execute(text("DROP INDEX ix_segment_open"))
        connection.execute(text("ALTER TABLE broker ADD COLUMN surplus INTEGER"))
    checked = db(empty_database, "check")
    assert checked.exit_code == 1
    assert "differs: to add index ix_segment_open of segment" in checked.output
    assert "differs: to remove column surplus" in checked.output


@pytest.mark.parametrize("revision", ["9999", "0003"])
def test_a_downgrade_to_what_is_not_there_or_newer_is_refused(empty_database: str, revision: str) -> None:
    migrate.upgrade(empty_database, "0002")
    done = db(empty_database, "downgrade", revision, "--yes")
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1)
    assert migrate.current(empty_database) == "0002"


def test_a_downgrade_under_a_running_program_is_refused(empty_database: str, engine: Engine) -> None:
    migrate.upgrade(empty_database)
    now_ms = time.time_ns() // 1_000_000
    for process, state, at_ms in (
        ("observer", "running", now_ms),
        ("pipeline", "stopped", now_ms),
        ("app", "running", 5),
    ):
        with writing(engine) as connection:
            heartbeat(
                connection, "c", process, pid=1, started_ms=1, now_ms=at_ms, interval_ms=60_000, state=state
            )  # fmt: skip
    done = db(empty_database, "downgrade", "0002", "--yes")
    assert done.exit_code == 2
    assert done.output.startswith("ebbline: observer of this database still runs")
    assert migrate.current(empty_database) == migrate.head()


TOKEN = {"cluster_id": "c", "name": "n", "role": "viewer", "hash": "h", "created_ms": 1, "expires_ms": None}


@pytest.fixture
def pg_tools(request: pytest.FixtureRequest, empty_database: str, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """Where the server's own pg_dump and pg_restore are, for PostgreSQL; on the PATH."""
    if empty_database.startswith("sqlite"):
        return None
    server: Server = request.getfixturevalue("postgresql_server")
    if not (server.bin_dir / "pg_dump").exists():
        pytest.skip(f"{server.bin_dir} has no pg_dump")
    monkeypatch.setenv("PATH", f"{server.bin_dir}:{os.environ['PATH']}")
    return server.bin_dir


def test_a_backup_put_back_is_the_database(
    empty_database: str, engine: Engine, tmp_path: Path, pg_tools: Path | None, request: pytest.FixtureRequest
) -> None:
    migrate.upgrade(empty_database)
    with writing(engine) as connection:
        connection.execute(tables.api_token.insert(), TOKEN)
    file = tmp_path / "copy"
    with writing(engine) as connection:  # in the middle of somebody's write, which is not in the copy
        connection.execute(tables.api_token.insert(), TOKEN | {"name": "other", "hash": "i"})
        done = db(empty_database, "backup", str(file))
    assert (done.exit_code, done.output) == (0, f"{file}: {file.stat().st_size} bytes.\n"), done.output
    if pg_tools is None:
        restored = f"sqlite:///{file}"
    else:
        restored = new_database(request.getfixturevalue("postgresql_server").url, f"r{time.time_ns()}")
        subprocess.run([pg_tools / "pg_restore", "--dbname", restored, file], check=True, capture_output=True)
    migrate.open_current(restored, PIPELINE, name="test").dispose()
    other = create_engine(restored)
    with reading(other) as connection:
        assert [dict(row._mapping) for row in connection.execute(tables.api_token.select())] == [TOKEN]
    assert catalogue(other) == catalogue(engine)
    other.dispose()
    expected = {name + end for name in ("copy", "ebbline.db") for end in ("", "-wal", "-shm", "-turn")}
    assert {path.name for path in tmp_path.iterdir()} <= expected


def test_a_backup_never_writes_over_a_file_and_leaves_no_half_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ebbline.db'}"
    file = tmp_path / "copy"
    done = db(url, "backup", str(file))
    assert (done.exit_code, "nothing to back up" in done.output) == (2, True)
    migrate.upgrade(url)
    file.write_text("precious")
    done = db(url, "backup", str(file))
    assert (done.exit_code, file.read_text()) == (2, "precious")
    (tmp_path / "ebbline.db").write_bytes(b"no database" * 1000)
    for beside in tmp_path.glob("ebbline.db-*"):
        beside.unlink()
    done = db(url, "backup", str(tmp_path / "second"))
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"ebbline.db", "copy"}


def test_without_pg_dump_a_backup_of_postgresql_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    done = db("postgresql://u:secret@127.0.0.1:1/x", "backup", str(tmp_path / "copy"))
    assert done.exit_code == 2
    assert "install PostgreSQL's client tools" in done.output
    assert "secret" not in done.output
