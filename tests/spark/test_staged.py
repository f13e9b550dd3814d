"""Rows that executors stage and the driver stores, without a Spark cluster; with one in test_spark_cluster.py."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, event, func, select

from backend.store import tables as t
from backend.store.connection.database import reading
from spark.decode import RawRecord, to_batch
from spark.packed import pack
from spark.rebuild import forget
from spark.sinks.ledger_sink import DatabaseWentBack
from spark.sinks.staged import StagedLedgerSink, StagedRowsLost, Stager
from tests.spark.records import mixed
from tests.spark.replay import expected
from tests.spark.running import CLUSTER, content

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def sink_of(engine: Engine) -> StagedLedgerSink:
    return StagedLedgerSink(engine, cluster_id=CLUSTER, job="j", source_topic="t")


def staged(url: str, *tasks: list[RawRecord]) -> pa.Table:
    """The result of each task; its records come in two parts."""
    stager = Stager(url, CLUSTER, "j")
    rows = [
        row
        for task in tasks
        for row in stager(pack([to_batch(task[: len(task) // 2]), to_batch(task[len(task) // 2 :])]))
    ]
    return pa.Table.from_batches(rows)


def left(engine: Engine) -> int:
    with reading(engine) as connection:
        return int(connection.scalar(select(func.count()).select_from(t.staged_record)) or 0)


def test_named_rows_are_stored_once_and_those_of_a_lost_try_never(
    database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.sinks.staged.FOLLOWED_AT_ONCE", 70)
    records = mixed(900, seed=5)
    early = [record for record in records if record[1] < 90]
    sink = sink_of(engine)
    assert sink.next_offsets() == {}
    staged(database_url, early)  # of an executor that was lost before its task ended
    even, odd = ([record for record in records if record[0] % 2 == rest] for rest in (0, 1))
    (first,) = sink.write(0, staged(database_url, early))
    assert (first.records, first.replayed) == (len(early), 0)
    assert content(engine) == expected(early)
    (second,) = sink.write(1, staged(database_url, even, odd))  # begins again, as after a lost checkpoint
    assert (second.records, second.replayed) == (len(records) - len(early), len(early))
    assert first.illegal + second.illegal == sum(expected(records)["illegal"].values())
    assert first.quarantined + second.quarantined == len(expected(records)["quarantine"])
    assert content(engine) == expected(records)
    assert left(engine) == len(early)
    assert sink_of(engine).next_offsets() == expected(records)["next_offsets"]
    assert left(engine) == 0


def test_an_event_that_may_not_follow_is_flagged_by_the_whole_key(database_url: str, engine: Engine) -> None:
    requested: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: Any) -> None:
        if statement.startswith("UPDATE segment_event"):
            requested.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    sink_of(engine).write(0, staged(database_url, mixed(200, seed=5)))
    (statement, parameters), *_ = requested
    with engine.connect() as connection:
        connection.exec_driver_sql("SET enable_seqscan = off")  # which is quicker while the table is as small as here
        (plan,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters[0]).scalar_one()
    (scan,) = plan["Plan"]["Plans"]
    assert scan["Index Name"] == f"{scan['Relation Name']}_pkey"
    assert scan["Index Cond"].count(" = ") == 6


def test_a_batch_whose_rows_are_gone_is_not_stored(database_url: str, engine: Engine) -> None:
    records = mixed(200)
    sink = sink_of(engine)
    manifest = staged(database_url, records)
    sink_of(engine).next_offsets()  # another pipeline of the job begins
    with pytest.raises(StagedRowsLost, match="0 of"):
        sink.write(0, manifest)
    assert content(engine) == expected([])


def test_a_batch_is_not_stored_over_what_the_database_has_lost(database_url: str, engine: Engine) -> None:
    records = mixed(200)
    sink = sink_of(engine)
    sink.write(0, staged(database_url, [record for record in records if record[1] < 20]))
    forget(engine, CLUSTER)
    with pytest.raises(DatabaseWentBack):
        sink.write(1, staged(database_url, [record for record in records if record[1] >= 20]))
    assert content(engine) == expected([])
