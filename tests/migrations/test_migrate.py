"""The schema that migrations build is the schema of the code, and foreign databases stay as they are."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import ClauseElement, Column, Engine, Integer, inspect, text

from backend.store import migrate, tables
from backend.store.connection.database import StoreError, create_engine, parse_url, reading, writing
from backend.store.connection.limits import PIPELINE
from backend.store.history.event_months import is_part


def opened(url: str) -> None:
    migrate.open_current(url, PIPELINE, name="test").dispose()


def differences(engine: Engine) -> list[object]:
    with reading(engine) as connection:
        return migrate.compared(connection)


def catalogue(engine: Engine) -> dict[str, Any]:
    """Everything the database itself knows of each table, in a comparable order."""
    inspector = inspect(engine)
    return {
        name: (
            [
                (c["name"], str(c["type"]), c["nullable"], c["default"], c.get("comment"))
                for c in inspector.get_columns(name)
            ],
            inspector.get_pk_constraint(name),
            sorted(map(repr, inspector.get_foreign_keys(name))),
            sorted(map(repr, inspector.get_unique_constraints(name))),
            sorted(map(repr, inspector.get_check_constraints(name))),
            sorted(repr(_plain(index)) for index in inspector.get_indexes(name)),
        )
        for name in inspector.get_table_names()
        if name != migrate.VERSION_TABLE and not is_part(name)
    }


def _plain(value: object) -> object:
    """SQL text in place of SQLAlchemy's clause objects, which compare by identity."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, ClauseElement) else value


def test_migrations_build_the_schema_of_the_tables_module(empty_database: str) -> None:
    assert migrate.upgrade(empty_database) == migrate.head()
    engine = create_engine(empty_database)
    assert differences(engine) == []
    migrated = catalogue(engine)
    migrate.downgrade(empty_database, "base")
    with writing(engine) as connection:
        connection.execute(text(f"DROP TABLE {migrate.VERSION_TABLE}"))
        tables.metadata.create_all(connection)
    assert set(migrated) == set(tables.metadata.tables)
    assert catalogue(engine) == migrated
    engine.dispose()


def test_the_comparison_notices_a_column_and_an_index_too_many(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    engine = create_engine(empty_database)
    with writing(engine) as connection:
        connection.execute(text("ALTER TABLE broker ADD COLUMN surplus INTEGER"))
        connection.execute(text("CREATE INDEX ix_surplus ON broker (rack)"))
    assert len(differences(engine)) == 2
    engine.dispose()


def test_upgrading_twice_changes_nothing_and_keeps_rows(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    engine = create_engine(empty_database)
    token = {"cluster_id": "c", "name": "n", "role": "viewer", "hash": "h", "created_ms": 1, "expires_ms": None}
    with writing(engine) as connection:
        connection.execute(tables.api_token.insert(), token)
    assert migrate.upgrade(empty_database) == migrate.head()
    with reading(engine) as connection:
        assert [dict(row._mapping) for row in connection.execute(tables.api_token.select())] == [token]
    opened(empty_database)
    engine.dispose()


def test_downgrading_to_base_leaves_no_table_of_ours(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    migrate.downgrade(empty_database, "base")
    engine = create_engine(empty_database)
    assert set(inspect(engine).get_table_names()) == {migrate.VERSION_TABLE}
    assert migrate.current(empty_database) is None
    engine.dispose()


def test_a_database_of_a_newer_release_is_refused(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    engine = create_engine(empty_database)
    with writing(engine) as connection:
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'"))
    for refuse in (migrate.upgrade, opened):
        with pytest.raises(migrate.MigrationError, match="newer than this program"):
            refuse(empty_database)
    engine.dispose()


def test_a_database_of_another_product_is_refused(empty_database: str) -> None:
    metadata = sqlalchemy.MetaData()
    sqlalchemy.Table("alembic_version", metadata, Column("version_num", Integer))
    engine = sqlalchemy.create_engine(parse_url(empty_database))
    metadata.create_all(engine)
    for refuse in (migrate.upgrade, opened):
        with pytest.raises(migrate.MigrationError, match="another product"):
            refuse(empty_database)
    assert inspect(engine).get_table_names() == ["alembic_version"]
    engine.dispose()


@pytest.mark.parametrize("refuse", [migrate.upgrade, opened])
def test_a_refused_sqlite_file_keeps_every_byte(tmp_path: Path, refuse: Callable[[str], object]) -> None:
    file = tmp_path / "other.db"
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE invoices (id INTEGER)")
    other.commit()
    other.close()
    before = file.read_bytes()
    with pytest.raises(migrate.MigrationError, match="invoices"):
        refuse(f"sqlite:///{file}")
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_an_opened_sqlite_file_is_turned_to_wal_on_the_connection_that_asked_its_schema(tmp_path: Path) -> None:
    file = tmp_path / "ebbline.db"
    migrate.upgrade(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
    engine = migrate.open_current(f"sqlite:///{file}", PIPELINE, name="test")
    assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with writing(engine) as first, reading(engine) as second:
        for connection in (first, second):
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database\n" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        migrate.upgrade(f"sqlite:///{file}")
    assert file.read_text() == "not a database\n" * 1000


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ebbline:secret@127.0.0.1:1/ebbline",
        "sqlite:////no-such-folder-of-ebbline/ebbline.db",
        "mysql://127.0.0.1/ebbline",
        "no url at all",
    ],
)
def test_a_database_that_cannot_be_reached_gives_one_sentence_without_the_password(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        migrate.upgrade(url)
    message = str(caught.value)
    assert "\n" not in message
    assert "secret" not in message
    assert not Path("/no-such-folder-of-ebbline").exists()


def test_looking_at_a_new_database_does_not_create_it(tmp_path: Path) -> None:
    assert migrate.current(f"sqlite:///{tmp_path / 'ebbline.db'}") is None
    assert list(tmp_path.iterdir()) == []


def test_an_upgrade_that_fails_half_way_leaves_nothing(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        # The last thing a revision does: Alembic notes that it ran.
        patch.setattr("alembic.runtime.migration.HeadMaintainer.update_to_step", fail)
        with pytest.raises(StoreError, match="No space left"):
            migrate.upgrade(empty_database)
    assert migrate.current(empty_database) is None
    engine = sqlalchemy.create_engine(parse_url(empty_database))
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_the_wheel_ships_the_migrations() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "migrations" in wheel.get("packages", []) + wheel.get("only-include", [])
