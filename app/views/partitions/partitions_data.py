"""The facts that the Partitions page shows, read once per data version."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from app import state
from app.components.partition import lineage_verdicts
from app.components.partition import pending_limits as limit_rules
from app.components.partition.instant_comparison import SAMPLE_VALID_INTERVALS
from app.components.partition.partition_filter import GAP_OR_OUTSIDE, Filter, PartitionKey
from app.components.shared.page import Page
from app.state import ClusterView
from backend.store.queries import config as config_queries
from backend.store.queries import lineage as lineage_queries
from backend.store.queries import partitions as queries
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionRow


@dataclass(frozen=True, slots=True)
class PartitionsData:
    """Everything the page shows, read once per data version; ``outside`` None: too many segments to judge here."""

    view: ClusterView
    rows: list[PartitionRow]
    topics: dict[str, TopicRow]
    outside: Counter[PartitionKey] | None
    at_ms: int | None  # the instant that is shown; None: now

    @property
    def limits(self) -> dict[str, int | None]:
        return {name: limit_rules.pending_limit_bytes(topic) for name, topic in self.topics.items()}


def partition_rows(page: Page, view: ClusterView, at_ms: int | None) -> list[PartitionRow]:
    if at_ms is None:
        return state.read_cached(queries.partitions, page.cluster_id, version=view.version)
    # The past does not change: read again only as often as anything is.
    since_ms = at_ms - SAMPLE_VALID_INTERVALS * view.cluster.sample_interval_ms
    return state.read_cached(queries.partitions_then, page.cluster_id, at_ms, since_ms, version=0)


def read(page: Page, chosen: Filter, at_ms: int | None = None) -> PartitionsData:
    """One consistent set of facts. Lineage of all segments is judged only when the filter asks for it.

    Raises DatabaseUnreachable.
    """
    view = page.view()
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=view.version)
    outside: Counter[PartitionKey] | None = Counter()
    if at_ms is not None:
        outside = None
    elif chosen.state == GAP_OR_OUTSIDE:
        segments = state.read_cached(lineage_queries.finished_segments, page.cluster_id, version=view.version)
        chains = state.read_cached(lineage_queries.leader_chains, page.cluster_id, version=view.version)
        outside = None if segments is None else lineage_verdicts.outside_by_partition(segments, chains)
    return PartitionsData(
        view, partition_rows(page, view, at_ms), {topic.topic: topic for topic in topics}, outside, at_ms
    )
