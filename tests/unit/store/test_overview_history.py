"""The Overview's history: thinned by time, and what the ledger copied in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from backend.store import tables as t
from backend.store.connection.database import create_engine, writing
from backend.store.queries import observer, overview
from tests.databases import new_sqlite


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    url = new_sqlite(tmp_path / "ebbline.db")
    engine = create_engine(url)
    with writing(engine) as connection:
        yield connection
    engine.dispose()


def store_sample(connection: Connection, at_ms: int, produced_bytes: int | None = None) -> None:
    counts = ("partitions", "tiered_partitions", "offline_partitions", "replicas", "replicas_not_in_sync")
    row: dict[str, Any] = dict.fromkeys((*counts, "brokers", "brokers_reachable"), 0)
    row |= {"cluster_id": "c1", "sampled_ms": at_ms, "produced_bytes": produced_bytes}
    connection.execute(insert(t.cluster_sample), row)


def store_segment(connection: Connection, name: str, size: int, finished_ms: int | None, state: int = 1) -> None:
    row = {
        "cluster_id": "c1",
        "topic_id": "id",
        "partition": 0,
        "segment_id": name,
        "topic": "orders",
        "start_offset": 0,
        "end_offset": 9,
        "state": state,
        "segment_size_bytes": size,
        "max_timestamp_ms": 0,
        "leader_epochs": [],
        "txn_index_empty": True,
        "copy_broker_id": 1,
        "broker_id": 1,
        "copy_started_ms": 0,
        "copy_finished_ms": finished_ms,
        "metadata_partition": 0,
        "last_event_offset": 0,
        "last_event_ms": 0,
    }
    connection.execute(insert(t.segment), row)


def test_copied_bytes_are_summed_by_step_deleted_segments_too_and_open_copies_not(connection: Connection) -> None:
    store_segment(connection, "too early", 1, 999)
    store_segment(connection, "a", 100, 1_000)
    store_segment(connection, "b", 20, 1_999, state=3)
    store_segment(connection, "c", 3, 4_500)
    store_segment(connection, "open", 7, None, state=0)
    copied_bytes = overview.copied_bytes(connection, "c1", 1_000, 1_000)
    assert copied_bytes == [overview.CopiedBytes(1_000, 120), overview.CopiedBytes(4_000, 3)]
    assert overview.copied_bytes(connection, "another", 0, 1_000) == []


def test_history_keeps_old_sparse_samples_beside_new_dense_ones(connection: Connection) -> None:
    old, new = range(0, 60_000, 10_000), range(60_000, 70_001, 10)
    for at_ms in (*old, *new):
        store_sample(connection, at_ms)
    times_ms = [row.sampled_ms for row in overview.history(connection, "c1", 0, points=71)]
    assert times_ms[:6] == list(old)
    assert times_ms[-1] == 70_000
    assert 10 <= len(times_ms) - 6 <= 12


def test_a_short_history_is_not_thinned_in_a_wide_range(connection: Connection) -> None:
    for at_ms in range(0, 600_000, 2_000):
        store_sample(connection, at_ms)
    assert len(overview.history(connection, "c1", -86_400_000)) == 300


def test_the_counter_goes_on_from_the_newest_sample_that_has_it(connection: Connection) -> None:
    assert observer.produced_bytes(connection, "c1") == 0
    store_sample(connection, 1_000, 500)
    store_sample(connection, 2_000, None)
    assert observer.produced_bytes(connection, "c1") == 500
