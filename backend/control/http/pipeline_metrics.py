"""The pipeline's numbers in `/metrics`, read from the database at each scrape: it is another process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.store.connection.database import reading
from backend.store.queries.pipeline import PipelineStatus, pipeline_status

STATES: Final = ("starting", "running", "waiting", "failed", "stopped")


class PipelineMetrics:
    """A source of metrics; a database that does not answer has no samples here, and `ebbline_database_up` says so."""

    def __init__(self, engine: Engine, cluster_id: str, now_ms: Callable[[], int] | None = None) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)

    def collect(self) -> Iterator[Metric]:
        try:
            with reading(self._engine) as connection:
                status = pipeline_status(connection, self._cluster_id, self._now_ms())
        except (DBAPIError, PoolTimeout):
            return
        yield from _families(status)


def _families(status: PipelineStatus) -> Iterator[Metric]:
    process = status.process
    # A cluster that was never watched with a pipeline has none that could be away.
    up = None if process is None else float(process.alive)
    yield _gauge("ebbline_pipeline_up", "1 while the pipeline gives signs of life", up)
    state = GaugeMetricFamily("ebbline_pipeline_state", "1 for the state the pipeline says it is in", labels=["state"])
    if process is not None:
        for name in STATES:
            state.add_metric([name], float(process.state == name))
    yield state
    yield _gauge("ebbline_pipeline_lag_records", "Records of the metadata topic not stored yet", status.lag_records)
    yield _gauge("ebbline_pipeline_lag_seconds", "How long the oldest of them waits, at most", _s(status.lag_ms))
    yield _gauge("ebbline_pipeline_offsets_read", "Offsets of the metadata topic that are behind", status.records_read)
    yield _gauge("ebbline_pipeline_segments", "Segments in the ledger, deleted ones too", status.segments)
    yield _gauge("ebbline_pipeline_quarantined_records", "Records that could not be read", status.quarantined_records)
    yield _gauge("ebbline_pipeline_illegal_events", "Events that the ledger did not follow", status.illegal_events)
    yield _gauge("ebbline_pipeline_batches_recent", "Transactions of the last five minutes", status.batches)
    yield _gauge("ebbline_pipeline_records_recent", "Records stored in the last five minutes", status.batch_records)
    times = GaugeMetricFamily(
        "ebbline_pipeline_batch_seconds", "Time of a transaction in the last five minutes", labels=["quantile"]
    )
    for quantile, value in (("0.5", status.batch_p50_ms), ("0.99", status.batch_p99_ms), ("1", status.batch_max_ms)):
        if value is not None:
            times.add_metric([quantile], value / 1000)
    yield times


def _gauge(name: str, documentation: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(name, documentation)
    if value is not None:
        family.add_metric([], value)
    return family


def _s(value_ms: int | None) -> float | None:
    return None if value_ms is None else value_ms / 1000
