"""Reads of one partition's page: events, and what is left of a deleted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, func, select

from backend.store import tables as t

EVENTS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class EngineEventRow:
    """An event of a broker of the embedded engine in `__ebbline_events`."""

    type: str
    broker_id: int
    at_ms: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SegmentEventRow:
    """An event of `__remote_log_metadata`; ``end_offset`` inclusive, both None for an update."""

    kind: int
    segment_id: str | None
    state: int
    broker_id: int
    event_timestamp_ms: int
    start_offset: int | None
    end_offset: int | None
    legal: bool
    illegal_reason: str | None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The remote part of one partition of one topic id, from the ledger's summary."""

    topic_id: str
    copy_started_segments: int
    copy_finished_segments: int
    copy_finished_bytes: int
    delete_started_segments: int
    delete_finished_segments: int
    highest_copied_offset: int | None
    delete_state: int | None
    delete_state_ms: int | None
    last_event_ms: int


@dataclass(frozen=True, slots=True)
class Remains:
    """The rows by a name that no partition has now."""

    partition_count: int | None  # of the topic of that name; None: there is no such topic
    last_sampled_ms: int | None  # when the partition was last seen
    ledgers: list[LedgerRow]  # newest first

    @property
    def known(self) -> bool:
        """There once was such a partition."""
        return self.last_sampled_ms is not None or bool(self.ledgers)


def engine_events(
    connection: Connection, cluster_id: str, topic: str, partition: int, limit: int = EVENTS_MAX
) -> list[EngineEventRow]:
    """The newest events of a partition, newest first; none on a cluster without such events."""
    table = t.engine_event
    rows = connection.execute(
        select(table.c.type, table.c.broker_id, table.c.at_ms, table.c.body)
        .where(table.c.cluster_id == cluster_id, table.c.topic == topic, table.c.partition == partition)
        .order_by(table.c.at_ms.desc(), table.c.source_offset.desc())
        .limit(limit)
    )
    return [EngineEventRow(**row._mapping) for row in rows]


def phases_since(
    connection: Connection, cluster_id: str, topic: str, partition: int, broker_id: int, since_ms: int
) -> list[tuple[int, dict[str, Any]]]:
    """(time in ms, body) of one broker's events of follower phases since then, oldest first; up to 200."""
    table = t.engine_event
    rows = connection.execute(
        select(table.c.at_ms, table.c.body)
        .where(
            table.c.cluster_id == cluster_id,
            table.c.topic == topic,
            table.c.partition == partition,
            table.c.broker_id == broker_id,
            table.c.type == "phase",
            table.c.at_ms >= since_ms,
        )
        .order_by(table.c.at_ms, table.c.source_offset)
        .limit(EVENTS_MAX)
    )
    return [(row.at_ms, row.body) for row in rows]


def segment_events(
    connection: Connection, cluster_id: str, topic_id: str, partition: int, limit: int = EVENTS_MAX
) -> list[SegmentEventRow]:
    """The newest events of a partition's remote segments, newest first.

    All events of a partition are in one partition of the metadata topic, so its offset is their order.
    """
    table = t.segment_event
    query = (
        select(*(table.c[name] for name in SegmentEventRow.__slots__))
        .where(table.c.cluster_id == cluster_id, table.c.topic_id == topic_id, table.c.partition == partition)
        .order_by(table.c.metadata_offset.desc())
        .limit(limit)
    )
    return [SegmentEventRow(**row._mapping) for row in connection.execute(query)]


def ledgers(connection: Connection, cluster_id: str, topic: str, partition: int) -> list[LedgerRow]:
    """The remote part by topic id (a topic made again under its name has another), the newest event first."""
    table = t.remote_partition
    rows = connection.execute(
        select(*(table.c[name] for name in LedgerRow.__slots__))
        .where(table.c.cluster_id == cluster_id, table.c.topic == topic, table.c.partition == partition)
        .order_by(table.c.last_event_ms.desc())
    )
    return [LedgerRow(**row._mapping) for row in rows]


def remains(connection: Connection, cluster_id: str, topic: str, partition: int) -> Remains:
    """The rows that are left of a partition that is not there now."""
    sample = t.partition_sample
    count = connection.scalar(
        select(t.topic.c.partition_count).where(t.topic.c.cluster_id == cluster_id, t.topic.c.topic == topic)
    )
    last_ms = connection.scalar(
        select(func.max(sample.c.sampled_ms)).where(
            sample.c.cluster_id == cluster_id, sample.c.topic == topic, sample.c.partition == partition
        )
    )
    return Remains(count, last_ms, ledgers(connection, cluster_id, topic, partition))
