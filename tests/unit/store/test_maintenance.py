"""Maintenance windows in the database: added, read while they hold, listed, ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from backend.store.connection.database import create_engine, writing
from backend.store.queries import maintenance as queries
from backend.store.writes.maintenance_rows import add_window, end_window
from tests.databases import new_sqlite


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    engine = create_engine(new_sqlite(tmp_path / "ebbline.db"))
    with writing(engine) as connection:
        yield connection
    engine.dispose()


def row(**more: Any) -> dict[str, Any]:
    values = {
        "cluster_id": "c1",
        "begins_ms": 100,
        "ends_ms": 200,
        "slug": None,
        "topic": "logs-*",
        "broker_id": 2,
        "reason": "new disks",
        "created_ms": 50,
        "created_by": "ada",
    }
    return values | more


def test_a_window_is_read_while_it_holds(connection: Connection) -> None:
    number = add_window(connection, row())
    add_window(connection, row(cluster_id="c2"))
    (held,) = queries.windows_at(connection, "c1", 100)
    assert (held.id, held.topic, held.broker_id, held.reason, held.created_by) == (
        number,
        "logs-*",
        2,
        "new disks",
        "ada",
    )
    assert [queries.windows_at(connection, "c1", at_ms) for at_ms in (99, 200)] == [[], []]


def test_windows_are_listed_by_their_beginning_with_those_that_ended_lately(connection: Connection) -> None:
    late, early = add_window(connection, row(begins_ms=150)), add_window(connection, row())
    assert [window.id for window in queries.windows(connection, "c1", 0)] == [early, late]
    assert queries.windows(connection, "c1", 200) == []
    assert [queries.unended(connection, "c1", at_ms) for at_ms in (0, 199, 200)] == [2, 2, 0]


def test_a_window_that_is_ended_ends_then_and_a_planned_one_never_begins(connection: Connection) -> None:
    held, planned = add_window(connection, row()), add_window(connection, row(begins_ms=180))
    for number in (held, planned):
        end_window(connection, "c1", number, 150)
    ended = [queries.window(connection, "c1", number) for number in (held, planned)]
    assert [(window.begins_ms, window.ends_ms) for window in ended if window] == [(100, 150), (150, 150)]
    assert queries.window(connection, "c2", held) is None
    assert queries.windows_at(connection, "c1", 150) == []
