"""How the pipeline is doing: one reading for `ebbline pipeline status` and for `/metrics`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select

from backend.store import tables as t
from backend.store.queries.health import ProcessHealth, processes

PIPELINE: Final = "pipeline"
RECENT_MS: Final = 300_000
BATCHES_MAX: Final = 2_000  # about five a second for five minutes
# A record waits for its batch, some 0.3 s, and for the heartbeat that tells it, 2 s; three of these are no delay.
BEHIND_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """None: not known, or there was none. Batch times are of transactions of the last five minutes.

    ``lag_ms``: at most how long the oldest record that waits has waited (`spark.heartbeat.waited_ms`).
    """

    process: ProcessHealth | None
    partitions: int
    records_read: int
    read_ms: int | None
    quarantined_records: int
    illegal_events: int
    segments: int
    lag_records: int | None
    lag_ms: int | None
    newest_event_ms: int | None
    batches: int
    batch_records: int
    batch_p50_ms: int | None
    batch_p99_ms: int | None
    batch_max_ms: int | None


def pipeline_status(connection: Connection, cluster_id: str, now_ms: int) -> PipelineStatus:
    """Reads a row a metadata partition, a row a partition, and the newest batches; nothing that grows with segments."""
    offsets, remote, kept, batch = t.source_offsets, t.remote_partition, t.quarantine, t.pipeline_batch
    read = connection.execute(
        select(func.count(), func.coalesce(func.sum(offsets.c.next_offset), 0), func.max(offsets.c.updated_ms)).where(
            offsets.c.cluster_id == cluster_id
        )
    ).one()
    states = ("copy_started", "copy_finished", "delete_started", "delete_finished")
    segments = sum((remote.c[f"{state}_segments"] for state in states[1:]), remote.c.copy_started_segments)
    ledger = connection.execute(
        select(
            func.coalesce(func.sum(remote.c.illegal_events), 0),
            func.coalesce(func.sum(segments), 0),
            func.max(remote.c.last_event_ms),
        ).where(remote.c.cluster_id == cluster_id)
    ).one()
    quarantined = connection.scalar(select(func.count()).select_from(kept).where(kept.c.cluster_id == cluster_id))
    rows = connection.execute(
        select(batch.c.records, batch.c.finished_ms - batch.c.started_ms)
        .where(batch.c.cluster_id == cluster_id, batch.c.finished_ms > now_ms - RECENT_MS)
        .order_by(batch.c.finished_ms.desc())
        .limit(BATCHES_MAX)
    ).all()
    took = sorted(int(row[1]) for row in rows)
    process = processes(connection, cluster_id, now_ms).get(PIPELINE)
    detail = {} if process is None else process.detail or {}
    lag, waited_ms = detail.get("lag_records"), detail.get("lag_ms")
    if process is not None and lag and waited_ms is not None:
        waited_ms += process.age_ms
    return PipelineStatus(
        process=process,
        partitions=int(read[0]),
        records_read=int(read[1]),
        read_ms=read[2],
        quarantined_records=int(quarantined or 0),
        illegal_events=int(ledger[0]),
        segments=int(ledger[1]),
        lag_records=lag,
        lag_ms=waited_ms,
        newest_event_ms=ledger[2],
        batches=len(rows),
        batch_records=sum(int(row[0]) for row in rows),
        batch_p50_ms=_nearest_rank(took, 0.50),
        batch_p99_ms=_nearest_rank(took, 0.99),
        batch_max_ms=took[-1] if took else None,
    )


def is_behind(process: ProcessHealth | None) -> bool:
    """Whether records of the metadata topic may have waited so long for the pipeline that its ledger lacks something.

    So it is while the pipeline is away, and until it has reported how far it is.
    """
    if process is None or not process.alive:
        return True
    detail = process.detail or {}
    lag, waited_ms = detail.get("lag_records"), detail.get("lag_ms")
    if lag == 0:
        return False
    return lag is None or waited_ms is None or waited_ms + process.age_ms > BEHIND_MS


def stored_offsets(connection: Connection, cluster_id: str, job: str, topic: str) -> dict[int, int]:
    """The offset that a job continues at, by partition of its topic; none for a partition that it never read."""
    table = t.source_offsets.c
    of_job = (table.cluster_id == cluster_id, table.job == job, table.topic == topic)
    rows = connection.execute(select(table.partition, table.next_offset).where(*of_job))
    return {row.partition: row.next_offset for row in rows}


def _nearest_rank(ordered: list[int], part: float) -> int | None:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None
