"""Is the ledger true? (`ebbline pipeline verify`)

The topic is read again from its beginning into a throw-away ledger (SQLite, in the data folder), up to where the live
ledger has read, and the two are compared partition by partition; then the live ledger with the files of the remote
tier. Nothing of the live database is written. Memory: the segments of one partition twice, and its files.

A topic that has lost its beginning cannot tell of old segments, and a ledger whose history has a limit not of deleted
ones: such are counted, not called wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, select

from backend.store import migrate
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading
from backend.store.connection.limits import PIPELINE
from backend.store.queries.pipeline import stored_offsets
from backend.tiering.segment_state import SegmentState
from spark.direct import DirectReader, ReportProgress
from spark.lock import only_one
from spark.remote_folder import RemoteFile, RemoteFolder
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink

FINDINGS_MAX: Final = 100  # each is a line for a person; the counts go on
# A file younger than this may be of a copy whose events the pipeline has not read yet.
SETTLED_MS: Final = 60_000
_FINISHED: Final = int(SegmentState.COPY_SEGMENT_FINISHED)
_GONE: Final = int(SegmentState.DELETE_SEGMENT_FINISHED)
_COMPARED: Final = (
    "topic", "start_offset", "end_offset", "state", "segment_size_bytes", "max_timestamp_ms", "leader_epochs",
    "custom_metadata", "txn_index_empty", "copy_broker_id", "broker_id", "copy_started_ms", "copy_finished_ms",
    "delete_started_ms", "delete_finished_ms", "metadata_partition", "last_event_offset",
)  # fmt: skip
Partition = tuple[str, int]
Segments = dict[str, tuple[Any, ...]]


@dataclass(slots=True)
class Report:
    """The counts of what was compared and what differs. ``findings`` are sentences, the first `FINDINGS_MAX`."""

    records: int = 0
    segments: int = 0
    older_than_topic: int = 0
    older_than_history: int = 0
    files: int | None = None
    differences: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, sentence: str) -> None:
        self.differences += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(sentence)


def verify(
    settings: PipelineSettings, remote: str | None, stop: threading.Event, report_progress: ReportProgress | None = None
) -> Report:
    """Compare topic, ledger and, unless ``remote`` is None, the remote tier at that location.

    Raises Busy, Stopped, StoreError, BrokersAway, TopicMissing, RemoteFolderError.
    """
    report = Report()
    folder = settings.spark_dir / "verify"
    engine = migrate.open_current(settings.database_url, PIPELINE, name="pipeline")
    reader = DirectReader(settings, "verify", stop)
    try:
        with only_one(folder):
            _remove(folder)
            try:
                again = _read_again(settings, folder, engine, reader, stop, report_progress, report)
                try:
                    with reading(engine) as live, reading(again) as fresh:
                        _compare_ledgers(live, fresh, settings, reader.low(), report)
                finally:
                    again.dispose()
            finally:
                _remove(folder)
        if remote is not None:
            _compare_files(engine, settings.cluster_id, RemoteFolder(remote), report)
        return report
    finally:
        reader.close()
        engine.dispose()


def _remove(folder: Path) -> None:
    for file in folder.glob("ledger.db*"):
        file.unlink(missing_ok=True)  # SQLite takes two of them away itself, with the last connection


def _read_again(
    settings: PipelineSettings,
    folder: Path,
    engine: Engine,
    reader: DirectReader,
    stop: threading.Event,
    report_progress: ReportProgress | None,
    report: Report,
) -> Engine:
    """The throw-away ledger, read as far as the live one was when this began."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    migrate.upgrade(url)
    with reading(engine) as connection:
        until = stored_offsets(connection, settings.cluster_id, JOB, settings.source_topic)
    high = reader.high()
    for partition, offset in until.items():
        if offset > high.get(partition, 0):
            report.add(
                f"{settings.source_topic}-{partition} ends at offset {high.get(partition, 0)} and the ledger has read "
                f"it up to {offset}: the topic was recreated or lost records."
            )
    again = create_engine(url, PIPELINE, name="pipeline")
    sink = LedgerSink(again, cluster_id=settings.cluster_id, job=JOB, source_topic=settings.source_topic, stop=stop)
    try:
        report.records = reader.copy(
            sink, {p: min(offset, high.get(p, 0)) for p, offset in until.items()}, report_progress
        )
    finally:
        sink.close()
    return again


def _compare_ledgers(
    live: Connection, fresh: Connection, settings: PipelineSettings, low: dict[int, int], report: Report
) -> None:
    """Segments, counts and intervals of every partition. Rows that the live ledger has read since are left out."""
    cluster_id = settings.cluster_id
    read_to = stored_offsets(fresh, cluster_id, JOB, settings.source_topic)
    for topic_id, number in sorted({*_partitions(live, cluster_id), *_partitions(fresh, cluster_id)}):
        ledger_segments, topic_segments = (
            _segments(live, cluster_id, topic_id, number),
            _segments(fresh, cluster_id, topic_id, number),
        )
        forgotten = _forgotten(live, cluster_id, (topic_id, number), ledger_segments, topic_segments)
        for segment_id in sorted({*ledger_segments, *topic_segments}):
            here, there = ledger_segments.get(segment_id), topic_segments.get(segment_id)
            row = here or there or ()
            source, last = int(row[-2]), int(row[-1])
            if last >= read_to.get(source, 0):
                continue  # an event that came after this began
            report.segments += 1
            if here == there:
                continue
            name = f"segment {segment_id} of {row[0]}-{number}"
            if here is None and segment_id in forgotten:
                report.older_than_history += 1
            elif here is None:
                report.add(f"{name} is in the topic and not in the ledger.")
            elif low.get(source, 0) > 0:  # what the topic still tells of it may be the end of its life
                report.older_than_topic += 1
            elif there is None:
                report.add(f"{name} is in the ledger and not in the topic.")
            else:
                report.add(f"{name} differs: {_what_differs(here, there)}.")
        _compare_counts(live, cluster_id, topic_id, number, ledger_segments, report)


