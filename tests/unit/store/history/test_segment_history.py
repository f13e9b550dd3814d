"""The rows that a limit of the history removes, and the rows that it must leave."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Connection, select

from backend.store import tables as t
from backend.store.connection.database import create_engine, reading
from backend.store.history import segment_history
from backend.tiering.segment_state import SegmentState
from spark.decode import to_batch
from spark.sinks.ledger_sink import LedgerSink
from tests.databases import new_sqlite
from tests.spark.records import life, log

CLUSTER = "c"


def left(connection: Connection) -> tuple[set[int], int, int]:
    """(the start offsets of segments, how many intervals, how many events) that are there."""
    starts = set(connection.scalars(select(t.segment.c.start_offset)))
    return starts, len(connection.execute(select(t.segment_interval)).all()), len(
        connection.execute(select(t.segment_event)).all()
    )  # fmt: skip


def test_old_events_and_deleted_segments_go_and_what_is_remote_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_sqlite(tmp_path / "ebbline.db")
    engine = create_engine(url)
    # Times: segment n starts at 10,000 + n and takes a second for each step.
    deleted = [event for number in (1, 2, 3) for event in life(number)]
    remote = list(life(4, until=SegmentState.COPY_SEGMENT_FINISHED))
    young = list(life(5_000))
    records = [*log([*deleted, *remote, *young]), *log(life(6, partition=1), partition=2)]
    LedgerSink(engine, cluster_id=CLUSTER, job="j", source_topic="t").write(
        0, pa.Table.from_batches([to_batch(records)])
    )
    with reading(engine) as connection:
        assert left(connection) == ({100, 200, 300, 400, 500_000, 600}, 6, 22)
    assert segment_history.prune_history(engine, CLUSTER, 5) == 0
    monkeypatch.setattr(segment_history, "EVENTS_AT_ONCE", 3)
    assert segment_history.prune_history(engine, CLUSTER, 14_000, transactions_max=1) == 3
    removed = 3 + segment_history.prune_history(engine, CLUSTER, 14_000)
    with reading(engine) as connection:
        assert left(connection) == ({400, 500_000}, 2, 22 - removed)
        (summary,) = connection.execute(select(t.remote_partition).where(t.remote_partition.c.partition == 0)).all()
    assert removed == 12 + 2 + 4
    assert summary.delete_finished_segments == 4, "what was counted stays counted"
    assert segment_history.prune_history(engine, CLUSTER, 14_000) == 0
    engine.dispose()
