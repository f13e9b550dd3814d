"""Where a batch goes: one transaction for rows and offsets, on SQLite or PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Engine

from spark.sinks.bulk import Bulk
from spark.sinks.postgresql import PostgresqlBulk
from spark.sinks.sqlite import SqliteBulk


def bulk_for(engine: Engine) -> Bulk:
    """The fast way to move many rows into and out of this database."""
    return PostgresqlBulk() if engine.dialect.name == "postgresql" else SqliteBulk()
