"""Stores a batch: events, ledger, summaries, quarantine and the offset watermark in one transaction.

Exactly once: ``source_offsets`` says per topic partition which offset comes next; rows below it
are already stored and are dropped, and the watermark moves in the transaction that stores the
rows. So a replayed batch, a lost checkpoint, a killed process or a second job can neither lose
nor double a row. A large batch is committed in several transactions (each moves the watermark
by its own rows), which keeps the database's write lock short.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Engine, delete, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.store import tables as t
from backend.store.connection.database import reading, writing
from backend.store.connection.database_faults import diagnose
from backend.store.history import event_months
from backend.store.queries.pipeline import stored_offsets
from backend.store.writes.cluster_rows import data_changed
from spark.ledger import (
    PARTITION_COLUMNS,
    SEGMENT_COLUMNS,
    IntervalRow,
    Ledger,
    PartitionTotals,
    SegmentRow,
    partition_keys,
    segment_keys,
)
from spark.reading import TopicRecreated
from spark.schemas import EVENT_COLUMNS
from spark.sinks import bulk_for
from spark.sinks.chunk import Chunk, Followed, chunk_of, complete, ledger_rows, partition_rows, with_reasons

log = logging.getLogger(__name__)

T = TypeVar("T")

PROCESS: Final = "pipeline"
# The lock is held for about 300 ms (500 ms are promised): at 20,000 to 50,000 rows a second that
# is 6,000 to 15,000 rows; the sink measures and adapts between the two ends.
LOCK_TARGET_MS: Final = 300
CHUNK_ROWS_FIRST, CHUNK_ROWS_MIN, CHUNK_ROWS_MAX = 4_000, 500, 20_000
# PostgreSQL looks once a minute at what its tables hold; meanwhile a year of metadata may be loaded, and pages are read
# for seconds by plans for empty tables. So it looks after so many records, and whenever they are four times as many:
# 0.1 to 0.3 s each time.
ANALYZE_FIRST_RECORDS, ANALYZE_GROWTH = 20_000, 4
ANALYZED: Final = (t.segment, t.segment_interval, t.remote_partition)
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
BATCH_HISTORY_MS: Final = 3_600_000  # about five batches a second: 18,000 rows of history at most

_LOG_ORDER: Final = [("metadata_partition", "ascending"), ("metadata_offset", "ascending")]
_QUARANTINE_COLUMNS: Final = (
    "cluster_id", "topic", "partition", "offset", "reason", "key", "value", "record_timestamp_ms", "ingested_ms"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Keys:
    cluster_id: str
    names: tuple[str, ...]
    values: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Written:
    """The rows that one transaction stored."""

    records: int
    replayed: int
    illegal: int
    quarantined: int
    newest_event_ms: int | None
    next_offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Records, in log order where there is a first chunk of them."""

    records: pa.Table
    first: Chunk | None


class Stopped(Exception):
    """The job was asked to stop while it waited for the database."""


class DatabaseWentBack(Exception):
    """The database lacks what was stored in it: it was restored, or a standby took over that had not all of it."""


