"""The pipeline on its own: events a second, latency, memory, sizes and query times, on both databases.

Beside Spark stands the same work by a plain-Python consumer (`spark.direct`): what Spark costs and gives. Some six
minutes on two idle cores, two with ``--quick``, and `BOUND_S` at most: what is not measured by then is an error. A year
of metadata is loaded by `make soak` (tests/spark/test_year.py).
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import httpx
import pyarrow as pa
from confluent_kafka import Producer
from sqlalchemy import Connection, Engine, func, select, text
from sqlalchemy.exc import OperationalError

from backend.protocol.remote_log.metadata_serde import RemoteLogMetadata, SegmentMetadata, SegmentUpdate, encode
from backend.runtime.gc_tuning import GC_THRESHOLDS, GC_THRESHOLDS_OF_BATCHES, tuned
from backend.store import migrate
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading
from backend.store.history.event_months import is_part
from backend.store.queries.time_travel import partitions_at
from backend.store.writes.samples import PartitionSample, ReplicaSample, SampleWriter
from backend.tiering.ids import TopicIdPartition, uuid_text
from backend.tiering.segment_state import SegmentState
from spark.decode import RawRecord, to_batch
from spark.direct import DirectReader
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink
from tests.benchmarks.broker import broker_process
from tests.e2e.up_process import UpProcess
from tests.migrations.postgresql import NoPostgreSQL, new_database, running_server
from tests.spark.kafka_peer import create_topic
from tests.unit.store.test_page_plans import CLUSTER, queries

TOPIC = "filled"
PARTITIONS = 50
TOPIC_ID = b"orders----------"
# So much that both databases are measured within `alone.BUDGETS_S` on a busy machine; a year is loaded by `make soak`.
EVENTS, EVENTS_QUICK = 200_000, 20_000
SEGMENTS, SEGMENTS_QUICK = 100_000, 10_000
LATENCY_EVENTS_PER_S = 1_000
LATENCY_S, LATENCY_QUICK_S = 15, 3
# The job loads the topic so many times, each time into a new database: its rate is the median. A machine that is shared
# with others gave 38,000 and 48,000 within minutes.
LOADS, LOADS_QUICK = 3, 1
LOAD_AT_ONCE = 20_000
TIMEOUT_S = 60.0  # without any news
BOUND_S = 600.0
# The metadata of a year, however much it is.
BEGAN_MS, YEAR_MS = 1_700_000_000_000, 365 * 86_400_000
Figures = dict[str, float]
# Each figure with a target has it in its name, and `tests.benchmarks` says whether it is met.
STEADY = {
    "SQLite": "events/s steady (target: at least 45000)",
    "PostgreSQL": "events/s steady (target: at least 35000)",
}
TO_PYTHON = "Spark to plain Python, ratio (target: at least 0.4)"
P50, P99 = "event to row at 1,000/s, p50 ms", "event to row at 1,000/s, p99 ms (target: 1500)"
PEAK = "peak memory of driver, JVM and workers, MB"
SLOWEST = "slowest query, ms (target: 100)"
FIRST_ROWS = "first rows visible after `ebbline up`, s (target: 12)"
UPS, UPS_QUICK = 3, 2  # the first one warms the machine


class NotMeasured(Exception):
    """The pipeline ended, or did not get as far as it should; the message says how far."""


def measure_pipeline(*, quick: bool) -> Figures:
    """All figures by name, the unit in it. Raises NotMeasured."""
    until_s = time.monotonic() + BOUND_S
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="ebbline-bench-") as name:
        times = [_first_rows_s(Path(name) / f"up-{number}", until_s) for number in range(UPS_QUICK if quick else UPS)]
        figures[FIRST_ROWS] = _reported("", FIRST_ROWS, max(times[1:]))
        with broker_process(Path(name) / "kafka") as servers:
            _fill_topic(servers, TOPIC, EVENTS_QUICK if quick else EVENTS)
            for database, url in _databases(Path(name)):
                settings = PipelineSettings(Path(name) / database, CLUSTER, servers, url("direct"), source_topic=TOPIC)
                measured = {"plain Python, events/s": _direct(settings)}
                steady, more = _streams(settings, url, until_s, quick)
                measured |= {STEADY[database]: steady, TO_PYTHON: steady / measured["plain Python, events/s"]} | more
                measured |= load(url("load"), SEGMENTS_QUICK if quick else SEGMENTS, until_s)
                figures |= {
                    f"{database}: {what}": _reported(f"{database}: ", what, value) for what, value in measured.items()
                }
    return figures


def _reported(where: str, what: str, value: float) -> float:
    print(f"  {where}{what}: {value:.2f}", file=sys.stderr, flush=True)
    return value


def _first_rows_s(folder: Path, until_s: float) -> float:
    """From the command to the first remote segments that the dashboard's tables have, the dashboard itself included."""
    up = UpProcess(folder / "data")
    began_s = time.monotonic()
    up.spawn()
    client = httpx.Client(timeout=1.0)  # one: each makes a TLS context, which the start would wait for
    try:
        while True:
            if time.monotonic() > until_s:
                raise NotMeasured(
                    f"`ebbline up` showed no remote segment; the pipeline's log ends:\n{up.log('pipeline')}"
                )
            if _serves(client, up) and _remote_segments(up.data / "ebbline.db") > 0:
                return time.monotonic() - began_s
            time.sleep(0.1)
    finally:
        client.close()
        up.stop()


