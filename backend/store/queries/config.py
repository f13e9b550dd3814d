"""Reads of the Config page: what is in effect, where it is set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from backend.store import tables as t


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One setting of one resource, with the places it could come from, the winner first."""

    resource_type: str
    resource: str
    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    config_type: str | None
    synonyms: list[dict[str, str | None]] | None
    sampled_ms: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic and its effective configuration."""

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    internal: bool
    tiered: bool
    config: dict[str, str | None] | None
    sampled_ms: int


def config_values(
    connection: Connection,
    cluster_id: str,
    resource_type: str,
    *,
    names: Sequence[str] | None = None,
    resource: str | None = None,
) -> list[ConfigRow]:
    """Settings of brokers or topics by resource and name; resource ``''`` is the brokers' cluster default."""
    table = t.config_value
    query = select(*(column for column in table.c if column.name != "cluster_id")).where(
        table.c.cluster_id == cluster_id, table.c.resource_type == resource_type
    )
    if names is not None:
        query = query.where(table.c.name.in_(list(names)))
    if resource is not None:
        query = query.where(table.c.resource == resource)
    rows = connection.execute(query.order_by(table.c.resource, table.c.name))
    return [ConfigRow(**row._mapping) for row in rows]


def topics(connection: Connection, cluster_id: str, *, tiered_only: bool = False) -> list[TopicRow]:
    """All topics by name."""
    table = t.topic
    query = select(*(column for column in table.c if column.name != "cluster_id")).where(
        table.c.cluster_id == cluster_id
    )
    if tiered_only:
        query = query.where(table.c.tiered)
    return [TopicRow(**row._mapping) for row in connection.execute(query.order_by(table.c.topic))]
