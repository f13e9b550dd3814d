"""The pipeline in the test's process, and what its database says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import Engine, select

from backend.store import tables as t
from backend.store.connection.database import reading
from backend.store.queries.health import processes
from spark.decode import RawRecord
from spark.heartbeat import Heartbeat, Progress
from spark.job import Pipeline
from spark.kafka import TopicOffsets
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink
from tests.spark.replay import stored

CLUSTER = "cluster-1"
WAIT_S = 240  # a JVM and its first batch take 15 s on an idle machine, two minutes on a very busy one


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

    @property
    def records_per_batch(self) -> int:
        return self._pipeline.records_per_batch

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


def content(engine: Engine) -> dict[str, Any]:
    with reading(engine) as connection:
        return stored(connection, CLUSTER)


def next_offsets(engine: Engine) -> dict[int, int]:
    with reading(engine) as connection:
        rows = connection.execute(select(t.source_offsets.c.partition, t.source_offsets.c.next_offset))
        return {row.partition: row.next_offset for row in rows}


def read_to(engine: Engine, records: list[RawRecord]) -> Callable[[], bool]:
    expected: dict[int, int] = {}
    for partition, offset, *_ in records:
        expected[partition] = max(offset + 1, expected.get(partition, 0))
    return lambda: next_offsets(engine) == expected


def more_than(engine: Engine, count: int) -> Callable[[], bool]:
    return lambda: sum(next_offsets(engine).values()) > count


def beat(engine: Engine) -> Any:
    """The pipeline's row of `process_status`."""
    with reading(engine) as connection:
        return processes(connection, CLUSTER, time.time_ns() // 1_000_000)["pipeline"]


def says(engine: Engine, state: str) -> Callable[[], bool]:
    """Whether the heartbeat says so; there is a row soon after the start."""

    def is_reported() -> bool:
        with reading(engine) as connection:
            row = processes(connection, CLUSTER, time.time_ns() // 1_000_000).get("pipeline")
        return row is not None and row.state == state

    return is_reported


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


def start(settings: PipelineSettings, **more: str) -> subprocess.Popen[bytes]:
    """The pipeline in a separate process group, its JVM included; it writes to pipeline.log."""
    with open(settings.data_dir / "pipeline.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "spark.job"],
            env=environment(settings, **more),
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the whole group at once, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def pipeline_process(settings: PipelineSettings, **more: str) -> Iterator[None]:
    """The pipeline as a process during the block; at its end it is asked to stop and must do so in order."""
    process = start(settings, **more)
    try:
        yield
        process.terminate()
        assert process.wait(WAIT_S) == 0
    finally:
        kill(process)
