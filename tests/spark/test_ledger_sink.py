"""The sink on both databases: each record counts once, whatever is replayed, cut or repeated."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, event, select
from sqlalchemy.exc import IntegrityError

from backend.store import tables as t
from backend.store.connection.database import reading, writing
from backend.tiering.ids import uuid_text
from backend.tiering.segment_state import SegmentState
from spark.decode import RAW_VALUE_BYTES_MAX, RawRecord
from spark.reading import TopicRecreated
from spark.rebuild import forget
from spark.sinks.ledger_sink import DatabaseWentBack, LedgerSink, Stopped
from tests.spark.records import (
    CAPTURED,
    FIXTURES,
    captured,
    delete_partition,
    final_states,
    life,
    log,
    mixed,
    raw,
    table,
)
from tests.spark.replay import expected, stored

CLUSTER = "cluster-1"


def sink_of(engine: Engine, **options: object) -> LedgerSink:
    return LedgerSink(engine, cluster_id=CLUSTER, job="ledger", source_topic="__remote_log_metadata", **options)  # type: ignore[arg-type]  # passed through


def content(engine: Engine) -> dict[str, object]:
    with reading(engine) as connection:
        return stored(connection, CLUSTER)


@pytest.mark.parametrize("file", CAPTURED)
def test_records_of_a_real_kafka_give_the_states_the_fixture_lists(engine: Engine, file: str) -> None:
    lines = captured(file)
    sink_of(engine).write(0, table(raw(lines)))
    with reading(engine) as connection:
        states = {row.segment_id: row.state for row in connection.execute(select(t.segment))}
        events = connection.execute(select(t.segment_event).order_by(t.segment_event.c.metadata_offset)).all()
    assert states == final_states(lines)
    assert len(events) == len(lines)
    assert all(event.legal for event in events)
    assert content(engine) == expected(raw(lines))


def test_finished_segments_are_the_files_of_the_remote_tier(engine: Engine) -> None:
    sink_of(engine).write(0, table(raw(captured("metadata-records.jsonl"))))
    with reading(engine) as connection:
        kept = t.segment.c.state == int(SegmentState.COPY_SEGMENT_FINISHED)
        ledger = {
            (f"{row.topic}-{row.partition}-{row.topic_id}", f"{row.start_offset:020d}-{row.segment_id}.log")
            for row in connection.execute(select(t.segment).where(kept))
        }
    files = {(path.parent.name, path.name) for path in (FIXTURES / "remote").rglob("*.log")}
    assert ledger == files
    assert files


def test_a_batch_stored_twice_changes_nothing_the_second_time(engine: Engine) -> None:
    records = mixed(600)
    first = sink_of(engine).write(0, table(records))
    before = content(engine)
    again = sink_of(engine).write(0, table(records))
    assert sum(part.records for part in first) == len(records)
    assert sum(part.records for part in again) == 0
    assert sum(part.replayed for part in again) == len(records)
    assert content(engine) == before == expected(records)


def test_batches_of_changing_size_with_replays_equal_one_reading(engine: Engine) -> None:
    chance = random.Random(7)
    records = mixed(2_000, seed=3)
    by_partition: dict[int, list[RawRecord]] = {}
    for record in records:
        by_partition.setdefault(record[0], []).append(record)
    read = dict.fromkeys(by_partition, 0)
    batch_id = 0
    while any(read[p] < len(part) for p, part in by_partition.items()):
        batch: list[RawRecord] = []
        for partition, part in by_partition.items():
            start = max(0, read[partition] - chance.choice([0, 0, 5, 40]))  # goes back at times
            end = min(len(part), read[partition] + chance.randrange(1, 200))
            batch += part[start:end]
            read[partition] = max(read[partition], end)
        # Numbers start over at times, as with a lost checkpoint; a new sink is a new process.
        batch_id = 0 if chance.random() < 0.2 else batch_id + 1
        sink_of(engine).write(batch_id, table(batch))
    assert content(engine) == expected(records)


def test_a_large_batch_is_committed_in_several_transactions(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.sinks.ledger_sink.CHUNK_ROWS_FIRST", 100)
    monkeypatch.setattr("spark.sinks.ledger_sink.CHUNK_ROWS_MAX", 100)
    monkeypatch.setattr("spark.sinks.ledger_sink.CHUNK_ROWS_MIN", 100)
    records = mixed(900)
    written = sink_of(engine).write(0, table(records))
    assert len(written) == -(-len(records) // 100)
    assert content(engine) == expected(records)


def test_records_of_a_batch_may_come_in_any_order(engine: Engine) -> None:
    records = mixed(400)
    shuffled = random.Random(5).sample(records, len(records))
    sink_of(engine).write(0, table(shuffled))
    assert content(engine) == expected(records)


def test_a_transaction_that_fails_leaves_neither_rows_nor_offsets(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(engine)

    def fail(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(LedgerSink, "_note_batch", fail)  # the last thing before the commit
        with pytest.raises(RuntimeError):
            sink.write(0, table(mixed(200)))
    assert content(engine) == expected([])
    assert not any(expected([]).values())


def test_two_jobs_at_once_store_each_record_once(engine: Engine) -> None:
    records = mixed(1_500)
    cuts = [records[n : n + 150] for n in range(0, len(records), 150)]
    failures: list[BaseException] = []

    def run() -> None:
        try:
            sink = sink_of(engine)
            for number, cut in enumerate(cuts):
                sink.write(number, table(cut))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert content(engine) == expected(records)


def test_an_illegal_event_is_kept_with_its_reason_and_changes_no_segment(engine: Engine) -> None:
    started, finished, deleting, deleted = life(1)
    sink_of(engine).write(0, table(log([finished, started, deleted, deleting, finished, started])))
    with reading(engine) as connection:
        order = t.segment_event.c.metadata_offset
        events = connection.execute(select(t.segment_event).order_by(order)).all()
        segment = connection.execute(select(t.segment)).one()
        summary = connection.execute(select(t.remote_partition)).one()
    assert [event.legal for event in events] == [False, True, False, True, False, False]
    assert "no event has started" in events[0].illegal_reason
    assert "DELETE_SEGMENT_FINISHED cannot follow COPY_SEGMENT_STARTED" in events[2].illegal_reason
    assert segment.state == SegmentState.DELETE_SEGMENT_STARTED
    assert segment.copy_finished_ms is None
    assert (summary.illegal_events, summary.delete_started_segments) == (4, 1)


@pytest.mark.parametrize("segments", [3, 300])  # one by one, and in bulk
@pytest.mark.parametrize("until", [SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED])
def test_segments_that_are_begun_once_more_in_a_later_batch_are_looked_up(
    engine: Engine, segments: int, until: SegmentState
) -> None:
    firsts = [event for number in range(segments) for event in life(number, until=until)]
    whole = [event for number in range(segments) for event in life(number)]
    new = list(life(segments))
    records = log([*firsts, *new[:1], *whole, *new[1:]])
    sink = sink_of(engine)
    cut = len(firsts) + 1
    written = sink.write(0, table(records[:cut])) + sink.write(1, table(records[cut:]))
    assert sum(part.records for part in written) == len(records)
    # A copy may be begun again while it goes on; after its end the events of a second life may not follow.
    finished = until is SegmentState.COPY_SEGMENT_FINISHED
    assert sum(part.illegal for part in written) == (segments if finished else 0)
    assert content(engine) == expected(records)


def test_a_segment_carries_the_time_of_each_step(engine: Engine) -> None:
    sink_of(engine).write(0, table(log(life(3))))
    with reading(engine) as connection:
        row = connection.execute(select(t.segment)).one()
    times = (row.copy_started_ms, row.copy_finished_ms, row.delete_started_ms, row.delete_finished_ms)
    assert times == (10_003, 11_003, 12_003, 13_003)
    assert row.leader_epochs == [[0, 300]]


def test_the_steps_of_a_partition_delete_are_followed(engine: Engine) -> None:
    events = list(delete_partition())
    sink_of(engine).write(0, table(log([*life(1), events[0], events[2], events[1]])))
    with reading(engine) as connection:
        row = connection.execute(select(t.remote_partition)).one()
    assert (row.delete_state, row.illegal_events) == (1, 1)


def test_events_of_a_deleted_topic_are_followed_and_a_topic_made_again_is_another(engine: Engine) -> None:
    old_id, new_id = b"orders".ljust(16, b"\x01"), b"the-topic-again!"
    old = log(list(life(1)))
    again = [(*record[:4], (record[4] or b"").replace(old_id, new_id)) for record in old]
    # Late updates of the old topic come after the end of its deletion, between events of the new one.
    records = [
        *old[:2],
        *log(list(delete_partition())),
        again[0],
        *old[2:],
        again[1],
        log(list(delete_partition()))[-1],
    ]
    sink_of(engine).write(0, table([(0, offset, *record[2:]) for offset, record in enumerate(records)]))
    with reading(engine) as connection:
        segments = {row.topic_id: row.state for row in connection.execute(select(t.segment))}
        partitions = {
            row.topic_id: (row.delete_state, row.copy_finished_segments, row.delete_finished_segments)
            for row in connection.execute(select(t.remote_partition))
        }
    assert segments == {uuid_text(old_id): 3, uuid_text(new_id): 1}
    assert partitions == {uuid_text(old_id): (2, 0, 1), uuid_text(new_id): (None, 1, 0)}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"\x00\x00\x00", "frame-version"),
        (b"\x01\x09\x00", "record-key"),
        (b"\x01\x00\x07", "record-version"),
        (b"\x01\x00\x00\x07orders", "malformed"),
        (b"\xff" * 10_000, ""),
    ],
)
def test_what_cannot_be_read_is_set_aside_with_the_reason(engine: Engine, value: bytes | None, reason: str) -> None:
    good = log(life(1), first=1)
    written = sink_of(engine).write(0, table([(0, 0, 17, b"key", value), *good]))
    with reading(engine) as connection:
        row = connection.execute(select(t.quarantine)).one()
    assert (row.topic, row.partition, row.offset, row.record_timestamp_ms) == ("__remote_log_metadata", 0, 0, 17)
    assert row.reason.startswith(reason)
    assert row.key == b"key"
    assert row.value == (None if value is None else value[:RAW_VALUE_BYTES_MAX])
    assert (written[0].quarantined, written[0].records) == (1, 5)


def test_a_topic_name_no_database_can_store_is_set_aside(engine: Engine) -> None:
    sink_of(engine).write(0, table(log(life(1, topic="or\x00ders"))))
    assert content(engine)["events"] == {}
    assert len(content(engine)["quarantine"]) == 4  # type: ignore[arg-type]  # a set


Outage = Callable[[], AbstractContextManager[None]]


def wait_for_trouble(sink: LedgerSink) -> None:
    deadline = time.monotonic() + 60
    while sink.fault is None:
        assert time.monotonic() < deadline, "the sink does not say that it waits"
        time.sleep(0.02)


def in_background(work: Callable[[], object]) -> Callable[[], object]:
    """Starts ``work`` in a thread; the function given back waits for what it returns or raises."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return lambda: future.result(60)


