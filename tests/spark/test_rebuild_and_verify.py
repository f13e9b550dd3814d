"""Beside the live ledger: a new one that takes its place, and one that only compares."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from sqlalchemy import Engine, select, update
from typer.testing import CliRunner, Result

from backend.cli.main import app
from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.protocol.remote_log.metadata_serde import RemoteLogMetadata, SegmentSnapshot
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.history.segment_history import prune_history
from spark import direct
from spark import rebuild as rebuilding
from spark.decode import RawRecord, to_batch
from spark.direct import DirectReader
from spark.rebuild import NotCaughtUp, rebuild
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink, Stopped
from spark.verify import verify
from tests.spark.kafka_peer import admin, create_topic, produce
from tests.spark.records import FIXTURES, captured, life, log, mixed, raw
from tests.spark.replay import expected, stored

CLUSTER = "cluster-1"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def settings(kafka_bootstrap: str, database_url: str, tmp_path: Path) -> PipelineSettings:
    topic = f"rlm-{uuid4().hex}"
    create_topic(kafka_bootstrap, topic)
    return PipelineSettings(tmp_path, CLUSTER, kafka_bootstrap, database_url, source_topic=topic)


def live(engine: Engine, settings: PipelineSettings) -> LedgerSink:
    return LedgerSink(engine, cluster_id=CLUSTER, job=JOB, source_topic=settings.source_topic)


def write(sink: LedgerSink, records: list[RawRecord]) -> None:
    sink.write(0, pa.Table.from_batches([to_batch(records)]))


def content(engine: Engine, cluster_id: str = CLUSTER) -> dict[str, Any]:
    with reading(engine) as connection:
        return stored(connection, cluster_id)


def spoil(engine: Engine) -> None:
    """A ledger that somebody changed by hand: one segment other, one lost, one that was never there."""
    with writing(engine) as connection:
        rows = connection.execute(select(t.segment).order_by(t.segment.c.segment_id)).all()
        first, second = rows[0], rows[1]
        row = t.segment.c
        wrong = update(t.segment).values(segment_size_bytes=7, leader_epochs=[[9, 0]])
        connection.execute(wrong.where(row.segment_id == first.segment_id))
        connection.execute(t.segment.delete().where(row.segment_id == second.segment_id))
        made_up = {**first._mapping, "segment_id": "made-up", "leader_epochs": [[0, 0]]}
        connection.execute(t.segment.insert(), made_up)


def go() -> threading.Event:
    return threading.Event()


def test_a_rebuild_reads_the_topic_and_takes_the_place_of_a_spoilt_ledger(
    engine: Engine, settings: PipelineSettings
) -> None:
    records = mixed(1_500)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    write(live(engine, settings), records[:900])
    spoil(engine)
    progress: list[tuple[int, int]] = []
    done = rebuild(settings, go(), lambda stored, total: progress.append((stored, total)))
    assert content(engine) == expected(records)
    assert (done.records, done.events_after) == (len(records), len(expected(records)["events"]))
    assert progress[-1] == (len(records), len(records))
    # The pipeline that ran meanwhile comes with what it had read: nothing counts twice.
    write(live(engine, settings), records)
    assert content(engine) == expected(records)
    assert not any(content(engine, f"{CLUSTER}~rebuild").values())
    assert verify(settings, None, go()).differences == 0
    if engine.dialect.name == "postgresql":  # which would plan for a cluster it has never heard of
        common = "SELECT most_common_vals::text FROM pg_stats WHERE tablename = 'segment' AND attname = 'cluster_id'"
        with reading(engine) as connection:
            assert connection.exec_driver_sql(common).scalar_one() == f"{{{CLUSTER}}}"


def test_a_rebuild_that_is_stopped_leaves_the_ledger_as_it_was(engine: Engine, settings: PipelineSettings) -> None:
    records = mixed(600)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    write(live(engine, settings), records[:200])
    before, stop = content(engine), threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        rebuild(settings, stop)
    assert content(engine) == before
    assert not any(content(engine, f"{CLUSTER}~rebuild").values())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_rebuild_never_takes_over_from_a_ledger_that_is_ahead(
    engine: Engine, settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, late = log(life(1)), log(life(2), first=4)
    produce(settings.bootstrap_servers, settings.source_topic, early)
    write(live(engine, settings), early)
    parts: list[int] = []
    copy: Callable[..., int] = DirectReader.copy

    def overtaken(self: DirectReader, sink: LedgerSink, until: dict[int, int], said: Any = None) -> int:
        """While this reads the topic for the first time, it grows and the pipeline reads on."""
        parts.append(copy(self, sink, until, said))
        if len(parts) == 1:
            produce(settings.bootstrap_servers, settings.source_topic, late)
            write(live(engine, settings), late)
        return parts[-1]

    monkeypatch.setattr(DirectReader, "copy", overtaken)
    assert rebuild(settings, go()).records == 8
    assert parts == [4, 4]
    assert content(engine) == expected([*early, *late])
    monkeypatch.setattr(rebuilding, "_swap", lambda *_: None)
    with pytest.raises(NotCaughtUp, match="stop it for the moment"):
        rebuild(settings, go())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_ledger_of_a_topic_that_was_recreated_is_replaced(engine: Engine, settings: PipelineSettings) -> None:
    write(live(engine, settings), mixed(800))
    records = mixed(100, seed=9)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    report = verify(settings, None, go())
    assert any("the topic was recreated or lost records" in finding for finding in report.findings)
    rebuild(settings, go())
    assert content(engine) == expected(records)


def test_verify_names_what_differs_from_the_topic_and_changes_nothing(
    engine: Engine, settings: PipelineSettings
) -> None:
    records = mixed(700)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    write(live(engine, settings), records)
    assert verify(settings, None, go()).findings == []
    spoil(engine)
    before = content_of_segments(engine)
    report = verify(settings, None, go())
    text = "\n".join(report.findings)
    assert "segment_size_bytes is 7 in the ledger and 1000 by the topic" in text
    assert "leader_epochs is [[9, 0]] in the ledger" in text
    assert "is in the topic and not in the ledger" in text
    assert "segment made-up of" in text
    assert report.differences >= 3
    assert content_of_segments(engine) == before
    assert list((settings.spark_dir / "verify").glob("ledger.db*")) == []


def content_of_segments(engine: Engine) -> list[Any]:
    with reading(engine) as connection:
        return sorted(tuple(row)[:8] for row in connection.execute(select(t.segment)))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_the_topic_has_lost_is_counted_and_not_called_wrong(engine: Engine, settings: PipelineSettings) -> None:
    records = log([*life(1), *life(2), *life(3)])
    produce(settings.bootstrap_servers, settings.source_topic, records)
    write(live(engine, settings), records)
    client = admin(settings.bootstrap_servers)
    next(iter(client.delete_records([TopicPartition(settings.source_topic, 0, 6)]).values())).result(timeout=10)
    report = verify(settings, None, go())
    assert (report.differences, report.older_than_topic) == (0, 2)
    with writing(engine) as connection:  # all that the topic holds of it now may be the end of its life
        connection.execute(update(t.segment).where(t.segment.c.start_offset == 300).values(segment_size_bytes=7))
    report = verify(settings, None, go())
    assert (report.differences, report.older_than_topic) == (0, 3)


def test_what_the_history_has_let_go_is_counted_and_not_called_lost(engine: Engine, settings: PipelineSettings) -> None:
    began_ms, year_ms = 1_700_000_000_000, 365 * 86_400_000
    segment_snapshots: list[RemoteLogMetadata] = [
        segment_snapshot._replace(event_timestamp_ms=began_ms + year * year_ms + segment_snapshot.event_timestamp_ms)
        for year, number in enumerate((1, 2))
        for segment_snapshot in life(number)
        if not isinstance(segment_snapshot, SegmentSnapshot)
    ]
    produce(settings.bootstrap_servers, settings.source_topic, log(segment_snapshots))
    write(live(engine, settings), log(segment_snapshots))
    assert prune_history(engine, CLUSTER, began_ms + year_ms // 2) == 4
    report = verify(settings, None, go())
    assert (report.findings, report.older_than_history) == ([], 1)
    with writing(engine) as connection:
        connection.execute(t.segment.delete())  # of the other one the events are there
    report = verify(settings, None, go())
    assert (report.differences, report.older_than_history) == (1, 1), report.findings


def remote_tier(folder: Path) -> Path:
    """The files of a real Kafka's remote tier, as the fixture holds them, below the root that its plug-in makes."""
    sources = sorted((FIXTURES / "remote").rglob("*.log"))
    for source in sources:
        target = folder / "kafka-tiered-storage" / source.parent.name / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    return folder


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_files_of_the_remote_tier_are_compared_with_the_ledger(
    engine: Engine, settings: PipelineSettings, tmp_path: Path
) -> None:
    records = raw(captured("metadata-records.jsonl"))
    produce(settings.bootstrap_servers, settings.source_topic, records)
    write(live(engine, settings), records)
    folder = remote_tier(tmp_path / "tier")
    files = sorted(folder.rglob("*.log"))
    report = verify(settings, str(folder), go())
    assert (report.files, report.findings) == (len(files), [])
    files[0].unlink()
    files[1].write_bytes(b"short")
    left = files[2].with_name(f"{0:020d}-AAAAAAAAAAAAAAAAAAAAAA.log")
    left.write_bytes(b"x")
    assert verify(settings, str(folder), go()).differences == 2  # the third may be of a copy that goes on
    os.utime(left, (1, 1))
    text = "\n".join(verify(settings, str(folder), go()).findings)
    assert "has no file in the remote tier" in text
    assert "and its file 5" in text
    assert "file of segment AAAAAAAAAAAAAAAAAAAAAA" in text


