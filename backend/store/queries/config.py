"""Reads of the Config page: what is in effect, where it is set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, String, and_, case, cast, func, select

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


@dataclass(frozen=True, slots=True)
class FollowerCounts:
    """Replicas that the bootstrap setting concerns."""

    empty: int  # not in sync and without a local log yet
    thin_partitions: int  # an in-sync follower holds less than half of the records that its leader holds locally


def config_values(
    connection: Connection,
    cluster_id: str,
    resource_type: str,
    *,
    names: Sequence[str] | None = None,
    resource: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[ConfigRow]:
    """Settings of brokers or topics by resource and name; resource ``''`` is the brokers' cluster default."""
    table = t.config_value
    query = select(*(column for column in table.c if column.name != "cluster_id"))
    query = query.where(*_of(cluster_id, resource_type, names, resource)).order_by(table.c.resource, table.c.name)
    rows = connection.execute(query if limit is None else query.limit(limit).offset(offset))
    return [ConfigRow(**row._mapping) for row in rows]


def config_count(
    connection: Connection,
    cluster_id: str,
    resource_type: str,
    *,
    names: Sequence[str] | None = None,
    resource: str | None = None,
) -> int:
    """How many :func:`config_values` finds without a limit."""
    query = select(func.count()).select_from(t.config_value)
    return int(connection.execute(query.where(*_of(cluster_id, resource_type, names, resource))).scalar_one())


def _of(
    cluster_id: str, resource_type: str, names: Sequence[str] | None, resource: str | None
) -> list[ColumnElement[bool]]:
    table = t.config_value
    conditions = [table.c.cluster_id == cluster_id, table.c.resource_type == resource_type]
    conditions += [] if names is None else [table.c.name.in_(list(names))]
    return conditions + ([] if resource is None else [table.c.resource == resource])


def topics(connection: Connection, cluster_id: str, *, tiered_only: bool = False) -> list[TopicRow]:
    """All topics by name."""
    table = t.topic
    query = select(*(column for column in table.c if column.name != "cluster_id")).where(
        table.c.cluster_id == cluster_id
    )
    if tiered_only:
        query = query.where(table.c.tiered)
    return [TopicRow(**row._mapping) for row in connection.execute(query.order_by(table.c.topic))]


def topic(connection: Connection, cluster_id: str, name: str) -> TopicRow | None:
    """One topic; None when it has not been seen."""
    table = t.topic
    query = select(*(column for column in table.c if column.name != "cluster_id")).where(
        table.c.cluster_id == cluster_id, table.c.topic == name
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else TopicRow(**row._mapping)


def follower_counts(connection: Connection, cluster_id: str) -> FollowerCounts:
    """Followers of tiered partitions that are empty now, and partitions that a follower with little data could lead."""
    replica, partition = t.replica_current, t.partition_current
    same = and_(
        partition.c.cluster_id == replica.c.cluster_id,
        partition.c.topic == replica.c.topic,
        partition.c.partition == replica.c.partition,
    )
    # Behind a leader without records nothing is bootstrapped.
    empty = and_(
        ~replica.c.in_isr,
        func.coalesce(replica.c.local_log_bytes, 0) == 0,
        partition.c.log_end_offset > func.coalesce(partition.c.log_start_offset, 0),
    )
    held = replica.c.log_end_offset - replica.c.local_log_start_offset
    leaders = partition.c.log_end_offset - partition.c.local_log_start_offset
    thin = and_(replica.c.in_isr, held * 2 < leaders)
    row = connection.execute(
        select(
            func.count(case((empty, 1))),
            func.count(case((thin, partition.c.topic + "-" + cast(partition.c.partition, String))).distinct()),
        )
        .select_from(replica.join(partition, same))
        .where(replica.c.cluster_id == cluster_id, replica.c.role == "follower", partition.c.tiered)
    ).one()
    return FollowerCounts(empty=int(row[0]), thin_partitions=int(row[1]))


def produce_rates(
    connection: Connection, cluster_id: str, partitions: Iterable[tuple[str, int]], since_ms: int
) -> dict[tuple[str, int], float]:
    """Records a second of these partitions since ``since_ms``; without two samples, or without growth, missing.

    Two look-ups by index per partition: ask for a handful.
    """
    rates = {}
    for topic, partition in partitions:
        first = _end_sample(connection, cluster_id, topic, partition, since_ms, newest=False)
        last = _end_sample(connection, cluster_id, topic, partition, since_ms, newest=True)
        if first is None or last is None or last[0] <= first[0] or last[1] <= first[1]:
            continue
        rates[topic, partition] = (last[1] - first[1]) * 1000 / (last[0] - first[0])
    return rates


def _end_sample(
    connection: Connection, cluster_id: str, topic: str, partition: int, since_ms: int, *, newest: bool
) -> tuple[int, int] | None:
    """Time and log end of the first or the last sample since ``since_ms``."""
    table = t.partition_sample
    at = table.c.sampled_ms
    row = connection.execute(
        select(at, table.c.log_end_offset)
        .where(
            table.c.cluster_id == cluster_id,
            table.c.topic == topic,
            table.c.partition == partition,
            at >= since_ms,
            table.c.log_end_offset.is_not(None),
        )
        .order_by(at.desc() if newest else at)
        .limit(1)
    ).first()
    return None if row is None else (int(row[0]), int(row[1]))
