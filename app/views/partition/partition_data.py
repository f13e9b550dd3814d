"""Everything the page of a partition shows, read once per data version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app import observed, state
from app.components.partition import lineage_verdicts, pending_limits
from app.components.partition.lineage_verdicts import JudgedSegment, LeaderChain
from app.components.shared.page import Page
from app.query_cache import SlidingMs
from app.state import ClusterView
from backend.store.queries import config as config_queries
from backend.store.queries import overview as overview_queries
from backend.store.queries import partition_detail as detail_queries
from backend.store.queries import partitions as queries
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionPoint, PartitionRow, ReplicaRow, SegmentRow
from backend.tiering.segment_state import SegmentState

# The depth that is read from history; older local data is dated by its remote segments.
DEPTH_MS_MIN = 6 * 3_600_000
_LIVE_STATES = (
    SegmentState.COPY_SEGMENT_STARTED,
    SegmentState.COPY_SEGMENT_FINISHED,
    SegmentState.DELETE_SEGMENT_STARTED,
)


@dataclass(frozen=True, slots=True)
class PartitionData:
    """Everything the page shows of a partition that is there, read once per data version."""

    view: ClusterView
    row: PartitionRow
    replicas: list[ReplicaRow]
    segments: list[SegmentRow]
    verdicts: list[JudgedSegment]
    chain: LeaderChain | None
    points: list[PartitionPoint]
    topic: TopicRow | None  # None: its settings are not known
    limit_bytes: int | None
    earlier: int  # segments of earlier topics of this name
    p99_ms: int | None  # of how long its copies took
    last_seen: Mapping[int, str]  # when, by broker that does not answer


def row_of(view: ClusterView, topic: str, number: int) -> PartitionRow | None:
    return state.read_cached(queries.partition, view.cluster.cluster_id, topic, number, version=view.version)


def read(page: Page, topic: str, number: int) -> PartitionData | None:
    """One consistent set of facts; None when the partition is gone. Raises DatabaseUnreachable."""
    view = page.view()
    row = row_of(view, topic, number)
    if row is None:
        return None
    cluster_id, version = page.cluster_id, view.version
    replicas = state.read_cached(queries.replicas, cluster_id, topic, number, version=version)
    every = state.read_cached(
        queries.segments, cluster_id, topic, number, topic_id=row.topic_id, states=_LIVE_STATES, version=version
    )
    chain = lineage_verdicts.leader_chain(replicas)
    since = SlidingMs.of(view.read_ms, max(page.range_ms, DEPTH_MS_MIN), step_ms=max(1000, page.range_ms // 600))
    topics = state.read_cached(config_queries.topics, cluster_id, version=version)
    topic_row = next((listed for listed in topics if listed.topic == topic), None)
    p99 = state.read_cached(overview_queries.copy_p99_ms, cluster_id, ((topic, number),), version=version)
    ledgers = state.read_cached(detail_queries.ledgers, cluster_id, topic, number, version=version)
    return PartitionData(
        view=view,
        row=row,
        replicas=replicas,
        segments=every,
        verdicts=lineage_verdicts.judge(every, chain),
        chain=chain,
        points=state.read_cached(queries.offset_history, cluster_id, topic, number, since, version=version),
        topic=topic_row,
        limit_bytes=None if topic_row is None else pending_limits.pending_limit_bytes(topic_row),
        earlier=sum(kept(ledger) for ledger in ledgers if ledger.topic_id != row.topic_id),
        p99_ms=p99.get((topic, number)),
        last_seen=_last_seen(page, view),
    )


def _last_seen(page: Page, view: ClusterView) -> dict[int, str]:
    brokers = observed.brokers(view)
    silent = [broker for broker in brokers if not broker.reachable]
    return {broker.broker_id: f"last seen {page.clock(broker.seen_ms, view.now_ms)}" for broker in silent}


def kept(ledger: detail_queries.LedgerRow) -> int:
    return ledger.copy_started_segments + ledger.copy_finished_segments + ledger.delete_started_segments