# --- as commands ---


@pytest.fixture
def call(settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    identity = ClusterIdentity(
        format=1, cluster_id=CLUSTER, cluster_name="demo", brokers=1, broker_port=1, controller_port=2
    )
    DataFolder(settings.data_dir).write_identity(identity)
    monkeypatch.setenv("EBBLINE_BOOTSTRAP_SERVERS", settings.bootstrap_servers)
    monkeypatch.setenv("EBBLINE_PIPELINE_TOPIC", settings.source_topic)

    def run(*arguments: str) -> Result:
        place = ("--data", str(settings.data_dir), "--database-url", settings.database_url)
        return CliRunner().invoke(app, ["pipeline", *arguments, *place])

    return run


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_commands_say_what_they_did_and_found(
    engine: Engine, settings: PipelineSettings, call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = mixed(300)
    produce(settings.bootstrap_servers, settings.source_topic, records)
    result = call("status")
    assert (result.exit_code, result.output.splitlines()[0]) == (1, "The pipeline has never run on this database.")
    write(live(engine, settings), records)
    assert f"Aside:    {len(expected(records)['quarantine'])} records quarantined" in call("status").output
    done = call("verify", "--remote", "none")
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "No differences."), done.output
    spoil(engine)
    assert call("verify", "--remote", "none").exit_code == 1
    done = call("rebuild")
    assert (done.exit_code, done.output.startswith("The ledger is new: ")) == (0, True), done.output
    assert call("verify", "--remote", "none").exit_code == 0
    assert "orders-0: " in call("at", "2026-01-01T00:00").output
    assert call("at", "1969-01-01T00:00+01:00").output == "Nothing that the ledger knows was remote then.\n"
    assert call("at", "yesterday").exit_code == 2
    monkeypatch.setenv("EBBLINE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(direct, "PATIENCE_S", 0.0)
    done = call("rebuild")
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1), done.output
    assert "Are the brokers up?" in done.output
