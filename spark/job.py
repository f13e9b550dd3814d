"""The pipeline process: ``python -m spark.job`` with the ``EBBLINE_*`` environment of `ebbline up`.

    start Spark → wait for the topic → start the stream where the database ends → run until stopped

Where a stream starts is read from ``source_offsets``; Spark's checkpoint lives only as long as
one stream and is made again each time, so a lost, old or foreign checkpoint cannot matter and a
restored database is continued from where it is. A stream that fails (brokers away in the middle
of a batch) is started again; a gap in the topic ends the process, because going on would leave
the ledger wrong in silence.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from sqlalchemy import Engine

from backend.runtime.gc_tuning import GC_THRESHOLDS_OF_BATCHES, tuned
from backend.runtime.private_files import keep_files_private
from backend.store import migrate
from backend.store.connection.database import DatabaseAway, StoreError
from backend.store.connection.limits import PIPELINE
from spark import class_archive, connector, jvm, reading, source
from spark.heartbeat import Heartbeat, Progress
from spark.java import Java, NoUsableJava, find_java
from spark.kafka import BrokersAway, TopicMissing, TopicOffsets
from spark.liveness import LivingStop
from spark.lock import Busy, only_one
from spark.packed import PACKED, unpack
from spark.session import prepare_environment, start_session
from spark.settings import JOB, KAFKA, WAIT_FOR_START, PipelineSettings, SettingsError, from_environment
from spark.sinks.ledger_sink import Batch, DatabaseWentBack, LedgerSink, Stopped
from spark.sinks.staged import MANIFEST_SCHEMA, StagedLedgerSink, Stager
from spark.write_behind import WriteBehind

log = logging.getLogger("spark.job")

EXIT_OK, EXIT_SETTINGS, EXIT_JAVA, EXIT_DATABASE, EXIT_GAP, EXIT_BUSY, EXIT_SPARK = 0, 2, 3, 4, 5, 6, 7
WAIT_S: Final = 0.5
DATABASE_WAIT_S: Final = 2.0
RESTART_FIRST_S, RESTART_MAX_S = 0.5, 10.0
TOPIC_CHECK_INTERVAL_S: Final = 2.0
# Restarting brokers may answer with old ends of the topic for a moment.
WENT_BACK_PATIENCE_S: Final = 30.0
# Spark's message for a batch above spark.driver.maxResultSize, and Java's for one below it that does not fit.
TOO_LARGE_MARKERS: Final = ("maxResultSize", "OutOfMemoryError")


class SparkFailed(Exception):
    """Spark does not start. The message is one sentence for people."""


class GapFound(Exception):
    """The topic lost records that were never read. The message says which, and what to do."""


def main(*, waits_for_start: bool = False) -> int:
    """Run the pipeline until SIGTERM or SIGINT; returns the exit code. Errors end as one line on stderr."""
    keep_files_private()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails in a batch comes back from the query
    jvm.keep_quiet()
    try:
        settings = from_environment(os.environ)
        stop = LivingStop(settings.life_file)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: stop.set())
        return run(settings, stop, waits_for_start=waits_for_start)
    except SettingsError as error:
        return _fail(EXIT_SETTINGS, error)
    except NoUsableJava as error:
        return _fail(EXIT_JAVA, error)
    except StoreError as error:
        return _fail(EXIT_DATABASE, error)
    except GapFound as error:
        return _fail(EXIT_GAP, error)
    except Busy as error:
        return _fail(EXIT_BUSY, error)
    except (SparkFailed, jvm.JvmEnded) as error:
        return _fail(EXIT_SPARK, error)


def _fail(code: int, error: Exception) -> int:
    sys.stderr.write(f"ebbline pipeline: {error}\n")
    return code


def run(settings: PipelineSettings, stop: threading.Event, *, waits_for_start: bool = False) -> int:
    """Run with these settings until ``stop``. Raises the errors that `main` turns into exit codes.

    ``waits_for_start``: Spark starts at once, the database is read after a line on the standard input.
    """
    if settings.connector_jars is not None:
        connector.jars_in(settings.connector_jars)
        connector.java_properties(settings.client_properties)
    with ExitStack() as stack:
        engine: Engine | None = None
        if not waits_for_start:
            engine = migrate.open_current(settings.database_url, PIPELINE, name="pipeline")
            stack.callback(engine.dispose)
        java = find_java(settings.spark_dir / "java", os.environ)
        stack.enter_context(only_one(settings.spark_dir))
        # Before Spark's start, which takes seconds: properties that librdkafka refuses end it here.
        offsets = TopicOffsets(
            settings.bootstrap_servers, settings.source_topic, settings.client_properties, "heartbeat"
        )
        stack.callback(offsets.close)
        starting = stack.enter_context(_starting_session(settings, java, stop))
        if engine is None:
            if not _start_signalled(stop):
                log.info("pipeline: stopped before it began")
                # Spark's start cannot be interrupted and takes seconds. Nothing has been written yet, and the JVM ends
                # when the pipe to it closes.
                os._exit(EXIT_OK)
            engine = wait_for_database(settings.database_url, stop)
            if engine is None:
                return EXIT_OK
            stack.callback(engine.dispose)
        kind = StagedLedgerSink if settings.on_cluster else LedgerSink
        sink = kind(engine, cluster_id=settings.cluster_id, job=JOB, source_topic=settings.source_topic, stop=stop)
        try:
            progress = Progress(next_offsets=sink.next_offsets())
        except Stopped:
            return EXIT_OK
        heartbeat = Heartbeat(engine, settings.cluster_id, offsets, sink, progress, settings.history_days)
        heartbeat.start()
        stack.callback(heartbeat.stop)
        try:
            session = starting.result()
            if session.sparkContext.uiWebUrl:
                log.info("pipeline: Spark's own pages are at %s", session.sparkContext.uiWebUrl)
            gc.freeze()  # what is imported by now stays
            with tuned(GC_THRESHOLDS_OF_BATCHES):
                Pipeline(settings, session, sink, progress, stop).run()
        except (GapFound, SparkFailed, jvm.JvmEnded) as error:
            progress.state, progress.message = "failed", str(error)
            raise
        except BaseException:
            progress.state, progress.message = "failed", "the pipeline process ended by an error; see its log"
            raise
        progress.state, progress.message = "stopped", None
    log.info("pipeline: stopped")
    return EXIT_OK


def wait_for_database(url: str, stop: threading.Event) -> Engine | None:
    """The database, once it has this program's schema; None when stopped before. Raises MigrationError.

    One that does not answer is waited for, and one that the backend has not brought to the schema yet.
    """
    logged = ""
    while not stop.is_set():
        try:
            return migrate.open_current(url, PIPELINE, name="pipeline")
        except (DatabaseAway, migrate.SchemaBehind) as error:
            if str(error) != logged:
                logged = str(error)
                log.warning("pipeline: waiting, %s", logged)
        stop.wait(DATABASE_WAIT_S)
    return None


def _start_signalled(stop: threading.Event) -> bool:
    """Waits for a line on the standard input. False when stopped, or when the process at the other end is gone."""
    while not stop.is_set() and sys.stdin is not None:
        if select.select([sys.stdin], [], [], WAIT_S)[0]:
            return bool(sys.stdin.readline())
    return False


@contextmanager
def _starting_session(settings: PipelineSettings, java: Java, stop: threading.Event) -> Iterator[Future[SparkSession]]:
    """Starts Spark on another thread, while database and topic are waited for; stops it at the end."""
    log.info("pipeline: starting Spark on Java %d of %s", java.major, java.origin)
    with ThreadPoolExecutor(1, "spark start") as pool:
        starting = pool.submit(_start, settings, java, stop)
        try:
            yield starting
        finally:
            if starting.exception() is None:
                _stop_session(starting.result())


def _start(settings: PipelineSettings, java: Java, stop: threading.Event) -> SparkSession:
    try:
        prepare_environment(java, settings.spark_dir, local=not settings.on_cluster)
        session = start_session(
            settings.spark_dir,
            poll_interval_ms=settings.poll_interval_ms,
            jars=[] if settings.connector_jars is None else connector.jars_in(settings.connector_jars),
            master=settings.spark_master,
            ui_port=settings.ui_port,
            java_options=class_archive.java_options(java),
        )
        source.register(session)
        if settings.connector != KAFKA and not stop.is_set():
            source.load(session)
        return session
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkFailed(
            f"Spark does not start: {_first_line(str(error))} (details above in this log; 768 MB of memory are needed)."
        ) from error


class Pipeline:
    """Keeps one stream running. `run` returns after ``stop``, or raises GapFound or JvmEnded.

    ``records_per_batch`` is what the next stream takes at once: less than is set, after batches that were too large.
    """

    def __init__(
        self,
        settings: PipelineSettings,
        session: SparkSession,
        sink: LedgerSink,
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._session = session
        self._sink = sink
        self._progress = progress
        self._stop = stop
        self.records_per_batch = settings.records_per_batch
        self._offsets = TopicOffsets(
            settings.bootstrap_servers, settings.source_topic, settings.client_properties, "start"
        )

    def run(self) -> None:
        try:
            self._run()
        finally:
            self._offsets.close()

    def _run(self) -> None:
        delay_s = RESTART_FIRST_S
        went_back_since: float | None = None
        while not self._stop.is_set():
            self._wait_for_topic()
            if self._stop.is_set():
                return
            started = time.monotonic()
            failure = self._run_stream()
            if self._stop.is_set():
                return
            jvm.require_running(self._session)
            text = _first_line(failure)
            if reading.GAP_MARKER in text:
                raise GapFound(text.partition(f"{reading.GAP_MARKER}: ")[2])
            if reading.WENT_BACK_MARKER in text:
                went_back_since = went_back_since or started
                if time.monotonic() - went_back_since > WENT_BACK_PATIENCE_S:
                    raise GapFound(text.partition(f"{reading.WENT_BACK_MARKER}: ")[2])
            else:
                went_back_since = None
            if any(marker in failure for marker in TOO_LARGE_MARKERS) and self.records_per_batch > 1:
                self.records_per_batch = max(1, self.records_per_batch // 2)
                text = f"a batch was too large for the driver's memory, the next has {self.records_per_batch} records"
            delay_s = RESTART_FIRST_S if time.monotonic() - started > RESTART_MAX_S else delay_s
            self._progress.state, self._progress.message = "waiting", f"the stream ended and starts again: {text}"
            log.warning("pipeline stream: ended, next start in %.1f s: %s", delay_s, text)
            self._stop.wait(delay_s)
            delay_s = min(2 * delay_s, RESTART_MAX_S)

    def _wait_for_topic(self) -> None:
        logged = ""
        while not self._stop.is_set():
            try:
                self._offsets.offsets_held()
            except (BrokersAway, TopicMissing) as error:
                self._progress.state, self._progress.message = "waiting", str(error)
                if str(error) != logged:
                    logged = str(error)
                    log.info("pipeline: waiting, %s", logged)
                self._stop.wait(WAIT_S)
            else:
                return

    def _run_stream(self) -> str:
        """Run a stream from where the database ends; returns why it ended ("" when it was stopped)."""
        try:
            self._progress.next_offsets = self._sink.next_offsets()
        except Stopped:
            return ""
        behind = WriteBehind(self._sink.ready, self._store)
        failure = self._follow_stream(behind)
        unstored = behind.close()
        if unstored is None or isinstance(unstored, Stopped):
            return failure
        return str(unstored) or type(unstored).__name__

    def _follow_stream(self, behind: WriteBehind[Batch]) -> str:
        try:
            # `_check_topic` without a third read of the offsets: `_run_stream` has just read them.
            self._sink.claim_topic(self._offsets.topic_id())
            query = self._start_stream(behind)
        except (PySparkException, Py4JError, OSError, BrokersAway, TopicMissing, DatabaseWentBack,
                *reading.ENDS) as error:  # fmt: skip
            return str(error)
        except Stopped:
            return ""
        self._progress.state, self._progress.message = "running", None
        log.info("pipeline stream: running from %d known topic partitions on", len(self._progress.next_offsets))
        try:
            next_look_s = time.monotonic() + TOPIC_CHECK_INTERVAL_S
            while query.isActive and not behind.failed() and not self._stop.wait(0.2):
                if time.monotonic() > next_look_s:
                    with suppress(BrokersAway, TopicMissing):  # the stream notices by itself
                        self._check_topic()
                    next_look_s = time.monotonic() + TOPIC_CHECK_INTERVAL_S
            if query.isActive:
                query.stop()
            failure = query.exception()
            return "" if failure is None else str(failure)
        except (reading.TopicRecreated, DatabaseWentBack, Stopped) as error:
            query.stop()
            return str(error)
        except (PySparkException, Py4JError, OSError) as error:
            return str(error)

    def _check_topic(self) -> None:
        """Whether topic and ledger still belong together: raises TopicRecreated or DatabaseWentBack unless they do."""
        self._sink.require_stored()
        self._sink.claim_topic(self._offsets.topic_id())

    def _start_stream(self, behind: WriteBehind[Batch]) -> StreamingQuery:
        settings = self._settings
        checkpoint = settings.spark_dir / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        # Hadoop chooses the rights of a folder that it makes, whatever this process's umask says.
        checkpoint.mkdir(parents=True, exist_ok=True)
        records = self._records()

        stager = Stager(settings.database_url, settings.cluster_id, JOB) if settings.on_cluster else None

        def hand_over(batch: DataFrame, batch_id: int) -> None:
            packed = batch.select(PACKED)
            if stager is None:
                behind.hand_over(batch_id, unpack(packed.toArrow().to_batches()))
            else:  # the driver gets the names of what the executors stored
                behind.hand_over(batch_id, packed.mapInArrow(stager, MANIFEST_SCHEMA).toArrow())

        writer = records.writeStream.foreachBatch(hand_over)
        return writer.option("checkpointLocation", checkpoint.as_uri()).queryName(JOB).start()

    def _records(self) -> DataFrame:
        """The stream of records, packed, from where the database ends. Raises what `reading.start_offsets` raises."""
        settings, next_offsets = self._settings, self._progress.next_offsets
        if settings.connector == KAFKA:
            # Our source looks by itself; this one needs every partition named, and a gap in our words.
            self._offsets.partitions()  # it may have grown
            start = reading.start_offsets(settings.source_topic, self._offsets.offsets_held(), next_offsets)
            return connector.stream(self._session, settings, start, self.records_per_batch)
        reader = self._session.readStream.format(source.FORMAT).options(
            **{"bootstrap.servers": settings.bootstrap_servers, "topic": settings.source_topic},
            startingOffsets=json.dumps(next_offsets),
            maxRecords=str(self.records_per_batch),
            tasks=str(settings.tasks),
            packed="true",
            **{f"kafka.{name}": value for name, value in settings.client_properties.items()},
        )
        return reader.load()

    def _store(self, batch_id: int, batch: Batch) -> None:
        started = time.monotonic()
        progress, stored = self._progress, 0
        for written in self._sink.write(batch_id, batch):
            stored += written.records + written.replayed
            progress.next_offsets = written.next_offsets
            progress.records += written.records
            progress.quarantined += written.quarantined
            progress.illegal += written.illegal
            progress.newest_event_ms = written.newest_event_ms or progress.newest_event_ms
        progress.last_batch = {
            "batch_id": batch_id,
            "records": stored,
            "took_ms": int((time.monotonic() - started) * 1000),
            "finished_ms": time.time_ns() // 1_000_000,
        }


def _stop_session(session: SparkSession) -> None:
    try:
        session.stop()
    except (PySparkException, Py4JError, OSError) as error:
        if jvm.how_it_ended(session) is None:
            log.warning("pipeline: Spark was gone before it could be stopped: %s", _first_line(str(error)))


def _first_line(text: str) -> str:
    """The line of Spark's message that says what happened: the innermost Python error, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if reading.GAP_MARKER in line or reading.WENT_BACK_MARKER in line or "BrokersAway" in line:
            return line
    return lines[0] if lines else ""


if __name__ == "__main__":
    sys.exit(main(waits_for_start=WAIT_FOR_START in sys.argv))
