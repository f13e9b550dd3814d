"""Databases for the tests of this folder: SQLite files and one PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.databases import new_postgresql, new_sqlite
from tests.effort import effort
from tests.migrations.postgresql import NoPostgreSQL, Server, new_database, running_server

# It needs the tags of the repository, which a checkout in CI does not have.
collect_ignore = effort(["test_wheel_before.py"], [])

DIALECTS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.outside)]


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    try:
        with running_server() as server:
            yield server
    except NoPostgreSQL as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=DIALECTS)
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without tables, once for each dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ebbline.db'}"
    return new_database(request.getfixturevalue("postgresql_server").url, f"t{uuid4().hex}")


@pytest.fixture(params=DIALECTS)
def migrated_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of the newest schema, once for each dialect."""
    if request.param == "sqlite":
        return new_sqlite(tmp_path / "ebbline.db")
    return new_postgresql(request.getfixturevalue("postgresql_server"))