def _serves(client: httpx.Client, up: UpProcess) -> bool:
    try:
        return client.get(f"{up.app_url}/_stcore/health").status_code == 200
    except httpx.HTTPError:
        return False


def _remote_segments(database: Path) -> int:
    engine = create_engine(f"sqlite:///{database}")
    try:
        with reading(engine) as connection:
            return int(connection.scalar(select(func.count()).select_from(t.segment)) or 0)
    finally:
        engine.dispose()


@contextmanager
def _server() -> Iterator[str | None]:
    try:
        with running_server(fsync=True) as server:
            yield server.url
    except NoPostgreSQL as reason:
        print(f"PostgreSQL was not measured: {reason}", file=sys.stderr)
        yield None


def _databases(folder: Path) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Name, and a function that gives the URL of a new, migrated database."""

    def sqlite(name: str) -> str:
        url = f"sqlite:///{folder / f'{name}.db'}"
        migrate.upgrade(url)
        return url

    yield "SQLite", sqlite
    with _server() as server:
        if server is None:
            return
        given = server

        def postgresql(name: str) -> str:
            url = new_database(given, name)
            migrate.upgrade(url)
            return url

        yield "PostgreSQL", postgresql


def _life(number: int, partition: int, at_ms: int) -> tuple[RemoteLogMetadata, RemoteLogMetadata]:
    """Begin and end of a copy: half of the events are segment records, half are updates."""
    tip = TopicIdPartition("orders", TOPIC_ID, partition)
    # As random as Kafka's, and the same for the same number.
    segment_id, start = blake2b(number.to_bytes(8, "big"), digest_size=16).digest(), 1_000 * number
    return (
        SegmentMetadata(
            tip, segment_id, start, start + 999, 1, at_ms, at_ms, ((0, 0),), 1 << 20, None,
            SegmentState.COPY_SEGMENT_STARTED,
        ),
        SegmentUpdate(tip, segment_id, 1, at_ms + 900, None, SegmentState.COPY_SEGMENT_FINISHED),
    )  # fmt: skip


def _records(segments: int) -> Iterator[RawRecord]:
    """Two records a segment, over 50 partitions of as many metadata partitions, in the course of a year."""
    ends = [0] * PARTITIONS
    for number in range(segments):
        partition, at_ms = number % PARTITIONS, BEGAN_MS + number * YEAR_MS // segments
        for event in _life(number, partition, at_ms):
            yield partition, ends[partition], at_ms, None, encode(event)
            ends[partition] += 1


def _fill_topic(servers: str, topic: str, events: int) -> None:
    create_topic(servers, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000})
    for partition, _, at_ms, _, value in _records(events // 2):
        producer.produce(topic, value=value, partition=partition, timestamp=at_ms)
        producer.poll(0)
    producer.flush(300)


def _streams(
    settings: PipelineSettings, url: Callable[[str], str], until_s: float, quick: bool
) -> tuple[float, Figures]:
    """The median of the steady rates of several loads; the other figures are of the last one."""
    loads, latency_s = (LOADS_QUICK, LATENCY_QUICK_S) if quick else (LOADS, LATENCY_S)
    rates: list[float] = []
    figures: Figures = {}
    for number in range(1, loads + 1):
        data_dir = settings.data_dir / f"load-{number}"
        of_load = replace(settings, data_dir=data_dir, database_url=url(f"stream{number}"))
        rate, figures = _stream(of_load, until_s, latency_s if number == loads else 0)
        rates.append(rate)
        print(f"  a load: {rate:.0f} events/s", file=sys.stderr, flush=True)
    return sorted(rates)[len(rates) // 2], figures


def _stream(settings: PipelineSettings, until_s: float, latency_s: int) -> tuple[float, Figures]:
    """The job as a process: from its start until everything is stored, then live events for so many seconds.

    Events/s steady, and more.
    """
    engine = create_engine(settings.database_url)
    total = _record_count(settings)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    started_s = time.perf_counter()
    with _job(settings) as process:
        stored = Stored(engine, process, settings.data_dir / "pipeline.log", TIMEOUT_S, until_s)
        first = stored.wait_for(1)
        first_s = time.perf_counter()
        stored.wait_for(total)
        end_s = time.perf_counter()
        figures = {"events/s including start": total / (end_s - started_s), "first rows after s": first_s - started_s}
        if latency_s:
            p50, p99 = _latency(settings, stored, total, latency_s)
            figures |= {PEAK: _peak_mb(process.pid), P50: p50, P99: p99}
    engine.dispose()
    return (total - first) / max(end_s - first_s, 1e-9), figures


def _record_count(settings: PipelineSettings) -> int:
    """Returns the number of records in the topic."""
    reader = DirectReader(settings, "bench", threading.Event())
    high = reader.high()
    reader.close()
    return sum(high.values())


@contextmanager
def _job(settings: PipelineSettings) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "EBBLINE_DATA_DIR": str(settings.data_dir),
        "EBBLINE_CLUSTER_ID": settings.cluster_id,
        "EBBLINE_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "EBBLINE_DATABASE_URL": settings.database_url,
        "EBBLINE_PIPELINE_TOPIC": settings.source_topic,
    }
    with open(settings.data_dir / "pipeline.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "spark.job"], env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


class Stored:
    """Returns the number of records in the database, while the pipeline's process lives."""

    def __init__(
        self, engine: Engine, process: subprocess.Popen[bytes], log: Path, patience_s: float, until_s: float
    ) -> None:
        self._engine, self._process, self._log = engine, process, log
        self._patience_s, self._until_s = patience_s, until_s

    def now(self) -> int:
        next_offset = t.source_offsets.c.next_offset
        with reading(self._engine) as connection:
            return int(connection.scalar(select(func.coalesce(func.sum(next_offset), 0))) or 0)

    def wait_for(self, at_least: int, pause_s: float = 0.1) -> int:
        """Returns the number once it is large enough; raises NotMeasured without progress, or too late."""
        last_stored, deadline_s = -1, 0.0
        while (now := self.now()) < at_least:
            if now != last_stored:
                last_stored, deadline_s = now, min(self._until_s, time.monotonic() + self._patience_s)
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                lines = self._log.read_text(errors="replace").splitlines()[-10:]
                raise NotMeasured(
                    "\n".join([f"{now} of {at_least} records were stored; the pipeline's log ends:", *lines])
                )
            time.sleep(pause_s)
        return now


