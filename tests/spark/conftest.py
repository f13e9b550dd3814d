"""Databases, a Kafka and one Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from backend.store import migrate
from tests.migrations.postgresql import NoPostgreSQL, new_database, running_server


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    try:
        with running_server() as url:
            yield url
    except NoPostgreSQL as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated, empty database, once for each dialect."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'ebbline.db'}"
    else:
        url = new_database(request.getfixturevalue("postgresql_server"), f"t{uuid4().hex}")
    migrate.upgrade(url)
    return url
