"""The whole pipeline with Spark: topic → source → sink, on both databases, in one session; then its DataFrames."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing.utils import assertDataFrameEqual
from sqlalchemy import Engine, select

from backend.protocol.remote_log.metadata_serde import RemoteLogMetadata, SegmentMetadata
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading
from backend.tiering.segment_state import SegmentState
from spark import transforms
from spark.decode import RawRecord, to_batch
from spark.direct import DirectReader
from spark.job import GapFound
from spark.rebuild import forget, forget_ledger, rebuild
from spark.schemas import RECORD_SCHEMA
from spark.session import BATCH_MAX
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink
from tests.databases import new_sqlite
from tests.effort import effort
from tests.ports import free_ports
from tests.spark.kafka_peer import admin, create_topic, produce, running_broker
from tests.spark.records import captured, delete_partition, final_states, life, log, mixed, raw
from tests.spark.replay import expected
from tests.spark.running import CLUSTER, WAIT_S, Running, beat, content, more_than, read_to, says
from tests.waiting import wait_until


def test_the_topic_of_a_real_kafka_becomes_the_ledger_and_the_stream_goes_on(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine
) -> None:
    lines = captured("metadata-records.jsonl")
    records = raw(lines)
    early = [record for record in records if record[1] < 4]
    late = [record for record in records if record[1] >= 4]
    produce(settings.bootstrap_servers, settings.source_topic, early)
    with Running(spark_session, settings, engine):
        wait_until("the first records are stored", read_to(engine, early), WAIT_S)
        bad: RawRecord = (4, 0, 1, b"key", b"not an event")
        produce(settings.bootstrap_servers, settings.source_topic, [*late, bad])
        wait_until("the others are stored", read_to(engine, [*records, bad]), WAIT_S)
        wait_until("the heartbeat counts them", lambda: beat(engine).detail["records"] == len(records) + 1, WAIT_S)
        status = beat(engine)
        assert (status.state, status.alive) == ("running", True)
        assert (status.detail["lag_records"], status.detail["quarantined_records"]) == (0, 1)
        assert status.detail["last_batch"]["records"] > 0
    with reading(engine) as connection:
        states = {row.segment_id: row.state for row in connection.execute(select(t.segment))}
    assert states == final_states(lines)
    assert content(engine) == expected([*records, bad])


def test_streams_continue_where_the_database_ends_also_without_a_checkpoint_or_from_an_older_database(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine
) -> None:
    records = mixed(2_500)
    early = [record for record in records if record[1] < 300]
    produce(settings.bootstrap_servers, settings.source_topic, early)
    with Running(spark_session, settings, engine):
        wait_until("some batches are stored", more_than(engine, 400), WAIT_S)
    shutil.rmtree(settings.spark_dir / "checkpoint")
    produce(settings.bootstrap_servers, settings.source_topic, [record for record in records if record[1] >= 300])
    with Running(spark_session, replace(settings, records_per_batch=431), engine):
        wait_until("everything is stored", read_to(engine, records), WAIT_S)
        forget(engine, CLUSTER)  # the database is put back, to before the first record, and nothing new comes
        wait_until("everything is stored again", read_to(engine, records), WAIT_S)
    assert content(engine) == expected(records)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_records_lost_before_they_were_read_stop_the_pipeline_and_say_so(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine
) -> None:
    records = mixed(1_000)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    LedgerSink(engine, cluster_id=CLUSTER, job=JOB, source_topic=settings.source_topic).write(
        0, pa.Table.from_batches([to_batch([record for record in records if record[0] == 3 and record[1] < 50])])
    )
    client = admin(settings.bootstrap_servers)
    next(iter(client.delete_records([TopicPartition(settings.source_topic, 3, 80)]).values())).result(timeout=10)
    with Running(spark_session, settings, engine) as running:
        running.thread.join(WAIT_S)
    assert isinstance(running.failure, GapFound)
    assert f"{settings.source_topic}-3 begins at offset 80, 50 was to be next" in str(running.failure)
    assert "\n" not in str(running.failure)
    # The way out that it names: what the topic still holds.
    assert "ebbline pipeline rebuild" in str(running.failure)
    forget_ledger(settings.spark_dir, settings.database_url, CLUSTER)
    held = [record for record in records if record[0] != 3 or record[1] >= 80]
    with Running(spark_session, settings, engine):
        wait_until("what is left is read", read_to(engine, held), WAIT_S)
    assert content(engine) == expected(held)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_batch_that_is_too_large_for_the_driver_is_read_again_in_halves(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine
) -> None:
    records = mixed(1_500, seed=12)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    limits: Any = spark_session.sparkContext._jsc.sc().conf()  # the living one, which each stage looks at
    limit = "spark.driver.maxResultSize"
    limits.set(limit, "80k")
    try:
        with Running(spark_session, settings, engine) as running:
            wait_until("everything is stored", read_to(engine, records), WAIT_S)
    finally:
        limits.set(limit, BATCH_MAX)
    assert running.records_per_batch < settings.records_per_batch
    assert content(engine) == expected(records)


def every_row(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """All that the pipeline stored, without the times at which it did."""
    tables = (t.segment_event, t.segment, t.segment_interval, t.remote_partition, t.quarantine, t.source_offsets)
    rows_by_table = {}
    with reading(engine) as connection:
        for table in tables:
            columns = [column for column in table.c if column.name not in ("ingested_ms", "updated_ms", "topic")]
            rows_by_table[table.name] = sorted(map(tuple, connection.execute(select(*columns))), key=repr)
    return rows_by_table


@pytest.mark.timeout(3 * WAIT_S)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_sparks_own_kafka_connector_stores_the_same_rows(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine, connector_jars: Path | str, tmp_path: Path
) -> None:
    if isinstance(connector_jars, str):
        pytest.skip(connector_jars)
    records = [*mixed(1_500, seed=8), (5, 0, 1, None, None), (5, 1, 1, b"key", b"\x01\x09\x00")]
    create_topic(settings.bootstrap_servers, "both-connectors", 6)
    early = [record for record in records if record[1] < 150]
    produce(settings.bootstrap_servers, "both-connectors", early)
    theirs = replace(settings, source_topic="both-connectors", connector="kafka", connector_jars=connector_jars)
    with Running(spark_session, theirs, engine):
        wait_until("the first records are stored", read_to(engine, early), WAIT_S)
    produce(settings.bootstrap_servers, "both-connectors", [record for record in records if record[1] >= 150])
    with Running(spark_session, theirs, engine):  # from the offsets of the database, with several batches
        wait_until("everything is stored", read_to(engine, records), WAIT_S)
    assert content(engine) == expected(records)
    other = create_engine(new_sqlite(tmp_path / "ours.db"))
    # By the reading that our source's tasks do; the whole stream of it is the first test of this file.
    reader = DirectReader(theirs, "ours", threading.Event())
    reader.copy(LedgerSink(other, cluster_id=CLUSTER, job=JOB, source_topic="both-connectors"), reader.high())
    reader.close()
    assert every_row(engine) == every_row(other)
    other.dispose()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_topic_that_was_made_again_stops_the_pipeline_although_it_is_longer(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine
) -> None:
    produce(settings.bootstrap_servers, settings.source_topic, mixed(100))
    reader = DirectReader(settings, "before", threading.Event())
    sink = LedgerSink(engine, cluster_id=CLUSTER, job=JOB, source_topic=settings.source_topic)
    sink.claim_topic(reader.topic_id())
    reader.copy(sink, reader.high())
    reader.close()
    client = admin(settings.bootstrap_servers)
    client.delete_topics([settings.source_topic])[settings.source_topic].result(timeout=30)
    create_topic(settings.bootstrap_servers, settings.source_topic)
    records = mixed(400, seed=2)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    with Running(spark_session, settings, engine) as running:
        running.thread.join(WAIT_S)
    assert isinstance(running.failure, GapFound)
    assert "was deleted and created again" in str(running.failure)
    assert content(engine) == expected(mixed(100)), "what it had stays"
    rebuild(settings, threading.Event())
    with Running(spark_session, settings, engine):
        wait_until("the heartbeat says that it runs", says(engine, "running"), WAIT_S)
    assert content(engine) == expected(records)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.skipif("EBBLINE_TEST_KAFKA" in os.environ, reason="the given Kafka is not ours to stop")
def test_brokers_that_go_and_come_back_are_waited_for(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    here = replace(settings, bootstrap_servers=f"127.0.0.1:{port}")
    records = mixed(600)
    early = [record for record in records if record[1] < 60]
    with Running(spark_session, here, engine):
        wait_until("the pipeline says that no broker answers", says(engine, "waiting"), WAIT_S)
        with running_broker(tmp_path / "kafka", port):
            create_topic(here.bootstrap_servers, here.source_topic)
            produce(here.bootstrap_servers, here.source_topic, early)
            wait_until("the first records are stored", read_to(engine, early), WAIT_S)
            wait_until("the pipeline says that it runs", says(engine, "running"), WAIT_S)
        wait_until("the pipeline says that the broker is gone", says(engine, "waiting"), WAIT_S)
        assert beat(engine).detail["waiting_since_ms"] is not None
        with running_broker(tmp_path / "kafka", port):
            produce(here.bootstrap_servers, here.source_topic, [record for record in records if record[1] >= 60])
            wait_until("the others are stored", read_to(engine, records), WAIT_S)
    assert content(engine) == expected(records)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_database_that_goes_and_comes_back_in_the_middle_is_waited_for(
    spark_session: SparkSession,
    settings: PipelineSettings,
    engine: Engine,
    outage: Callable[[], AbstractContextManager[None]],
) -> None:
    records = mixed(2_000)
    early = [record for record in records if record[1] < 60]
    produce(settings.bootstrap_servers, settings.source_topic, early)
    with Running(spark_session, settings, engine) as running:
        wait_until("the first records are stored", read_to(engine, early), WAIT_S)
        with outage():
            late = [record for record in records if record[1] >= 60]
            produce(settings.bootstrap_servers, settings.source_topic, late)
            wait_until("the sink waits for the database", lambda: running.sink.fault is not None, WAIT_S)
            time.sleep(effort(0, 60))
        wait_until("the others are stored", read_to(engine, records), WAIT_S)
        wait_until("the pipeline says that it runs", says(engine, "running"), WAIT_S)
    assert content(engine) == expected(records)


# --- its DataFrames; here, because a session takes 10 s and each file has its own ---

TOPIC_ID = "b3JkZXJzAQEBAQEBAQEBAQ"


@pytest.fixture
def frame(spark_session: SparkSession) -> Any:
    def make(records: Sequence[RawRecord]) -> DataFrame:
        return spark_session.createDataFrame(pa.Table.from_batches([to_batch(records)]), RECORD_SCHEMA)

    return make


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def copied(number: int, start: int, end: int, epochs: tuple[tuple[int, int], ...]) -> list[RemoteLogMetadata]:
    """The events of a finished copy of [start, end]."""
    first, finished = list(life(number, until=SegmentState.COPY_SEGMENT_FINISHED))
    assert isinstance(first, SegmentMetadata)
    return [first._replace(start_offset=start, end_offset=end, segment_leader_epochs=epochs), finished]


def test_events_and_what_cannot_be_read_are_parted(frame: Any) -> None:
    records = [*log(life(1)), (0, 4, 99, b"key", b"\x01\x09\x00")]
    assert [row["state"] for row in rows(transforms.events(frame(records)))] == [0, 1, 2, 3]
    (odd,) = rows(transforms.quarantined(frame(records)))
    assert (odd["metadata_offset"], odd["record_timestamp_ms"], odd["raw_key"]) == (4, 99, b"key")
    assert odd["problem"].startswith("record-key")


def test_states_and_flags_equal_the_ledger_of_the_same_records(frame: Any, tmp_path: Path) -> None:
    records = [*mixed(900, seed=4), *raw(captured("metadata-records.jsonl"))]
    records = sorted({record[:2]: record for record in records}.values(), key=lambda record: record[:2])
    engine = create_engine(new_sqlite(tmp_path / "ebbline.db"))
    sink = LedgerSink(engine, cluster_id="c", job="j", source_topic="t")
    sink.write(0, pa.Table.from_batches([to_batch(records)]))
    followed = transforms.followed(transforms.events(frame(records))).cache()
    flags = {(row.metadata_partition, row.metadata_offset): row.illegal_reason for row in followed.collect()}
    states = transforms.segment_states(followed)
    names = [name for name in states.columns if name != "leader_epochs"]
    segments = {row.segment_id: tuple(row[name] for name in names) for row in states.collect()}
    followed.unpersist()
    with reading(engine) as connection:
        e = t.segment_event.c
        query = select(e.metadata_partition, e.metadata_offset, e.illegal_reason)
        assert flags == {(row[0], row[1]): row[2] for row in connection.execute(query)}
        ledger = {
            row.segment_id: tuple(row._mapping[name] for name in names) for row in connection.execute(select(t.segment))
        }
    assert segments == ledger
    assert any(reason is not None for reason in flags.values())
    engine.dispose()


def test_a_partition_and_its_topic_are_summed_up(frame: Any, spark_session: SparkSession) -> None:
    events = [
        *copied(1, 0, 9, ((0, 0),)),
        *copied(2, 10, 19, ((0, 10), (2, 15))),
        *life(3, until=SegmentState.DELETE_SEGMENT_STARTED),
        *life(4, until=SegmentState.COPY_SEGMENT_STARTED),
        *delete_partition(),
    ]
    other = log(life(5, partition=1), partition=3)
    states = transforms.segment_states(transforms.followed(transforms.events(frame([*log(events), *other]))))
    names = ("partition", "copy_finished_segments", "copy_finished_bytes", "copy_started_segments",
             "delete_started_segments", "delete_finished_bytes", "copy_p50_ms", "delete_p99_ms", "lag_p50_ms",
             "first_remote_offset", "highest_copied_offset", "first_leader_epoch", "last_leader_epoch")  # fmt: skip
    schema = (
        "partition int, copy_finished_segments long, copy_finished_bytes long, copy_started_segments long, "
        "delete_started_segments long, delete_finished_bytes long, copy_p50_ms double, delete_p99_ms double, "
        "lag_p50_ms double, first_remote_offset long, highest_copied_offset long, "
        "first_leader_epoch long, last_leader_epoch long"
    )
    requested = [
        (0, 2, 2000, 1, 1, 0, 1000.0, None, 6002.0, 0, 399, 0, 2),
        (1, 0, 0, 0, 0, 1000, 1000.0, 1000.0, 6005.0, None, 599, 0, 0),
    ]
    result = transforms.summaries(states).select(*names)
    assertDataFrameEqual(result, spark_session.createDataFrame(requested, schema), ignoreNullable=True)
    (topic,) = rows(transforms.summaries(states, transforms.BY_TOPIC))
    assert (topic["topic"], topic["topic_id"], topic["copy_finished_segments"]) == ("orders", TOPIC_ID, 2)
    assert (topic["delete_finished_segments"], topic["highest_copied_offset"]) == (1, 599)


def test_offsets_held_twice_and_left_out_are_named(frame: Any, spark_session: SparkSession) -> None:
    chain = ((0, 0),)
    events = [
        *copied(1, 0, 99, chain), *copied(2, 50, 149, chain), *copied(3, 60, 69, chain), *copied(4, 150, 199, chain),
        *copied(5, 220, 249, chain), *life(9, until=SegmentState.COPY_SEGMENT_STARTED),
    ]  # fmt: skip
    states = transforms.segment_states(transforms.followed(transforms.events(frame(log(events)))))
    requested = [("overlap", 50, 100), ("overlap", 60, 70), ("gap", 200, 220)]
    result = transforms.overlaps_and_gaps(states).select("what", "from_offset", "to_offset")
    schema = "what string, from_offset long, to_offset long"
    assertDataFrameEqual(result, spark_session.createDataFrame(requested, schema), ignoreNullable=True)


def test_functions_that_run_in_workers_can_be_sent_there() -> None:
    assert pickle.loads(pickle.dumps(transforms._apply)) is transforms._apply
