"""A new ledger from the topic (`ebbline pipeline rebuild`): the way out after a gap, or of a doubtful ledger.

Records that the topic has lost are lost to the ledger, too; those that it still holds are read. The new ledger is built
beside the live one, under another cluster id in the same tables, and takes its place in one transaction: pages show the
old one until then. A pipeline may go on meanwhile: the new ledger takes over only when it has read at least as far, and
the running one reads its offsets from the database with every batch.

The swap rewrites the keys of all rows. On SQLite it holds the write lock for that time; the observer keeps its rounds
and writes them afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, Table, delete, func, select, update

from backend.store import migrate
from backend.store import tables as t
from backend.store.connection.database import reading, writing
from backend.store.connection.limits import PIPELINE
from backend.store.queries.pipeline import stored_offsets
from backend.store.writes.cluster_rows import data_changed
from spark.direct import DirectReader, ReportProgress
from spark.lock import only_one
from spark.settings import JOB, PipelineSettings
from spark.sinks import bulk_for
from spark.sinks.ledger_sink import ANALYZED, PROCESS, LedgerSink

# Everything that was made of the topic's records, and the offsets that say how far it was read.
LEDGER: Final[tuple[Table, ...]] = (
    t.segment_event, t.segment, t.segment_interval, t.remote_partition, t.quarantine, t.source_offsets,
    t.source_topic, t.pipeline_batch,
)  # fmt: skip
CATCH_UPS_MAX: Final = 20


class NotCaughtUp(Exception):
    """The running pipeline was ahead at every attempt. The message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result: events of the former ledger and of the new one."""

    records: int
    events_before: int
    events_after: int


def rebuild(
    settings: PipelineSettings, stop: threading.Event, report_progress: ReportProgress | None = None
) -> Rebuilt:
    """Build a ledger from the topic's beginning and put it in the place of the live one.

    Raises Busy while another rebuild of the data folder runs, Stopped when asked to stop (the live ledger is as it
    was), StoreError, BrokersAway, TopicMissing, MetadataGap, NotCaughtUp.
    """
    beside = f"{settings.cluster_id}~rebuild"
    engine = migrate.open_current(settings.database_url, PIPELINE, name="pipeline")
    reader = DirectReader(settings, "rebuild", stop)
    try:
        with only_one(settings.spark_dir / "rebuild"):
            forget(engine, beside)  # of one that was killed
            try:
                sink = LedgerSink(engine, cluster_id=beside, job=JOB, source_topic=settings.source_topic, stop=stop)
                return _build_and_swap(engine, settings, beside, sink, reader, report_progress)
            finally:
                forget(engine, beside)
    finally:
        reader.close()
        engine.dispose()


def _build_and_swap(
    engine: Engine,
    settings: PipelineSettings,
    beside: str,
    sink: LedgerSink,
    reader: DirectReader,
    report_progress: ReportProgress | None,
) -> Rebuilt:
    records = 0
    live, topic = settings.cluster_id, settings.source_topic
    sink.claim_topic(reader.topic_id())
    for _ in range(CATCH_UPS_MAX):
        # In this order: who has read beyond an end that is asked afterwards has read another topic of this name.
        with reading(engine) as connection:
            read = stored_offsets(connection, live, JOB, topic)
        high = reader.high()
        gone = {partition for partition, offset in read.items() if offset > high.get(partition, 0)}
        records += reader.copy(sink, high, report_progress)
        swapped = _swap(engine, live, beside, topic, gone)
        if swapped is not None:
            return Rebuilt(records, *swapped)
    raise NotCaughtUp("The pipeline reads faster than the rebuild: stop it for the moment, then try again.")


def _swap(engine: Engine, live: str, beside: str, topic: str, gone: Set[int]) -> tuple[int, int] | None:
    """Put the rows of ``beside`` in the place of the live ones; their events before and after.

    None, and nothing done, while the live ledger is ahead: the pipeline would miss what lies between. In the topic
    partitions ``gone`` it is ahead of the topic itself, which was recreated, and its pipeline stands.
    """
    with writing(engine) as connection:
        bulk_for(engine).lock(connection, live, JOB)
        rebuilt_offsets, live_offsets = (
            stored_offsets(connection, beside, JOB, topic),
            stored_offsets(connection, live, JOB, topic),
        )
        if any(rebuilt_offsets.get(p, 0) < offset for p, offset in live_offsets.items() if p not in gone):
            return None
        before, after = _events(connection, live), _events(connection, beside)
        for table in LEDGER:
            if table is not t.pipeline_batch:  # the history of the live job's batches is its own
                connection.execute(delete(table).where(table.c.cluster_id == live))
                connection.execute(update(table).where(table.c.cluster_id == beside).values(cluster_id=live))
        bulk_for(engine).analyze(connection, ANALYZED)  # what was known of them is of the other cluster id
        data_changed(connection, live, PROCESS)
        return before, after


def _events(connection: Connection, cluster_id: str) -> int:
    events = t.segment_event
    counted = select(func.count()).select_from(events).where(events.c.cluster_id == cluster_id)
    return int(connection.execute(counted).scalar_one())


def forget(engine: Engine, cluster_id: str) -> int:
    """Delete a cluster's ledger in one transaction; returns how many events it held."""
    with writing(engine) as connection:
        forgotten = _events(connection, cluster_id)
        for table in LEDGER:
            connection.execute(delete(table).where(table.c.cluster_id == cluster_id))
        data_changed(connection, cluster_id, PROCESS)
        return forgotten


def forget_ledger(spark_dir: Path, database_url: str, cluster_id: str) -> int:
    """Delete the ledger, so that the pipeline reads the topic from its beginning; needs no broker.

    Raises Busy while a pipeline runs in the data folder, StoreError for a database that cannot be used.
    """
    engine = migrate.open_current(database_url, PIPELINE, name="pipeline")
    try:
        with only_one(spark_dir):
            return forget(engine, cluster_id)
    finally:
        engine.dispose()
