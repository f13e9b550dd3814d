"""Followers: how far back the replicas of the chosen partition, and of others in the list, serve from their disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import streamlit as st

from app import state
from app.components.follower import local_depth, replica_phases
from app.components.follower.local_depth import ROWS_MAX, Depth
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, body_key
from app.query_cache import SlidingMs
from app.state import ClusterView
from app.views.partition.partition_data import DEPTH_MS_MIN
from backend.store.queries import partitions
from backend.store.queries.followers import Follower
from backend.store.queries.partitions import ReplicaRow

# Samples asked for move in steps, so that a minute's reads share one answer.
STEP_MS: Final = 60_000


def render(page: Page, view: ClusterView, chosen: Follower, listed: Iterable[Follower], now_ms: int) -> None:
    """The chosen partition's replicas, the leader first; then others of the list, each held against its own leader."""
    first = chosen.replica
    depths = _depths(page, view, first.topic, first.partition, now_ms)
    others = [
        follower.replica
        for follower in listed
        if follower.tiered and (follower.replica.topic, follower.replica.partition) != (first.topic, first.partition)
    ]
    for replica in others[: max(0, ROWS_MAX - len(depths))]:
        of_partition = _depths(page, view, replica.topic, replica.partition, now_ms)
        depths += [follower for follower in of_partition if follower.broker_id == replica.broker_id]
    card_head(
        "depth", "Local depth", "time each replica can serve locally", rows=local_depth.rows(depths) if depths else None
    )
    if not depths:
        st.html(markup.empty("? No replica has answered yet."))
        return
    with st.container(key=body_key(view, "depth")):
        st.html(local_depth.html(depths))


def _depths(page: Page, view: ClusterView, topic: str, number: int, now_ms: int) -> list[Depth]:
    """Of all replicas of one partition."""
    replicas = state.read_cached(partitions.replicas, page.cluster_id, topic, number, version=view.version)
    depths = [_depth(page, view, replica, now_ms) for replica in replicas]
    deepest_ms = max((depth.depth_ms or 0 for depth in depths), default=0)
    return [replace(depth, deepest_ms=deepest_ms) for depth in depths]


def _depth(page: Page, view: ClusterView, replica: ReplicaRow, now_ms: int) -> Depth:
    name = f"{replica.topic}-{replica.partition}"
    start = replica.local_log_start_offset
    whole = start is not None and start == replica.log_start_offset
    depth_ms = (
        None if start is None else replica_phases.local_depth_ms(replica, *_facts(page, view, replica, start), now_ms)
    )
    return Depth(name, replica.broker_id, replica.role == "leader", depth_ms, whole)


def _facts(
    page: Page, view: ClusterView, replica: ReplicaRow, start: int
) -> tuple[Sequence[partitions.SegmentRow], Sequence[partitions.PartitionPoint]]:
    """The remote segments and the samples around the first record on its disk; both by index."""
    key = (page.cluster_id, replica.topic, replica.partition)
    # The local log start, and so the time it was written, changes seldom: the time step is version enough.
    since = SlidingMs.of(view.read_ms, DEPTH_MS_MIN, step_ms=STEP_MS)
    points = state.read_cached(partitions.log_end_passed, *key, start, since, version=0)
    row = state.read_cached(partitions.partition, *key, version=view.version)
    if points or row is None:
        return [], points
    segments = state.read_cached(partitions.segments_before, *key, row.topic_id, start, version=since.at_ms)
    return segments, points
