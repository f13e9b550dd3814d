"""The processes that write this database, when each last did, and whether that is late: the head row of every page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, func, select

from backend.store import tables as t

STALE_AFTER_INTERVALS: Final = 3


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster this database knows."""

    cluster_id: str
    name: str
    kind: str
    bootstrap_servers: str
    controller_id: int | None
    features: dict[str, int] | None
    first_seen_ms: int
    seen_ms: int
    sample_interval_ms: int


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """The last heartbeat of one process, judged at ``now_ms``."""

    process: str
    pid: int | None
    started_ms: int
    updated_ms: int
    interval_ms: int
    state: str
    message: str | None
    detail: dict[str, Any] | None
    data_version: int
    age_ms: int

    @property
    def stale(self) -> bool:
        """No heartbeat for three promised intervals: the process is gone or stuck."""
        return self.age_ms > STALE_AFTER_INTERVALS * self.interval_ms

    @property
    def alive(self) -> bool:
        return not self.stale and self.state not in ("stopped", "failed")


@dataclass(frozen=True, slots=True)
class SourceAges:
    """Age of the newest data per source; None: there is none yet."""

    offsets_ms: int | None
    oldest_offsets_ms: int | None
    configs_ms: int | None
    pipeline_batch_ms: int | None


def clusters(connection: Connection) -> list[ClusterRow]:
    """All clusters of this database, the one seen last first."""
    rows = connection.execute(select(t.cluster).order_by(t.cluster.c.seen_ms.desc(), t.cluster.c.cluster_id))
    return [ClusterRow(**row._mapping) for row in rows]


def processes(connection: Connection, cluster_id: str, now_ms: int) -> dict[str, ProcessHealth]:
    """Every process that ever sent a heartbeat, by name."""
    table = t.process_status
    rows = connection.execute(select(table).where(table.c.cluster_id == cluster_id).order_by(table.c.process))
    healths = {}
    for row in rows:
        values = {name: value for name, value in row._mapping.items() if name != "cluster_id"}
        healths[row.process] = ProcessHealth(**values, age_ms=max(0, now_ms - row.updated_ms))
    return healths


def data_version(connection: Connection, cluster_id: str) -> int:
    """Grows whenever the observer, the pipeline or the control plane wrote data of this cluster."""
    column = t.process_status.c.data_version
    total = connection.scalar(select(func.sum(column)).where(t.process_status.c.cluster_id == cluster_id))
    return int(total or 0)


def source_ages(connection: Connection, cluster_id: str, now_ms: int) -> SourceAges:
    """How old the newest (and for offsets also the oldest) data on the pages is."""
    partitions, configs, batches = t.partition_current, t.config_value, t.pipeline_batch
    newest, oldest = connection.execute(
        select(func.max(partitions.c.sampled_ms), func.min(partitions.c.sampled_ms)).where(
            partitions.c.cluster_id == cluster_id
        )
    ).one()
    config = connection.scalar(select(func.max(configs.c.sampled_ms)).where(configs.c.cluster_id == cluster_id))
    batch = connection.scalar(select(func.max(batches.c.finished_ms)).where(batches.c.cluster_id == cluster_id))

    def age(at_ms: int | None) -> int | None:
        return None if at_ms is None else max(0, now_ms - at_ms)

    return SourceAges(age(newest), age(oldest), age(config), age(batch))
