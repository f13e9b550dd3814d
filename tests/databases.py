"""Migrated, empty databases for tests: migrated once a process and copied, since the revisions take a second."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path
from uuid import uuid4

from backend.store import migrate
from tests.migrations.postgresql import Server, new_database

# The folder goes with the process.
_templates = tempfile.TemporaryDirectory(prefix="ebbline-migrated-")


def new_sqlite(file: Path) -> str:
    """The URL of a migrated database in this new file."""
    return f"sqlite:///{shutil.copyfile(_migrated_file(), file)}"


def new_postgresql(server: Server) -> str:
    """The URL of a migrated database of its own on the server."""
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
