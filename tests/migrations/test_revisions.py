"""Each revision on its own: up and down with rows in the tables, marked pre or post, and true to the mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, inspect, select, text

from backend.store import migrate, tables
from backend.store.connection.database import create_engine, reading, writing
from backend.store.history.event_months import is_part
from backend.store.queries.time_travel import remote_at
from spark.decode import to_batch
from spark.sinks.ledger_sink import LedgerSink
from tests.migrations.test_migrate import catalogue
from tests.spark.records import delete_partition, life, log, mixed

VERSIONS = Path(__file__).parents[2] / "migrations" / "versions"
SEGMENT = {
    "cluster_id": "c", "topic_id": "t", "partition": 0, "topic": "orders", "state": 1, "segment_size_bytes": 7,
    "max_timestamp_ms": 1, "leader_epochs": "[[0, 0]]", "txn_index_empty": True, "copy_broker_id": 1, "broker_id": 1,
    "metadata_partition": 3, "last_event_offset": 9, "last_event_ms": 1,
}  # fmt: skip


def test_every_revision_says_whether_older_programs_bear_it() -> None:
    steps = migrate.steps_after(None)
    assert {step.phase for step in steps} <= {migrate.PRE, migrate.POST}
    assert steps[-1].revision == migrate.head()
    assert [step.revision for step in steps] == sorted(step.revision for step in steps)
    assert all(step.title for step in steps)


def test_each_revision_comes_back_the_same_after_it_was_undone(empty_database: str) -> None:
    for step in migrate.steps_after(None):
        before = migrate.current(empty_database)
        migrate.upgrade(empty_database, step.revision)
        engine = create_engine(empty_database)
        made = catalogue(engine)
        migrate.downgrade(empty_database, before or "base")
        assert migrate.current(empty_database) == before
        migrate.upgrade(empty_database, step.revision)
        assert catalogue(engine) == made
        engine.dispose()


def test_every_revision_is_undone_and_done_again_with_a_plan_that_reverts_another(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    engine = create_engine(empty_database)
    with writing(engine) as connection:
        for reverts_id in (None, 1):
            row: dict[str, Any] = {
                "cluster_id": "c",
                "kind": "k",
                "state": "verified",
                "author": "a",
                "role": "operator",
                "inputs": {},
            }
            row |= {"created_ms": 1, "updated_ms": 1, "reverts_id": reverts_id}
            connection.execute(tables.operation.insert().values(**row))
        about = {"cluster_id": "c", "at_ms": 1, "actor": "a", "role": "operator", "action": "x", "object": "o"}
        connection.execute(tables.audit.insert().values(**about, operation_id=1, result="verified"))
    engine.dispose()
    for step in reversed(migrate.steps_after("0001")):
        lower = f"{int(step.revision) - 1:04}"
        migrate.downgrade(empty_database, lower)
        assert migrate.current(empty_database) == lower
    migrate.upgrade(empty_database)
    with reading(engine) as connection:
        assert connection.scalar(select(tables.audit.c.operation_id)) == 1
        assert list(connection.scalars(select(tables.operation.c.reverts_id).order_by(tables.operation.c.id))) == [
            None,
            1,
        ]


def test_rows_of_the_pipeline_come_through_the_order_in_which_they_come(empty_database: str) -> None:
    migrate.upgrade(empty_database, "0008")
    engine = create_engine(empty_database)
    before = catalogue(engine)
    migrate.upgrade(empty_database)
    sink = LedgerSink(engine, cluster_id="c", job="j", source_topic="t")
    sink.write(0, pa.Table.from_batches([to_batch(mixed(600))]))
    sink.close()
    tables = ("segment_event", "segment_interval", "segment")
    with reading(engine) as connection:
        rows = {name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")))) for name in tables}
    assert all(rows.values())
    migrate.downgrade(empty_database, "0008")
    assert catalogue(engine) == before
    migrate.upgrade(empty_database)
    with reading(engine) as connection:
        assert rows == {name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")))) for name in tables}
    engine.dispose()


def test_the_key_of_events_changes_on_postgresql_alone_and_every_row_stays(empty_database: str) -> None:
    migrate.upgrade(empty_database, "0009")
    engine = create_engine(empty_database)
    before = catalogue(engine)
    migrate.upgrade(empty_database, "0010")
    after = catalogue(engine)
    assert {name for name in after if after[name] != before[name]} == (
        {"segment_event"} if engine.dialect.name == "postgresql" else set()
    )
    migrate.upgrade(empty_database)  # the pipeline of today writes columns of later revisions, too
    at_ms = 1_700_000_000_000
    segment_snapshots = [
        *life(1),
        *(event._replace(event_timestamp_ms=at_ms) for event in life(2)),
        *delete_partition(),
    ]
    sink = LedgerSink(engine, cluster_id="c", job="j", source_topic="t")
    sink.write(0, pa.Table.from_batches([to_batch([*mixed(600), *log(segment_snapshots, partition=7)])]))
    sink.close()
    every = text("SELECT * FROM segment_event ORDER BY metadata_partition, metadata_offset")
    with reading(engine) as connection:
        rows = connection.execute(every).all()
    assert len(rows) > 500
    for revision, expected in (("0009", before), ("0010", after)):
        (migrate.downgrade if revision == "0009" else migrate.upgrade)(empty_database, revision)
        assert catalogue(engine) == expected
        assert all(key == key_of(engine, "segment_event") for key in keys_of_parts(engine))
        with reading(engine) as connection:
            assert connection.execute(every).all() == rows
    engine.dispose()


def keys_of_parts(engine: Engine) -> list[dict[str, Any]]:
    return [key_of(engine, name) for name in inspect(engine).get_table_names() if is_part(name)]


def key_of(engine: Engine, table: str) -> dict[str, Any]:
    """Columns of a primary key, and what comes along; each part has another name for it."""
    key = inspect(engine).get_pk_constraint(table)
    return {name: key.get(name) for name in ("constrained_columns", "dialect_options")}


def test_a_pre_upgrade_stops_before_what_older_programs_cannot_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [migrate.Step("0001", "pre", "a"), migrate.Step("0002", "pre", "b"), migrate.Step("0003", "post", "c")]
    monkeypatch.setattr(migrate, "steps_after", lambda revision: [s for s in steps if s.revision > (revision or "")])
    assert migrate.last_pre("0001") == "0002"
    assert migrate.last_pre("0002") == "0002"
    assert migrate.last_pre("0003") == "0003"


def test_intervals_are_made_of_the_segments_that_are_there(empty_database: str) -> None:
    migrate.upgrade(empty_database, "0003")
    engine = create_engine(empty_database)
    times = {"still": (100, None), "gone": (100, 200), "backwards": (100, 50), "at once": (0, 0)}
    rows = [
        SEGMENT | {"segment_id": name, "start_offset": n, "end_offset": n, "copied": copied, "deleting": deleting}
        for n, (name, (copied, deleting)) in enumerate(times.items())
    ]
    rows.append(SEGMENT | {"segment_id": "open", "start_offset": 9, "end_offset": 9, "copied": None, "deleting": None})
    names = [name for name in rows[0] if name not in ("copied", "deleting")]
    columns = ", ".join(f'"{name}"' for name in names) + ", copy_started_ms, copy_finished_ms, delete_started_ms"
    values = ", ".join(f":{name}" for name in names) + ", 1, :copied, :deleting"
    with writing(engine) as connection:
        connection.execute(text(f"INSERT INTO segment ({columns}) VALUES ({values})"), rows)
    migrate.upgrade(empty_database)
    with reading(engine) as connection:
        ids_by_time = {
            at: [s.segment_id for s in remote_at(connection, "c", "t", 0, at)] for at in (1, 99, 100, 199, 200)
        }
        count = connection.scalar(text("SELECT count(*) FROM segment_interval"))
    assert ids_by_time == {1: [], 99: [], 100: ["still", "gone"], 199: ["still", "gone"], 200: ["still"]}
    assert count == len(times)
    engine.dispose()


def test_copies_that_failed_are_counted_from_the_segments_that_are_there(empty_database: str) -> None:
    migrate.upgrade(empty_database, "0010")
    engine = create_engine(empty_database)
    # State, copy finished, of segments of seven bytes each.
    segments = {"failed": (3, None), "again": (3, None), "leftover": (2, None), "expired": (3, 5), "kept": (1, 5)}
    rows = [
        SEGMENT
        | {"segment_id": name, "start_offset": n, "end_offset": n, "state": state, "copied": copied, "deleting": 6}
        for n, (name, (state, copied)) in enumerate(segments.items())
    ]
    names = [name for name in rows[0] if name not in ("copied", "deleting")]
    columns = ", ".join(f'"{name}"' for name in names) + ", copy_started_ms, copy_finished_ms, delete_started_ms"
    values = ", ".join(f":{name}" for name in names) + ", 1, :copied, :deleting"
    sums: dict[str, int | str] = {
        name.name: 0 if name.name.endswith(("segments", "bytes")) else 1
        for name in tables.remote_partition.columns
        if not name.name.startswith("failed_") and not name.nullable
    }
    sums |= {"cluster_id": "c", "topic_id": "t", "partition": 0, "topic": "orders", "delete_finished_segments": 3}
    summary = ", ".join(f'"{name}"' for name in sums)
    with writing(engine) as connection:
        connection.execute(text(f"INSERT INTO segment ({columns}) VALUES ({values})"), rows)
        binds = ", ".join(f":{name}" for name in sums)
        connection.execute(text(f"INSERT INTO remote_partition ({summary}) VALUES ({binds})"), sums)
    migrate.upgrade(empty_database)
    with reading(engine) as connection:
        counted = connection.execute(text("SELECT failed_copy_segments, failed_copy_bytes FROM remote_partition")).one()
    assert tuple(counted) == (2, 14)
    engine.dispose()