def _latency(settings: PipelineSettings, stored: Stored, before: int, seconds: int) -> tuple[float, float]:
    """p50 and p99 of the time from produce() to the commit that moves the watermark, at 1,000 events a second."""
    count = seconds * LATENCY_EVENTS_PER_S
    sent: list[float] = []

    def produce() -> None:
        producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 1})
        begin = time.perf_counter()
        for number in range(count):
            ahead = begin + number / LATENCY_EVENTS_PER_S - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            sent.append(time.perf_counter())
            producer.produce(settings.source_topic, value=encode(_life(10**9 + number, 0, 1)[0]), partition=0)
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=produce)
    thread.start()
    latencies: list[float] = []
    while len(latencies) < count:  # one topic partition, so the watermark says which events are stored
        now = stored.wait_for(before + len(latencies) + 1, 0.005)
        now_s = time.perf_counter()
        latencies += [1000 * (now_s - sent[at]) for at in range(len(latencies), now - before)]
    thread.join()
    ordered = sorted(latencies)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]


def _peak_mb(group: int) -> float:
    """Sum of the peaks of all processes of the group: the most that they can have had together."""
    total_kb = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getpgid(int(status.parent.name)) == group:
                lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
                total_kb += int(lines.get("VmHWM", "0 kB").split()[0])
        except (OSError, ValueError):
            continue
    return total_kb / 1024


@tuned(GC_THRESHOLDS_OF_BATCHES)
def _direct(settings: PipelineSettings) -> float:
    engine = create_engine(settings.database_url)
    sink = LedgerSink(engine, cluster_id=CLUSTER, job=JOB, source_topic=settings.source_topic)
    reader = DirectReader(settings, "bench", threading.Event())
    until = reader.high()
    started_s = time.perf_counter()
    records = reader.copy(sink, until)
    rate = records / (time.perf_counter() - started_s)
    reader.close()
    engine.dispose()
    return rate


