"""The remote segments that an estimate reads: those of the local log, found by the index, not the whole ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from backend.store import tables as t
from backend.store.connection.database import reading, writing
from backend.store.queries.operations import local_segments
from tests.databases import new_sqlite, opened_engine

CLUSTER = "0J8z8jVtQb2nLrv6y1Yb4g"
FINISHED, DELETED = 1, 3


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    url = new_sqlite(tmp_path_factory.mktemp("segments") / "ebbline.db")
    with opened_engine(url) as engine:
        yield engine


def add_partition(connection: Connection, number: int, local_start: int, *, topic_id: str = "new") -> None:
    row = {"cluster_id": CLUSTER, "topic": "orders", "partition": number, "topic_id": topic_id, "leader": 1}
    more: dict[str, Any] = {"leader_epoch": 0, "replicas": [1], "isr": [1], "tiered": True, "changed_ms": 1}
    values = {**row, **more, "sampled_ms": 1, "local_log_start_offset": local_start}
    connection.execute(t.partition_current.insert().values(**values))


def add_segment(connection: Connection, number: int, start: int, end: int, **changed: Any) -> None:
    row = {"cluster_id": CLUSTER, "topic": "orders", "topic_id": "new", "partition": number, "state": FINISHED}
    row |= {"segment_id": f"{start}-{end}", "start_offset": start, "end_offset": end, "segment_size_bytes": 1}
    row |= {"max_timestamp_ms": 1, "leader_epochs": [[0, 0]], "txn_index_empty": True, "copy_broker_id": 1}
    row |= {"broker_id": 1, "copy_started_ms": 1, "metadata_partition": 0, "last_event_offset": 1, "last_event_ms": 1}
    connection.execute(t.segment.insert().values(**(row | changed)))


def starts(engine: Engine, number: int) -> list[int]:
    with reading(engine) as connection:
        return sorted(
            remote_segment.start for remote_segment in local_segments(connection, CLUSTER).get(("new", number), ())
        )


def test_the_segment_that_holds_the_local_start_is_read_and_those_after_it(engine: Engine) -> None:
    with writing(engine) as connection:
        add_partition(connection, 0, 150)
        for start in (0, 100, 200, 300):
            add_segment(connection, 0, start, start + 99)
    assert starts(engine, 0) == [100, 200, 300]


def test_segments_that_were_deleted_or_are_of_an_earlier_topic_do_not_hide_the_one_before(engine: Engine) -> None:
    with writing(engine) as connection:
        add_partition(connection, 1, 150)
        add_segment(connection, 1, 100, 199)
        add_segment(connection, 1, 120, 149, state=DELETED)
        add_segment(connection, 1, 130, 199, topic_id="old")
    assert starts(engine, 1) == [100]


def test_a_local_log_before_or_after_all_that_is_remote(engine: Engine) -> None:
    with writing(engine) as connection:
        add_partition(connection, 2, 0)
        add_segment(connection, 2, 50, 99)
        add_partition(connection, 3, 500)
        add_segment(connection, 3, 50, 99)
    assert starts(engine, 2) == [50]
    assert starts(engine, 3) == []


def test_each_partition_s_segments_are_found_by_their_start_offset(engine: Engine) -> None:
    requested: list[tuple[str, Any]] = []
    event.listen(
        engine, "before_cursor_execute", lambda _, __, statement, given, *___: requested.append((statement, given))
    )
    with reading(engine) as connection:
        local_segments(connection, CLUSTER)
        ((statement, given),) = [query for query in requested if "FROM segment" in query[0]]
        plan = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, given).all()
    steps = [str(line[3]) for line in plan if " segment" in str(line[3]) or " before" in str(line[3])]
    assert len(steps) == 2
    assert all("topic=? AND partition=? AND start_offset" in step for step in steps), steps