class LedgerSink:
    """Writes batches of records (`spark.schemas.RECORD_ARROW`).

    ``now_ms`` is the wall clock. One thread writes, another may look at what is stored meanwhile.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        cluster_id: str,
        job: str,
        source_topic: str,
        stop: threading.Event | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._engine = engine
        self._bulk = bulk_for(engine)
        self._cluster_id = cluster_id
        self._job = job
        self._source_topic = source_topic
        self._stop = stop or threading.Event()
        self._now_ms = now_ms
        self._ahead = ThreadPoolExecutor(1, "pipeline chunk")  # makes the next chunk ready
        self._chunk_rows = CHUNK_ROWS_FIRST
        self._pruned_ms = 0
        self._records, self._analyze_at = 0, ANALYZE_FIRST_RECORDS
        self._reached: dict[int, int] = {}
        self._faults: dict[str, str] = {}

    @property
    def fault(self) -> str | None:
        """The fault that the sink waits out, in words; None while it waits for nothing."""
        return next(iter(self._faults.copy().values()), None)

    def next_offsets(self) -> dict[int, int]:
        """The offset each topic partition continues at, as the database has it. Waits as `write` does."""
        self._reached = self._patiently("the offsets to continue at", self._read_offsets)
        return dict(self._reached)

    def require_stored(self) -> None:
        """Raises DatabaseWentBack when the database has less than it had for this sink. Waits as `write` does."""
        reached = self._reached
        require_reached(reached, self._patiently("the offsets that were stored", self._read_offsets))

    def claim_topic(self, topic_id: str | None) -> None:
        """Note which topic the ledger is made of; raises TopicRecreated when it was made of another one.

        None, of brokers that know no topic ids, is taken for the same. Waits as `write` does.
        """
        if topic_id is None:
            return
        table, key = t.source_topic, (self._cluster_id, self._job, self._source_topic)

        def claim() -> str:
            with reading(self._engine) as connection:
                of_job = (table.c.cluster_id == key[0], table.c.job == key[1], table.c.topic == key[2])
                claimed = connection.scalar(select(table.c.topic_id).where(*of_job))
            if claimed is None:
                with writing(self._engine) as connection:
                    self._bulk.insert(connection, table, table.c.keys(), [(*key, topic_id)], "leave")
            return str(claimed or topic_id)

        claimed = self._patiently("the topic of the ledger", claim)
        if claimed != topic_id:
            raise TopicRecreated(self._source_topic, claimed, topic_id)

    def close(self) -> None:
        """Nothing is written any more, and nothing uses the database once this returns."""
        self._bulk.close()

    def ready(self, records: pa.Table) -> Batch:
        """The first step of `write`: for a thread that has time while another batch is stored."""
        ordered = records.sort_by(_LOG_ORDER)
        return Batch(ordered, self._prepare(ordered, 0))

    def write(self, batch_id: int, records: pa.Table | Batch) -> list[Written]:
        """Store a batch, in any order; returns one entry per transaction.

        Each transaction stores a stretch of every topic partition that it touches, so what was committed when
        something fails is a prefix of each.

        Waits, with `fault` set, while the database is locked or away, and raises Stopped when
        asked to stop meanwhile; what was committed until then stays and is not written again.
        Raises DatabaseWentBack rather than leave out what the database has lost since the batch was read.
        """
        batch = records if isinstance(records, Batch) else self.ready(records)
        written: list[Written] = []
        chunk, position = batch.first, 0
        while chunk is not None:
            position += chunk.records.num_rows
            more = position < batch.records.num_rows
            coming = self._ahead.submit(self._prepare, batch.records, position) if more else None
            written.append(self._store_chunk(batch_id, chunk))
            chunk = None if coming is None else coming.result()
        return written

    def _prepare(self, records: pa.Table, position: int) -> Chunk | None:
        part = records.slice(position, self._chunk_rows)
        return chunk_of(self._cluster_id, part, {}, trusting=True) if part.num_rows else None

    def _store_chunk(self, batch_id: int, chunk: Chunk) -> Written:
        took_ms = 0.0

        def store() -> Written:
            nonlocal took_ms
            started_s = time.monotonic()
            written = trusting_first(lambda trusting: self._store(batch_id, chunk, trusting=trusting))
            took_ms = (time.monotonic() - started_s) * 1000
            return written

        written = self._patiently(f"batch {batch_id}", store)
        self._adapt(chunk.records.num_rows, took_ms)
        return self._committed(written)

    def _committed(self, written: Written) -> Written:
        self._reached = written.next_offsets
        self._records += written.records
        self._bulk.stored(self._engine, written.records)
        if self._records >= self._analyze_at:
            self._patiently("the statistics of the tables", self._analyze)
            self._analyze_at = ANALYZE_GROWTH * self._records
        return written

    def _analyze(self) -> None:
        with writing(self._engine) as connection:
            self._bulk.analyze(connection, ANALYZED)

    def _patiently(self, what: str, work: Callable[[], T]) -> T:
        """The result of ``work``, tried again while the database is locked or away; Stopped when asked to stop."""
        delay_s = RETRY_FIRST_S
        while True:
            try:
                result = work()
            except (DBAPIError, PoolTimeout) as error:
                diagnosis = diagnose(error)
                if diagnosis is None:
                    raise
                fault = f"the database {diagnosis.what}"
                self._faults[what] = fault  # by its name: a full disk can still be read, which ends no other's wait
                log.warning("pipeline %s: %s; trying again in %.1f s", what, fault, delay_s)
                if self._stop.wait(delay_s):
                    raise Stopped from error
                delay_s = min(2 * delay_s, RETRY_MAX_S)
            else:
                self._faults.pop(what, None)
                return result

    def _adapt(self, rows: int, took_ms: float) -> None:
        """For the chunk after the next, which is cut already."""
        if rows == self._chunk_rows or took_ms > LOCK_TARGET_MS:
            fitting = int(rows * LOCK_TARGET_MS / max(took_ms, 1.0))
            # At most twice as large a step: one lucky transaction says little.
            self._chunk_rows = max(CHUNK_ROWS_MIN, min(CHUNK_ROWS_MAX, fitting, 2 * self._chunk_rows))

    def _store(self, batch_id: int, chunk: Chunk, *, trusting: bool) -> Written:
        started_ms = self._now_ms()
        with writing(self._engine) as connection:
            self._bulk.lock(connection, self._cluster_id, self._job)
            before = self._load_offsets(connection)
            require_reached(self._reached, before)
            if not trusting or not chunk.fits(before):
                chunk = chunk_of(self._cluster_id, chunk.records, before, trusting=trusting)
            illegal = self._store_events(connection, chunk)
            quarantined = [self._quarantine_row(row, started_ms) for row in chunk.unreadable]
            self._bulk.insert(connection, t.quarantine, _QUARANTINE_COLUMNS, quarantined, "leave")
            next_offsets = before | chunk.next_offsets
            self._store_offsets(connection, before, next_offsets, started_ms)
            written = Written(
                records=len(chunk.rows) + len(quarantined),
                replayed=chunk.replayed,
                illegal=illegal,
                quarantined=len(quarantined),
                newest_event_ms=max(chunk.times_ms, default=None),
                next_offsets=next_offsets,
            )
            self._note_batch(connection, batch_id, written, started_ms)
        return written

    def _store_events(self, connection: Connection, chunk: Chunk) -> int:
        """How many events may not follow."""
        event_months.ensure(connection, chunk.times_ms, self._now_ms())
        reasons = self._apply(connection, chunk.followed)
        columns = ("cluster_id", *EVENT_COLUMNS, "legal", "illegal_reason")
        self._bulk.insert(connection, t.segment_event, columns, with_reasons(chunk.rows, reasons), "leave")
        return len(reasons)

    def _apply(self, connection: Connection, followed: Followed) -> dict[int, str]:
        """Store what the events make of the ledger; why which may not follow. IntegrityError: trust was misplaced."""
        cluster_id, insert = self._cluster_id, self._bulk.insert
        ledger = self._load_ledger(connection, followed)
        reasons = complete(followed, ledger)
        segments, intervals = ledger_rows(cluster_id, ledger)
        names = ("cluster_id", *SEGMENT_COLUMNS)
        insert(connection, t.segment, names, followed.segments, "raise")
        insert(connection, t.segment, names, segments, "replace")
        names = ("cluster_id", *IntervalRow._fields)
        insert(connection, t.segment_interval, names, followed.intervals, "raise")
        insert(connection, t.segment_interval, names, intervals, "replace")
        names = ("cluster_id", *PARTITION_COLUMNS)
        insert(connection, t.remote_partition, names, partition_rows(cluster_id, ledger), "replace")
        return reasons

    def _load_ledger(self, connection: Connection, followed: Followed) -> Ledger:
        """The rows of the segments of waiting events, and of the partitions of all."""
        ledger = Ledger()
        waiting = followed.waiting.values()
        names = ("topic_id", "partition", "segment_id")
        keys = _Keys(self._cluster_id, names, sorted(segment_keys(waiting)))
        for row in self._bulk.load(connection, t.segment, SEGMENT_COLUMNS, keys):
            segment = SegmentRow(*row)
            ledger.segments[(segment.topic_id, segment.partition, segment.segment_id)] = segment
        keys = _Keys(self._cluster_id, names[:2], sorted(partition_keys(waiting) | followed.added.keys()))
        for row in self._bulk.load(connection, t.remote_partition, PARTITION_COLUMNS, keys):
            partition = PartitionTotals(*row)
            ledger.partitions[(partition.topic_id, partition.partition)] = partition
        return ledger

    def _quarantine_row(self, row: tuple[Any, ...], now_ms: int) -> tuple[Any, ...]:
        partition, offset, timestamp_ms = row[:3]
        problem, key, value = row[len(EVENT_COLUMNS) :]
        return (self._cluster_id, self._source_topic, partition, offset, problem, key, value, timestamp_ms, now_ms)

    def _read_offsets(self) -> dict[int, int]:
        with reading(self._engine) as connection:
            return self._load_offsets(connection)

    def _load_offsets(self, connection: Connection) -> dict[int, int]:
        return stored_offsets(connection, self._cluster_id, self._job, self._source_topic)

    def _store_offsets(
        self, connection: Connection, before: dict[int, int], after: dict[int, int], now_ms: int
    ) -> None:
        columns = ("cluster_id", "job", "topic", "partition", "next_offset", "updated_ms")
        moved = [
            (self._cluster_id, self._job, self._source_topic, partition, next_offset, now_ms)
            for partition, next_offset in sorted(after.items())
            if before.get(partition) != next_offset
        ]
        self._bulk.insert(connection, t.source_offsets, columns, moved, "replace")

    def _note_batch(self, connection: Connection, batch_id: int, written: Written, started_ms: int) -> None:
        now_ms = self._now_ms()
        row = {
            "cluster_id": self._cluster_id,
            "job": self._job,
            "batch_id": batch_id,
            "records": written.records,
            "replayed_records": written.replayed,
            "illegal_events": written.illegal,
            "quarantined_records": written.quarantined,
            "newest_event_ms": written.newest_event_ms,
            "started_ms": started_ms,
            "finished_ms": now_ms,
        }
        connection.execute(insert(t.pipeline_batch), row)
        if written.records:
            data_changed(connection, self._cluster_id, PROCESS)
        if now_ms - self._pruned_ms > BATCH_HISTORY_MS // 60:
            table = t.pipeline_batch
            old = table.c.finished_ms < now_ms - BATCH_HISTORY_MS
            connection.execute(delete(table).where(table.c.cluster_id == self._cluster_id, old))
            self._pruned_ms = now_ms


def trusting_first(store: Callable[[bool], T]) -> T:
    """The result of ``store`` when it trusts the events, or else, from the beginning, when it looks at all rows.

    Raises IntegrityError when the database refuses that too.
    """
    try:
        return store(True)
    except IntegrityError as error:
        first_line = str(error.orig).strip().splitlines()[0]
        log.info("pipeline: a row was not as new as it seemed, all are looked up: %s", first_line)
        return store(False)


def require_reached(reached: dict[int, int], now: dict[int, int]) -> None:
    """Offsets only grow: who has less has lost what lies between, and a batch that begins later must not hide it."""
    for partition, offset in sorted(reached.items()):
        if now.get(partition, 0) < offset:
            raise DatabaseWentBack(
                f"the database was put back: it has read partition {partition} of the topic up to offset "
                f"{now.get(partition, 0)}, and had read it up to {offset}"
            )
