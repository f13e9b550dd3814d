"""The pipeline in `/metrics`: what a scrape tells of a database that it runs, ran or never ran on, or that is away."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.exposition import generate_latest
from sqlalchemy import Engine, create_engine

from backend.control.http.pipeline_metrics import PipelineMetrics
from backend.store import tables as t
from backend.store.connection.database import create_engine as open_database
from backend.store.connection.database import writing
from backend.store.writes.cluster_rows import heartbeat
from tests.databases import new_sqlite

NOW_MS = 1_700_000_000_000


def scrape(engine: Engine) -> list[str]:
    text = generate_latest(PipelineMetrics(engine, "c", lambda: NOW_MS)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_scrape_tells_lag_batches_and_what_could_not_be_read(tmp_path: Path) -> None:
    url = new_sqlite(tmp_path / "ebbline.db")
    engine = open_database(url)
    assert not any(line.startswith("ebbline_pipeline_up ") for line in scrape(engine)), "there was none yet"
    assert not any(line.startswith("ebbline_pipeline_lag_records ") for line in scrape(engine))
    offsets = {"cluster_id": "c", "job": "j", "topic": "t", "updated_ms": NOW_MS - 4_000}
    kept = {
        "cluster_id": "c",
        "topic": "t",
        "partition": 0,
        "reason": "empty",
        "record_timestamp_ms": 1,
        "ingested_ms": 1,
    }
    batch = {"cluster_id": "c", "job": "j", "batch_id": 1, "replayed_records": 0, "illegal_events": 0,
             "quarantined_records": 0, "records": 50}  # fmt: skip
    with writing(engine) as connection:
        connection.execute(t.source_offsets.insert(), [offsets | {"partition": n, "next_offset": 70} for n in (0, 1)])
        connection.execute(t.quarantine.insert(), [kept | {"offset": n} for n in range(3)])
        times = [(NOW_MS - 10_000 + 100 * n, 10 * n) for n in range(1, 101)] + [(NOW_MS - 400_000, 9_999)]
        connection.execute(
            t.pipeline_batch.insert(), [batch | {"started_ms": at - took, "finished_ms": at} for at, took in times]
        )
        heartbeat(
            connection, "c", "pipeline", pid=1, started_ms=1, now_ms=NOW_MS - 1_000, interval_ms=2_000,
            state="running", detail={"lag_records": 12, "lag_ms": 3_000},
        )  # fmt: skip
    result = scrape(engine)
    for line in (
        "ebbline_pipeline_up 1.0",
        'ebbline_pipeline_state{state="running"} 1.0',
        'ebbline_pipeline_state{state="waiting"} 0.0',
        "ebbline_pipeline_lag_records 12.0",
        "ebbline_pipeline_lag_seconds 4.0",
        "ebbline_pipeline_offsets_read 140.0",
        "ebbline_pipeline_quarantined_records 3.0",
        "ebbline_pipeline_batches_recent 100.0",
        "ebbline_pipeline_records_recent 5000.0",
        'ebbline_pipeline_batch_seconds{quantile="0.5"} 0.5',
        'ebbline_pipeline_batch_seconds{quantile="0.99"} 0.99',
        'ebbline_pipeline_batch_seconds{quantile="1"} 1.0',
    ):
        assert line in result, result
    engine.dispose()


def test_a_database_that_is_away_has_no_samples(tmp_path: Path) -> None:
    assert scrape(create_engine(f"sqlite:///{tmp_path / 'no-folder' / 'ebbline.db'}")) == []
