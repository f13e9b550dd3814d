"""The sink of a Spark cluster: executors COPY what they read into PostgreSQL, the driver stores it from there.

Each try of each task leaves its rows in ``staged_record`` under another name and sends the driver that name and how
many they are. The driver stores the named rows with the offsets in one transaction, as `LedgerSink` does with rows that
it has itself, and removes them; so rows that a lost executor or a task that ran twice left are never counted, and are
removed when the pipeline starts. The rows of events go from table to table; the driver reads their fields 4,000 at a
time, for the ledger. PostgreSQL only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType
from sqlalchemy import Connection, delete, func, select, text, tuple_

from backend.store import tables as t
from backend.store.connection.database import create_engine, writing
from backend.store.connection.limits import PIPELINE
from backend.store.history import event_months
from spark.ledger import Event
from spark.packed import unpack
from spark.schemas import EVENT_COLUMNS, RECORD_COLUMNS
from spark.sinks.bulk import quoted
from spark.sinks.chunk import follow
from spark.sinks.ledger_sink import Batch, LedgerSink, Written, require_reached, trusting_first
from spark.sinks.postgresql import PostgresqlBulk

MANIFEST_SCHEMA: Final = StructType([StructField("attempt", StringType(), False), StructField("records", LongType())])
_MANIFEST_ARROW: Final = pa.schema([pa.field("attempt", pa.string(), False), pa.field("records", pa.int64())])
_STAGED: Final = ("attempt", "cluster_id", "job", *RECORD_COLUMNS)
FOLLOWED_AT_ONCE: Final = 4_000
# All of the key of events on PostgreSQL: by fewer of its columns it would be searched, and each month's.
_KEY: Final = ("topic_id", "partition", "metadata_offset", "metadata_partition", "event_timestamp_ms")
_ILLEGAL: Final = (
    "UPDATE segment_event SET legal = false, illegal_reason = :why WHERE cluster_id = :c AND "
    + " AND ".join(f"{name} = :{name}" for name in _KEY)
)


class StagedRowsLost(Exception):
    """Rows that an executor stored are not there: the database was restored, or another pipeline of the job began."""


class Stager:
    """Runs in a task: stores its records, which come packed (`spark.packed`), and gives back one row that names them.

    It takes the database's URL along.
    """

    def __init__(self, url: str, cluster_id: str, job: str) -> None:
        self._url, self._cluster_id, self._job = url, cluster_id, job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt, records = uuid4().hex, 0
        engine = create_engine(self._url, PIPELINE, name="pipeline")
        try:
            with writing(engine) as connection:
                # Value by value: all of a task's are a batch of Spark's, and may be hundreds of thousands of records.
                for packed in (batch.slice(at, 1) for batch in batches for at in range(batch.num_rows)):
                    columns = (column.to_pylist() for column in unpack([packed]).columns)
                    rows = [(attempt, self._cluster_id, self._job, *row) for row in zip(*columns, strict=True)]
                    PostgresqlBulk().insert(connection, t.staged_record, _STAGED, rows, "leave")
                    records += len(rows)
        finally:
            engine.dispose()
        if records:
            yield pa.RecordBatch.from_pylist([{"attempt": attempt, "records": records}], schema=_MANIFEST_ARROW)


class StagedLedgerSink(LedgerSink):
    """Stores batches that executors have staged; a batch is the rows that `Stager` gave back."""

    def next_offsets(self) -> dict[int, int]:
        """As of `LedgerSink`, and removes what earlier streams staged and never stored."""
        table = t.staged_record

        def clear() -> None:
            with writing(self._engine) as connection:
                of_job = (table.c.cluster_id == self._cluster_id, table.c.job == self._job)
                connection.execute(delete(table).where(*of_job))

        self._patiently("rows that were staged before", clear)
        return super().next_offsets()

    def ready(self, records: pa.Table) -> Batch:
        """The rows that name what was staged, as they are."""
        return Batch(records, None)

    def write(self, batch_id: int, records: pa.Table | Batch) -> list[Written]:
        """Store a batch in one transaction. Waits and raises as `LedgerSink.write`, and raises StagedRowsLost."""
        batch = records if isinstance(records, Batch) else self.ready(records)
        manifest = {str(row["attempt"]): int(row["records"]) for row in batch.records.to_pylist()}

        def store() -> Written:
            return trusting_first(lambda trusting: self._merge(batch_id, manifest, trusting=trusting))

        return [self._committed(self._patiently(f"batch {batch_id}", store))]

    def _merge(self, batch_id: int, manifest: dict[str, int], *, trusting: bool) -> Written:
        started_ms = self._now_ms()
        with writing(self._engine) as connection:
            self._bulk.lock(connection, self._cluster_id, self._job)
            before = self._load_offsets(connection)
            require_reached(self._reached, before)
            replayed = self._drop_stored(connection, manifest, before)
            fresh = sum(manifest.values()) - replayed
            table, of_attempts = t.staged_record, t.staged_record.c.attempt.in_(list(manifest))
            ends = connection.execute(
                select(table.c.metadata_partition, func.max(table.c.metadata_offset) + 1, func.count(),
                       func.max(table.c.event_timestamp_ms), func.count(table.c.problem))
                .where(of_attempts).group_by(table.c.metadata_partition)
            ).all()  # fmt: skip
            if sum(row[2] for row in ends) != fresh:
                raise StagedRowsLost(f"{sum(row[2] for row in ends)} of {fresh} staged records of batch {batch_id}")
            illegal = self._move(connection, list(manifest), started_ms, trusting=trusting)
            connection.execute(delete(table).where(of_attempts))
            next_offsets = before | {row[0]: row[1] for row in ends}
            self._store_offsets(connection, before, next_offsets, started_ms)
            newest = max((row[3] for row in ends if row[3] is not None), default=None)
            written = Written(fresh, replayed, illegal, sum(row[4] for row in ends), newest, next_offsets)
            self._note_batch(connection, batch_id, written, started_ms)
        return written

    def _drop_stored(self, connection: Connection, manifest: dict[str, int], before: dict[int, int]) -> int:
        """Remove staged rows that are stored already; how many."""
        table, dropped = t.staged_record, 0
        for partition, offset in before.items():
            stored = (table.c.metadata_partition == partition, table.c.metadata_offset < offset)
            dropped += connection.execute(delete(table).where(table.c.attempt.in_(list(manifest)), *stored)).rowcount
        return dropped

    def _move(self, connection: Connection, attempts: list[str], now_ms: int, *, trusting: bool) -> int:
        """Staged rows into the tables of events and of what cannot be read; how many events may not follow."""
        table = t.staged_record
        events = (table.c.attempt.in_(attempts), table.c.problem.is_(None))
        # A day is fine enough: months are made of days.
        day = table.c.event_timestamp_ms / event_months.DAY_MS
        days = connection.scalars(select(func.floor(day)).where(*events).distinct())
        event_months.ensure(connection, (int(number) * event_months.DAY_MS for number in days), now_ms)
        names = ", ".join(quoted(EVENT_COLUMNS))
        given = names.replace('"leader_epochs"', '"leader_epochs"::jsonb')
        parameters = {"c": self._cluster_id, "a": attempts, "topic": self._source_topic, "now": now_ms}
        connection.execute(
            text(
                f"INSERT INTO segment_event (cluster_id, {names}, legal) SELECT :c, {given}, true FROM staged_record "
                "WHERE attempt = ANY(:a) AND problem IS NULL ON CONFLICT DO NOTHING"
            ),
            parameters,
        )
        connection.execute(
            text(
                'INSERT INTO quarantine (cluster_id, topic, partition, "offset", reason, "key", "value", '
                "record_timestamp_ms, ingested_ms) SELECT :c, :topic, metadata_partition, metadata_offset, problem, "
                "raw_key, raw_value, record_timestamp_ms, :now FROM staged_record "
                "WHERE attempt = ANY(:a) AND problem IS NOT NULL ON CONFLICT DO NOTHING"
            ),
            parameters,
        )
        return sum(self._flag(connection, part, trusting=trusting) for part in _in_order(connection, events))

    def _flag(self, connection: Connection, events: list[Event], *, trusting: bool) -> int:
        """Let the ledger follow some events and flag those that it does not; how many."""
        followed = follow(self._cluster_id, dict(enumerate(events)), trusting=trusting)
        reasons = self._apply(connection, followed)
        illegal = [
            {"c": self._cluster_id, "why": why} | {name: getattr(events[at], name) for name in _KEY}
            for at, why in reasons.items()
        ]
        if illegal:
            connection.execute(text(_ILLEGAL), illegal)
        return len(illegal)


def _in_order(connection: Connection, where: tuple[Any, ...]) -> Iterator[list[Event]]:
    """Staged events by partition and offset, some at a time."""
    table = t.staged_record
    place = tuple_(table.c.metadata_partition, table.c.metadata_offset)
    query = (
        select(*(table.c[name] for name in EVENT_COLUMNS))
        .where(*where)
        .order_by(table.c.metadata_partition, table.c.metadata_offset)
        .limit(FOLLOWED_AT_ONCE)
    )
    part = connection.execute(query).all()
    while part:
        yield [Event._make(row) for row in part]
        part = connection.execute(query.where(place > tuple_(part[-1][0], part[-1][1]))).all()
