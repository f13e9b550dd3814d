"""Attempts to copy, as the ledger tells them: which failed, which are still open, how many bytes never were remote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from backend.store import tables as t
from backend.store.connection.database import create_engine, writing
from backend.store.queries import copy_attempts, observer, overview, partitions, remote_log
from backend.store.queries.remote_log import Scope
from tests.databases import new_sqlite

CLUSTER = "c1"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    engine = create_engine(new_sqlite(tmp_path / "ebbline.db"))
    with writing(engine) as connection:
        yield connection
    engine.dispose()


def segment(segment_id: str, start: int = 0, *, state: int = 0, at_ms: int = 1_000, **more: Any) -> dict[str, Any]:
    """A copy of [start, start + 100) of orders-0 by broker 1."""
    row = {
        "cluster_id": CLUSTER,
        "topic_id": "t",
        "partition": 0,
        "segment_id": segment_id,
        "topic": "orders",
        "start_offset": start,
        "end_offset": start + 99,
        "state": state,
        "segment_size_bytes": 10,
        "max_timestamp_ms": 0,
        "leader_epochs": [[0, 0]],
        "custom_metadata": None,
        "txn_index_empty": True,
        "copy_broker_id": 1,
        "broker_id": 1,
        "copy_started_ms": at_ms,
        "copy_finished_ms": None,
        "delete_started_ms": None,
        "delete_finished_ms": None,
        "metadata_partition": 0,
        "last_event_offset": 0,
        "last_event_ms": at_ms,
    }
    return row | more


def failed(segment_id: str, start: int = 0, *, at_ms: int = 1_000, **more: Any) -> dict[str, Any]:
    """As Kafka 4.3 ends a copy that failed: started, deleted, never finished."""
    return segment(segment_id, start, state=3, at_ms=at_ms, delete_started_ms=at_ms, delete_finished_ms=at_ms, **more)


def fill(connection: Connection, *rows: dict[str, Any]) -> None:
    connection.execute(t.segment.insert(), list(rows))


def test_attempts_that_failed_are_told_newest_first_and_no_deletion_of_a_finished_copy_is_one(
    connection: Connection,
) -> None:
    fill(
        connection,
        failed("a", at_ms=1_000),
        failed("b", at_ms=3_000, copy_broker_id=2),
        failed("old", at_ms=10),
        failed("foreign", at_ms=3_000) | {"cluster_id": "c2"},
        segment("kept", 100, state=1, copy_finished_ms=2_000),
        segment("expired", 200, state=3, copy_finished_ms=1_000, delete_started_ms=2_500, delete_finished_ms=2_600),
    )
    attempts = copy_attempts.failed_attempts(connection, CLUSTER, 500)
    assert [(a.broker_id, a.at_ms, a.end_offset) for a in attempts] == [(2, 3_000, 99), (1, 1_000, 99)]
    assert attempts[0].topic_id == "t"
    finished = copy_attempts.finished_copies(connection, CLUSTER, 500)
    assert [(copy.broker_id, copy.at_ms) for copy in finished] == [(1, 2_000), (1, 1_000)]


def test_a_copy_that_was_begun_once_more_has_failed(connection: Connection) -> None:
    fill(connection, segment("first", at_ms=1_000), segment("second", at_ms=31_000), segment("third", at_ms=61_000))
    assert [a.at_ms for a in copy_attempts.failed_attempts(connection, CLUSTER, 500)] == [31_000, 1_000]


@pytest.mark.parametrize(
    "later",
    [
        segment("again", 0, at_ms=2_000),
        segment("next", 100, state=1, at_ms=2_000, copy_finished_ms=3_000, copy_broker_id=2),
        failed("failed", 0, at_ms=2_000),
    ],
    ids=["begun once more", "a later range is there", "failed later"],
)
def test_an_open_copy_is_superseded_by_a_later_one_of_its_range_or_a_later_range(
    connection: Connection, later: dict[str, Any]
) -> None:
    fill(connection, segment("open"), later)
    row = next(row for row in partitions.open_segments(connection, CLUSTER) if row.segment_id == "open")
    assert row.superseded
    assert row.copy_failed


@pytest.mark.parametrize(
    "other",
    [
        segment("before", 0, at_ms=500),
        segment("earlier range", 0, state=1, at_ms=2_000) | {"start_offset": -100, "end_offset": -1},
        segment("other partition", at_ms=2_000) | {"partition": 1},
        segment("other topic of the name", at_ms=2_000) | {"topic_id": "t2"},
    ],
    ids=lambda row: str(row["segment_id"]),
)
def test_an_open_copy_is_not_superseded_by_another(connection: Connection, other: dict[str, Any]) -> None:
    fill(connection, segment("open"), other)
    row = next(row for row in partitions.open_segments(connection, CLUSTER) if row.segment_id == "open")
    assert not row.superseded


@pytest.mark.parametrize(
    ("segment_id", "outcome", "at_ms", "over"),
    [("open", "failed", 1_500, True), ("other", "failed", 1_500, False), ("open", "started", 1_500, False),
     ("open", "failed", 500, False)],
)  # fmt: skip
def test_an_open_copy_is_over_when_its_broker_reports_that_it_failed(
    connection: Connection, segment_id: str, outcome: str, at_ms: int, over: bool
) -> None:
    fill(connection, segment("open"))
    event = {"source_partition": 0, "source_offset": 0, "type": "copy", "broker_id": 1, "topic_id": "t", "partition": 0}
    body = {"segment_id": segment_id, "outcome": outcome}
    connection.execute(
        t.engine_event.insert().values(cluster_id=CLUSTER, topic="orders", at_ms=at_ms, body=body, **event)
    )
    (row,) = partitions.open_segments(connection, CLUSTER)
    assert row.superseded is over
    work = observer.open_work(connection, CLUSTER)
    assert (work.copies, work.oldest_copy_ms) == ((0, None) if over else (1, 1_000))


def test_the_oldest_open_copy_is_none_that_failed_and_the_oldest_deletion_no_leftover_of_one(
    connection: Connection,
) -> None:
    fill(
        connection,
        segment("failed", at_ms=1_000),
        segment("copying", at_ms=5_000),
        segment("leftover", 100, state=2, at_ms=1_000, delete_started_ms=1_500),
        segment("deleting", 200, state=2, at_ms=2_000, copy_finished_ms=3_000, delete_started_ms=6_000),
    )
    work = observer.open_work(connection, CLUSTER)
    assert (work.copies, work.oldest_copy_ms, work.deletes, work.oldest_delete_ms) == (1, 5_000, 1, 6_000)
    totals = overview.ledger_totals(connection, CLUSTER)
    assert (totals.oldest_open_copy_ms, totals.oldest_open_delete_ms) == (5_000, 6_000)


def test_thousands_of_failed_copies_do_not_hide_the_one_that_is_open(connection: Connection) -> None:
    fill(connection, *(segment(f"s{n:04}", at_ms=n) for n in range(1, 2_001)))
    rows = partitions.open_segments(connection, CLUSTER, limit=500)
    assert len(rows) == 500
    assert (rows[0].segment_id, rows[0].superseded) == ("s2000", False)
    assert all(row.superseded for row in rows[1:])
    assert observer.open_work(connection, CLUSTER).oldest_copy_ms == 2_000


def test_failed_attempts_are_counted_apart_from_what_was_reclaimed(connection: Connection) -> None:
    row = {"cluster_id": CLUSTER, "topic_id": "t", "partition": 0, "topic": "orders", "illegal_events": 0}
    numbers = {column.name: 0 for column in t.remote_partition.columns if column.name.endswith(("segments", "bytes"))}
    numbers |= {"delete_finished_segments": 40, "delete_finished_bytes": 400}
    numbers |= {"failed_copy_segments": 39, "failed_copy_bytes": 390}
    connection.execute(t.remote_partition.insert().values(**row, **numbers, last_event_ms=1))
    totals = remote_log.cycle_totals(connection, CLUSTER, Scope())
    assert (totals.failed_copy_segments, totals.failed_copy_bytes) == (39, 390)
    assert (totals.reclaimed_segments, totals.reclaimed_bytes) == (1, 10)