def load(url: str, segments: int, until_s: float = float("inf")) -> Figures:
    """Much metadata in the tables: sizes, and the time of each read of a page. Raises NotMeasured at ``until_s``."""
    engine = create_engine(url)
    sink = LedgerSink(engine, cluster_id=CLUSTER, job=JOB, source_topic="loaded")
    records, left, took_s = _records(segments), 2 * segments, 0.0
    with tuned(GC_THRESHOLDS_OF_BATCHES):
        while left:
            if time.monotonic() > until_s:
                raise NotMeasured(f"{left} of {2 * segments} events were not loaded in time")
            part = list(islice(records, LOAD_AT_ONCE))
            left -= len(part)
            batch = pa.Table.from_batches([to_batch(part)])
            started_s = time.perf_counter()
            sink.write(0, batch)
            took_s += time.perf_counter() - started_s
    figures = {
        "segments loaded": float(segments),
        "sink alone, events/s": 2 * segments / took_s,
        "database, MB per million events": _size_mb(engine) / (2 * segments / 1e6),
    }
    figures |= _sizes(engine, segments)
    _observe(engine, segments)
    slowest_ms = 0.0
    last = _life(segments - PARTITIONS + 7, 7, 0)[0]
    assert isinstance(last, SegmentMetadata)
    requested = queries(uuid_text(last.topic_id_partition.topic_id), uuid_text(last.segment_id), BEGAN_MS + YEAR_MS)
    gc.collect()
    with tuned(GC_THRESHOLDS):
        for name, query in requested.items():
            took_ms = _median_ms(engine, query)
            figures[f"query: {name}, ms"] = took_ms
            slowest_ms = max(slowest_ms, took_ms)
    figures["all that is remote, counted at its last moment, ms"] = _all_remote_ms(engine)
    engine.dispose()
    return figures | {SLOWEST: slowest_ms}


def _median_ms(engine: Engine, query: Callable[[Connection], object]) -> float:
    times = []
    for _ in range(5):
        with reading(engine) as connection:
            begin_s = time.perf_counter()
            query(connection)
            times.append(1000 * (time.perf_counter() - begin_s))
    return sorted(times)[2]


def _all_remote_ms(engine: Engine) -> float:
    """`ebbline pipeline at`, which no page asks: it reads every segment."""
    with reading(engine) as connection:
        begin_s = time.perf_counter()
        partitions = partitions_at(connection, CLUSTER, BEGAN_MS + 2 * YEAR_MS)
        took_ms = 1000 * (time.perf_counter() - begin_s)
    assert len(partitions) == PARTITIONS
    return took_ms


def _observe(engine: Engine, segments: int) -> None:
    """The samples that an observer has of these partitions: each three replicas, a hundredth of its segments local."""
    last = segments // PARTITIONS
    topic_id = uuid_text(TOPIC_ID)
    partitions, replicas = [], []
    for partition in range(PARTITIONS):
        end = 1_000 * (PARTITIONS * (last - 1) + partition + 1)
        local = max(1, end - 10 * PARTITIONS * last)
        partitions.append(
            PartitionSample(
                topic="orders", partition=partition, topic_id=topic_id, leader=1, leader_epoch=0, replicas=(1, 2, 3),
                isr=(1, 2, 3), tiered=True, log_start_offset=0, local_log_start_offset=local,
                latest_tiered_offset=end - 1, earliest_pending_upload_offset=end, high_watermark=end + 500,
                log_end_offset=end + 500, local_log_bytes=(end + 500 - local) * 1_000,
            )
        )  # fmt: skip
        replicas += [
            ReplicaSample(
                topic="orders", partition=partition, broker_id=broker, role="leader" if broker == 1 else "follower",
                in_isr=True, leader_epochs=((0, 0),), log_start_offset=0, local_log_start_offset=local,
                latest_tiered_offset=end - 1, log_end_offset=end + 500, local_log_bytes=(end + 500 - local) * 1_000,
            )
            for broker in (1, 2, 3)
        ]  # fmt: skip
    SampleWriter(engine, CLUSTER).write(partitions, replicas, BEGAN_MS + YEAR_MS)


def _size_mb(engine: Engine) -> float:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            return int(pages) * int(connection.execute(text("PRAGMA page_size")).scalar_one()) / 1e6
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()) / 1e6


def _sizes(engine: Engine, segments: int) -> Figures:
    """MB of each table with its indexes, per million events."""
    figures: Figures = {}
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("ANALYZE"))
            sql = """SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c
                     JOIN pg_namespace n ON n.oid = c.relnamespace
                     WHERE c.relkind = 'r' AND n.nspname = current_schema()"""
        else:
            sql = """SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name
                     WHERE s.aggregate = 1 GROUP BY m.tbl_name"""
        try:
            rows = connection.execute(text(sql)).all()
        except OperationalError:
            return figures  # a SQLite that was built without the table of sizes
    sizes: Counter[str] = Counter()
    for name, size in rows:
        sizes["segment_event" if is_part(name) else name] += int(size)
    for name, size in sizes.items():
        if size / 2 / segments >= 1:  # bytes an event
            figures[f"table {name}, MB per million events"] = float(size) / 2 / segments
    return figures
