"""The months of the history: made when an event needs them, dropped when they are too old."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, inspect, select, text

from backend.protocol.remote_log.metadata_serde import RemoteLogMetadata, encode
from backend.store import migrate
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.history import event_months, segment_history
from backend.tiering.segment_state import SegmentState
from spark.decode import to_batch
from spark.sinks.ledger_sink import LedgerSink
from tests.spark.records import life

NOW_MS = int(datetime(2026, 3, 15, tzinfo=UTC).timestamp() * 1000)
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def ms(year: int, month: int, day: int = 1) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


def store(engine: Engine, cluster_id: str, events: list[RemoteLogMetadata], first: int = 0) -> None:
    sink = LedgerSink(engine, cluster_id=cluster_id, job="j", source_topic="t", now_ms=lambda: NOW_MS)
    records = [(0, first + n, 1, None, encode(event)) for n, event in enumerate(events)]
    sink.write(0, pa.Table.from_batches([to_batch(records)]))


def lived(
    number: int, at_ms: int, until: SegmentState = SegmentState.DELETE_SEGMENT_FINISHED
) -> list[RemoteLogMetadata]:
    return [event._replace(event_timestamp_ms=at_ms) for event in life(number, until=until)]


def months(engine: Engine) -> list[str]:
    with reading(engine) as connection:
        return [event_months.name_of(month)[-8:] for month in sorted(event_months.existing(connection))]


@given(st.integers(event_months.begin_ms(12 * 2020), event_months.begin_ms(12 * 2050) - 1))
def test_a_month_holds_its_times_and_no_others(at_ms: int) -> None:
    month = event_months.month_of(at_ms)
    assert event_months.begin_ms(month) <= at_ms < event_months.begin_ms(month + 1)
    assert event_months.needed([at_ms], at_ms) == {
        needed_month for needed_month in range(month, month + event_months.COMING + 1) if needed_month < 12 * 2050
    }
    assert event_months.is_part(event_months.name_of(month))


def test_only_parts_are_taken_for_parts() -> None:
    assert event_months.is_part("segment_event_before")
    assert not any(event_months.is_part(name) for name in ("segment_event", "segment", "segment_event_y26m1", None))


@on_postgresql
def test_months_are_made_for_events_and_ahead_and_dropped_with_what_was_deleted_in_them(engine: Engine) -> None:
    assert months(engine) == []
    old, kept = ms(2025, 1, 31), ms(2025, 6)
    store(engine, "c", [*lived(1, old), *lived(2, old, SegmentState.COPY_SEGMENT_FINISHED), *lived(3, kept)])
    store(engine, "c", [*lived(4, -5), *lived(5, 1 << 62)], first=10)  # clocks may say anything
    assert months(engine) == ["y2025m01", "y2025m06", "y2026m03", "y2026m04", "y2026m05"]
    store(engine, "other", lived(9, kept))
    assert segment_history.prune_history(engine, "c", ms(2025, 1, 31)) == 0, "January is not over"
    assert segment_history.prune_history(engine, "c", ms(2025, 8)) == 4 + 2 + 4
    assert months(engine) == ["y2025m06", "y2026m03", "y2026m04", "y2026m05"], "June has events of another cluster"
    with reading(engine) as connection:
        event, segment = t.segment_event.c, t.segment.c
        assert set(connection.execute(select(event.cluster_id, event.event_timestamp_ms).distinct())) == {
            ("c", -5), ("c", 1 << 62), ("other", kept)
        }  # fmt: skip
        for table in (segment, t.segment_interval.c):
            starts = connection.scalars(select(table.start_offset).where(table.cluster_id == "c"))
            assert set(starts) == {200, 400, 500}, "what is remote stays, and what other months told"
    assert segment_history.prune_history(engine, "c", ms(2025, 8)) == 0
    store(engine, "c", lived(6, old), first=18)
    assert months(engine)[0] == "y2025m01", "a month comes back when an event needs it"


@on_postgresql
def test_a_month_has_the_key_of_all(engine: Engine) -> None:
    store(engine, "c", [*lived(1, ms(2025, 1)), *lived(2, 7)])
    inspector = inspect(engine)
    keys = [
        (key["constrained_columns"], key["dialect_options"])
        for key in map(
            inspector.get_pk_constraint,
            [t.segment_event.name, *filter(event_months.is_part, inspector.get_table_names())],
        )
    ]
    assert len(keys) == 1 + 2 + 4, "of all, before and after, January and three months from now"
    columns = ["cluster_id", "topic_id", "partition", "metadata_offset", "metadata_partition", "event_timestamp_ms"]
    assert keys == [(columns, {"postgresql_include": ["segment_id"]})] * len(keys)


@on_postgresql
def test_events_move_into_months_and_back_when_the_schema_does(database_url: str) -> None:
    engine = create_engine(database_url)
    now_ms = time.time_ns() // 1_000_000
    store(engine, "c", [*lived(1, ms(2023, 12, 31)), *lived(2, now_ms), *lived(3, 7)])
    with reading(engine) as connection:
        before = connection.execute(select(t.segment_event).order_by(t.segment_event.c.metadata_offset)).all()
    migrate.downgrade(database_url, "0007")
    with writing(engine) as connection:  # as programs of the release before write it
        sql = "INSERT INTO segment_event SELECT * FROM segment_event ON CONFLICT "
        done = connection.execute(text(f"{sql} (cluster_id, metadata_partition, metadata_offset) DO NOTHING"))
        assert done.rowcount == 0
    migrate.upgrade(database_url)
    with reading(engine) as connection:
        assert connection.execute(select(t.segment_event).order_by(t.segment_event.c.metadata_offset)).all() == before
        in_month = "SELECT count(*) FROM segment_event_y2023m12"
        assert connection.scalar(text(in_month)) == 4
    assert migrate.check(database_url).differences == []
    engine.dispose()
