"""Databases that are away for a while."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from sqlalchemy import make_url

from tests.migrations.postgresql import Server


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Another program holds SQLite's write lock during the block."""
    with closing(sqlite3.connect(str(make_url(url).database), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """The server is down during the block; connections break in the middle of what they do."""
    server.stop()
    try:
        yield
    finally:
        server.start()
