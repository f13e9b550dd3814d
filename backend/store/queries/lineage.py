"""Reads of the lineage of all partitions: the epochs of finished segments and of the leaders' logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, func, select, tuple_

from backend.store import tables as t
from backend.tiering.segment_state import SegmentState

# 20,000 rows are about 6 MB: what is read at most, every round of findings and by the page that filters by lineage.
FINISHED_MAX: Final = 20_000

Chain = list[list[int]]
"""[epoch, its first offset], ascending."""


@dataclass(frozen=True, slots=True)
class FinishedSegment:
    """As much of a finished segment as its lineage needs; `end_offset` inclusive."""

    topic: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    leader_epochs: Chain
    segment_size_bytes: int
    copy_finished_ms: int | None


def finished_count(connection: Connection, cluster_id: str) -> int:
    """Finished segments of present partitions, from the ledger's summaries."""
    remote, current = t.remote_partition, t.partition_current
    same = and_(
        current.c.cluster_id == remote.c.cluster_id,
        current.c.topic == remote.c.topic,
        current.c.partition == remote.c.partition,
        current.c.topic_id == remote.c.topic_id,
    )
    total = select(func.sum(remote.c.copy_finished_segments)).select_from(remote.join(current, same))
    return int(connection.scalar(total.where(remote.c.cluster_id == cluster_id)) or 0)


def finished_segments(
    connection: Connection, cluster_id: str, limit: int = FINISHED_MAX
) -> list[FinishedSegment] | None:
    """Finished segments of present partitions by start offset; None when there are more than ``limit``."""
    if finished_count(connection, cluster_id) > limit:
        return None  # counted from a row a partition: of millions of segments none is read
    table, current = t.segment, t.partition_current
    # As a join SQLite would rather walk all segments of the cluster.
    present = select(current.c.topic_id, current.c.partition).where(current.c.cluster_id == cluster_id)
    query = (
        select(*(table.c[name] for name in FinishedSegment.__slots__))
        .where(
            table.c.cluster_id == cluster_id,
            tuple_(table.c.topic_id, table.c.partition).in_(present),
            table.c.state == int(SegmentState.COPY_SEGMENT_FINISHED),
        )
        .order_by(table.c.start_offset)
        .limit(limit + 1)
    )
    segments = [FinishedSegment(**row._mapping) for row in connection.execute(query)]
    return None if len(segments) > limit else segments


def leader_chains(connection: Connection, cluster_id: str) -> dict[tuple[str, int], tuple[Chain, int]]:
    """(epoch chain, log end) of each leader of which both are known in full."""
    table = t.replica_current
    rows = connection.execute(
        select(table.c.topic, table.c.partition, table.c.leader_epochs, table.c.log_end_offset, table.c.evidence).where(
            table.c.cluster_id == cluster_id, table.c.role == "leader"
        )
    )
    return {
        (row.topic, row.partition): (row.leader_epochs, row.log_end_offset)
        for row in rows
        if row.leader_epochs and row.log_end_offset is not None and not (row.evidence or {}).get("epochs_cut")
    }