@pytest.mark.parametrize("chunk_rows", [4_000, 100])  # also with the next chunk made ready, and parts of it stored
def test_a_database_that_is_away_for_a_while_is_waited_for_and_named(
    outage: Outage, engine: Engine, monkeypatch: pytest.MonkeyPatch, chunk_rows: int
) -> None:
    monkeypatch.setattr("spark.sinks.ledger_sink.CHUNK_ROWS_FIRST", chunk_rows)
    monkeypatch.setattr("spark.sinks.ledger_sink.CHUNK_ROWS_MIN", chunk_rows)
    monkeypatch.setattr("spark.sinks.ledger_sink.CHUNK_ROWS_MAX", chunk_rows)
    records = mixed(1_000)
    sink = sink_of(engine)
    sink.write(0, table([record for record in records if record[1] < 50]))
    with outage():
        written = in_background(lambda: sink.write(1, table(records)))
        wait_for_trouble(sink)
        said = ("the database does not answer: ", "the database is held by another program: ")
        assert str(sink.fault).startswith(said)
        assert "\n" not in str(sink.fault)
    written()
    assert sink.fault is None
    assert content(engine) == expected(records)


@pytest.mark.parametrize("segments", [3, 300])
def test_a_row_that_the_database_refuses_is_an_error_and_leaves_nothing(engine: Engine, segments: int) -> None:
    records = table(log([event for number in range(segments) for event in life(number)]))
    # No event that can be decoded says so: its range ends before it begins.
    at = records.schema.get_field_index("end_offset")
    ends = [None if end is None else -1 for end in records.column(at).to_pylist()]
    wrong = records.set_column(at, records.schema.field(at), pa.array(ends, pa.int64()))
    sink = sink_of(engine)
    with pytest.raises(IntegrityError, match="ck_segment_range"):
        sink.write(0, wrong)
    assert not content(engine)["events"]
    sink.write(0, records)
    assert len(content(engine)["segments"]) == segments  # type: ignore[arg-type]  # a dictionary


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_full_disk_is_waited_for_and_named_and_nothing_is_lost(engine: Engine) -> None:
    pages = [1 << 30]

    @event.listens_for(engine, "checkout")
    def _limit(connection: Any, _record: object, _proxy: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages[0]}")  # SQLite answers as for a full disk

    records = mixed(1_000)
    sink = sink_of(engine)
    sink.write(0, table([record for record in records if record[1] < 50]))
    with engine.connect() as connection:
        pages[0] = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one()) + 2
    written = in_background(lambda: sink.write(1, table(records)))
    wait_for_trouble(sink)
    sink.require_stored()  # a full disk can be read, and is full all the same
    assert sink.fault == "the database has no room: database or disk is full"
    pages[0] = 1 << 30
    written()
    assert sink.fault is None
    assert content(engine) == expected(records)