def _forgotten(
    live: Connection, cluster_id: str, partition: Partition, ledger_segments: Segments, topic_segments: Segments
) -> set[str]:
    """Deleted segments of which the ledger has neither row nor event: `store.history.segment_history` takes both."""
    state = _COMPARED.index("state")
    gone = {segment_id for segment_id, row in topic_segments.items() if row[state] == _GONE} - ledger_segments.keys()
    if not gone:
        return gone
    table = t.segment_event.c
    of = (table.cluster_id == cluster_id, table.topic_id == partition[0], table.partition == partition[1])
    return gone - set(live.scalars(select(table.segment_id).where(*of).distinct()))


def _what_differs(here: tuple[Any, ...], there: tuple[Any, ...]) -> str:
    differing = [
        f"{name} is {ledger_value} in the ledger and {topic_value} by the topic"
        for name, ledger_value, topic_value in zip(_COMPARED, here, there, strict=True)
        if ledger_value != topic_value
    ]
    return ", ".join(differing)


def _compare_counts(
    live: Connection, cluster_id: str, topic_id: str, number: int, segments: Segments, report: Report
) -> None:
    """The live summary and the live intervals against the live segments, in one view of the database."""
    state, size = _COMPARED.index("state"), _COMPARED.index("segment_size_bytes")
    finished = [row for row in segments.values() if row[state] == _FINISHED]
    table, interval = t.remote_partition.c, t.segment_interval.c
    row = live.execute(
        select(table.topic, table.copy_finished_segments, table.copy_finished_bytes).where(
            table.cluster_id == cluster_id, table.topic_id == topic_id, table.partition == number
        )
    ).first()
    counted = (len(finished), sum(int(segment[size]) for segment in finished))
    if row is not None and tuple(row[1:]) != counted:
        report.add(
            f"the summary of {row.topic}-{number} says {row[1]} segments of {row[2]} bytes and the ledger has "
            f"{counted[0]} of {counted[1]}."
        )
    still_open = live.scalar(
        select(func.count()).where(
            interval.cluster_id == cluster_id,
            interval.topic_id == topic_id,
            interval.partition == number,
            interval.node == 0,
        )
    )
    if row is not None and still_open != len(finished):
        report.add(
            f"{row.topic}-{number} has {len(finished)} finished segments and {still_open} open intervals: "
            "a pipeline of an older release wrote them."
        )


def _compare_files(engine: Engine, cluster_id: str, folder: RemoteFolder, report: Report) -> None:
    """Finished segments have a file of their size; a settled file has a segment that is not deleted.

    A segment that changes while its folder is listed is looked at again.
    """
    report.files = 0
    with reading(engine) as connection:
        in_ledger = {(topic_id, number): topic for topic, topic_id, number in _named(connection, cluster_id)}
    listed = {(topic_id, number): topic for topic, topic_id, number in folder.partitions()}
    for (topic_id, number), topic in sorted({**listed, **in_ledger}.items()):
        started_ms = time.time_ns() // 1_000_000
        with reading(engine) as connection:
            before = _segments(connection, cluster_id, topic_id, number)
        files = {file.segment_id: file for file in folder.files(topic, topic_id, number)}
        with reading(engine) as connection:
            after = _segments(connection, cluster_id, topic_id, number)
        report.files += len(files)
        steady = {segment_id: row for segment_id, row in before.items() if after.get(segment_id) == row}
        for sentence in _file_findings(f"{topic}-{number}", steady, after, files, started_ms - SETTLED_MS):
            report.add(sentence)


def _file_findings(
    name: str, steady: Segments, after: Segments, files: dict[str, RemoteFile], settled_before_ms: int
) -> Iterator[str]:
    state, size = _COMPARED.index("state"), _COMPARED.index("segment_size_bytes")
    for segment_id, row in sorted(steady.items()):
        if row[state] != _FINISHED:
            continue
        file = files.get(segment_id)
        if file is None:
            yield f"segment {segment_id} of {name} is finished in the ledger and has no file in the remote tier."
        elif file.size_bytes != row[size]:
            yield f"segment {segment_id} of {name} has {row[size]} bytes and its file {file.size_bytes}."
    for segment_id, file in sorted(files.items()):
        unknown = segment_id not in after
        deleted = segment_id in steady and steady[segment_id][state] == _GONE
        if (unknown or deleted) and file.modified_ms < settled_before_ms:
            why = "not in the ledger" if unknown else "deleted in the ledger"
            yield f"the remote tier has a file of segment {segment_id} of {name}, which is {why}."


def _partitions(connection: Connection, cluster_id: str) -> set[Partition]:
    return {(topic_id, number) for _, topic_id, number in _named(connection, cluster_id)}


def _named(connection: Connection, cluster_id: str) -> list[tuple[str, str, int]]:
    table = t.remote_partition.c
    rows = connection.execute(
        select(table.topic, table.topic_id, table.partition).where(table.cluster_id == cluster_id)
    )
    return [(row.topic, row.topic_id, row.partition) for row in rows]


def _segments(connection: Connection, cluster_id: str, topic_id: str, number: int) -> Segments:
    table = t.segment.c
    rows = connection.execute(
        select(table.segment_id, *(table[name] for name in _COMPARED)).where(
            table.cluster_id == cluster_id, table.topic_id == topic_id, table.partition == number
        )
    )
    return {row[0]: tuple(row[1:]) for row in rows}
