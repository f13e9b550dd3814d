"""Programs of release 0.1.0 that run while the database is upgraded work on: all they ask and write still goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from backend.store import migrate
from backend.store.connection.database import create_engine, writing

STATEMENTS = Path(__file__).parents[1] / "fixtures" / "ebbline-0.1.0" / "statements.jsonl"
RELEASED_SCHEMA = "0002"


def frozen(dialect: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in STATEMENTS.read_text().splitlines()]
    return [line for line in lines if line["dialect"] == dialect]


def thawed(value: Any) -> Any:
    """Parameters as the driver takes them."""
    if isinstance(value, dict):
        if value.keys() == {"hex"}:
            return bytes.fromhex(value["hex"])
        if value.keys() == {"json"}:
            return Jsonb(value["json"])
        return {name: thawed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [thawed(item) for item in value]
    return value


def run(url: str) -> tuple[int, list[str]]:
    """Runs each statement of the release on the database; how many there were, and what was refused."""
    engine = create_engine(url)
    refused = []
    lines = frozen(engine.dialect.name)
    with writing(engine) as connection:
        driver: Any = connection.connection.driver_connection
        for line in lines:
            parameters = thawed(line["parameters"])
            connection.exec_driver_sql("SAVEPOINT one")
            cursor = driver.cursor()
            try:
                if line["many"]:
                    cursor.executemany(line["statement"], parameters)
                else:
                    cursor.execute(line["statement"], parameters)
                connection.exec_driver_sql("RELEASE SAVEPOINT one")
            except Exception as error:
                connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one")
                refused.append(f"{type(error).__name__}: {error}: {line['statement'][:200]}")
            finally:
                cursor.close()
    engine.dispose()
    return len(lines), refused


def test_the_release_before_works_on_the_schema_after_all_pre_revisions(empty_database: str) -> None:
    migrate.upgrade(empty_database, RELEASED_SCHEMA)
    migrate.upgrade(empty_database, migrate.last_pre(RELEASED_SCHEMA))
    count, refused = run(empty_database)
    assert refused == []
    assert count > 50


def test_the_check_notices_a_column_that_the_release_before_needs(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    engine = create_engine(empty_database)
    with writing(engine) as connection:
        connection.exec_driver_sql("ALTER TABLE segment RENAME COLUMN copy_started_ms TO begun_ms")
    engine.dispose()
    assert any("copy_started_ms" in line for line in run(empty_database)[1])