def test_a_database_that_was_put_back_meanwhile_is_noticed_and_read_on_from_where_it_is(engine: Engine) -> None:
    records = mixed(600)
    early, late = ([r for r in records if (r[1] < 60) == is_early] for is_early in (True, False))
    sink = sink_of(engine)
    assert sink.next_offsets() == {}
    sink.write(0, table(early))
    sink.require_stored()
    forget(engine, CLUSTER)  # as a copy of the time before
    with pytest.raises(DatabaseWentBack, match="up to offset 0, and had read it up to 60"):
        sink.require_stored()
    with pytest.raises(DatabaseWentBack):
        sink.write(1, table(late))
    assert content(engine) == expected([])
    assert sink.next_offsets() == {}
    sink.write(0, table(records))
    assert content(engine) == expected(records)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_ledger_belongs_to_the_topic_it_was_made_of(engine: Engine) -> None:
    sink = sink_of(engine)
    for topic_id in ("one", "one", None):
        sink.claim_topic(topic_id)
    with pytest.raises(TopicRecreated, match="has the id other and was read as one"):
        sink_of(engine).claim_topic("other")


def test_a_stop_ends_the_wait_for_a_database_that_is_away(outage: Outage, engine: Engine) -> None:
    stop = threading.Event()
    sink = sink_of(engine, stop=stop)
    with outage():
        written = in_background(lambda: sink.write(0, table(mixed(100))))
        wait_for_trouble(sink)
        stop.set()
        with pytest.raises(Stopped):
            written()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_where_to_continue_is_asked_until_the_database_answers(outage: Outage, engine: Engine) -> None:
    sink = sink_of(engine)
    sink.write(0, table(log(life(1), partition=3)))
    with outage():
        next_offsets = in_background(sink.next_offsets)
        wait_for_trouble(sink)
    assert next_offsets() == {3: 4}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_load_lets_the_planner_know_what_the_tables_hold(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.sinks.ledger_sink.ANALYZE_FIRST_RECORDS", 200)
    sink, records = sink_of(engine), mixed(900)
    with writing(engine) as connection:  # the server's own would estimate, too, whenever it comes by
        connection.exec_driver_sql("ALTER TABLE segment SET (autovacuum_enabled = off)")
    estimates: list[float] = []
    for below in (20, 40, 100, 200):  # of each partition
        sink.write(0, table([record for record in records if record[1] < below]))
        with reading(engine) as connection:
            estimates.append(
                connection.exec_driver_sql("SELECT reltuples FROM pg_class WHERE relname = 'segment'").scalar_one()
            )
    assert estimates[0] <= 0, "looked at before it is worth it"
    assert 0 < estimates[1] == estimates[2] < estimates[3]
    assert estimates[3] == len(expected(records)["segments"])


def test_events_that_are_there_already_are_left_as_they_are(engine: Engine) -> None:
    records = mixed(400)
    sink_of(engine).write(0, table(records))
    with writing(engine) as connection:  # as in a ledger whose offsets somebody removed by hand
        connection.execute(t.source_offsets.delete())
        connection.execute(t.segment_event.delete().where(t.segment_event.c.metadata_offset < 20))
        kept = connection.execute(select(t.segment_event)).all()
    sink_of(engine).write(0, table(records))
    with reading(engine) as connection:
        rows = connection.execute(select(t.segment_event)).all()
    assert {row.metadata_offset for row in rows} > set(range(20))
    assert set(map(repr, kept)) <= set(map(repr, rows))
    assert len(rows) == len(content(engine)["events"])  # type: ignore[arg-type]  # a dictionary
    assert content(engine)["next_offsets"] == expected(records)["next_offsets"]


def test_the_check_of_these_tests_notices_a_lost_and_a_doubled_row(engine: Engine) -> None:
    records = mixed(300)
    sink_of(engine).write(0, table(records))
    with writing(engine) as connection:
        row = connection.execute(select(t.segment_event)).first()
        assert row is not None
        connection.execute(t.segment_event.delete().where(t.segment_event.c.metadata_offset == row.metadata_offset))
    assert content(engine) != expected(records)
    sink_of(engine).write(1, table(log(life(77), partition=9)))
    assert content(engine) != expected(records)


def test_many_rows_hold_bytes_and_nulls_as_few_do(engine: Engine) -> None:
    events = table([*log(event for number in range(60) for event in life(number))])
    at = events.schema.get_field_index("custom_metadata")
    custom = [None if place % 3 else b"\x00\xff" + bytes([place]) for place in range(events.num_rows)]
    events = events.set_column(at, events.schema.field(at), pa.array(custom, pa.binary()))
    unreadable = [(3, offset, 7, None if offset % 2 else b"\x00k", b"\xff" + bytes([offset])) for offset in range(50)]
    sink_of(engine).write(0, pa.concat_tables([events, table(unreadable)]))
    event = t.segment_event.c
    with reading(engine) as connection:
        kept = connection.execute(select(event.custom_metadata).order_by(event.metadata_offset)).scalars().all()
        values = connection.execute(select(t.quarantine.c.key, t.quarantine.c.value).order_by(t.quarantine.c.offset))
        assert (kept, values.all()) == (custom, [(key, value) for *_, key, value in unreadable])
