"""Parts of all tables: the metadata with its names of constraints, and columns that are in many of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Integer, MetaData
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

from backend.store.storable import KeyText, Text

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def json() -> TypeEngine[Any]:
    """JSON text on SQLite, jsonb on PostgreSQL; Python ``None`` is SQL NULL."""
    return JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def row_id() -> Column[int]:
    """A number that only grows. SQLite numbers only INTEGER PRIMARY KEY columns by itself."""
    kind = BigInteger().with_variant(Integer(), "sqlite")
    return Column("id", kind, primary_key=True, autoincrement=True)


def cluster_key() -> Column[str]:
    return Column("cluster_id", Text, primary_key=True)


def partition_key() -> Iterator[Column[str] | Column[int]]:
    yield cluster_key()
    yield Column("topic", KeyText, primary_key=True)
    yield Column("partition", Integer, primary_key=True)
