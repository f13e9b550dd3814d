"""Migrated, empty databases for tests: migrated once a process and copied, since the revisions take a second."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine

from backend.store import migrate
from backend.store.connection.database import create_engine
from tests.migrations.postgresql import Server, new_database

# The folder goes with the process.
_templates = tempfile.TemporaryDirectory(prefix="ebbline-migrated-")


@contextmanager
def opened_engine(url: str) -> Iterator[Engine]:
    """An engine whose connections are closed at the end of the block: Python 3.13 warns of one that is left open."""
    engine = create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def new_sqlite(file: Path) -> str:
    """The URL of a migrated database in this new file."""
    return f"sqlite:///{shutil.copyfile(_migrated_file(), file)}"


def new_postgresql(server: Server) -> str:
    """The URL of a new migrated database on the server."""
    return new_database(server.url, f"t{uuid4().hex}", template=_migrated_database(server))


@cache
def _migrated_file() -> Path:
    path = Path(_templates.name) / "migrated.db"
    migrate.upgrade(f"sqlite:///{path}")
    return path


@cache
def _migrated_database(server: Server) -> str:
    name = "migrated"
    migrate.upgrade(new_database(server.url, name))
    return name
