"""A partition that is not there: never was, or is gone and has left something in the remote tier."""

from __future__ import annotations

import streamlit as st

from app import links, state
from app.components.partition import lineage_verdicts
from app.components.partition.partition_filter import near_topics
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.page import Page, live
from app.state import ClusterView
from app.views.partition.log_cards import events_card, segments_card
from app.views.partition.partition_data import kept, row_of
from backend.store.queries import config as config_queries
from backend.store.queries import partition_detail as detail_queries
from backend.store.queries import partitions as queries
from backend.store.queries.partitions import SegmentRow


def no_name(name: str) -> None:
    with st.container(key="card-absent"):
        if name:
            st.html(
                markup.empty(f"“{name[:120]}” is no partition's name.", "A name is topic-number, for example orders-7.")
            )
        else:
            st.html(markup.empty("The link names no partition.", "Choose one in the list."))
        links.link("partitions", "All partitions →")


def absent(page: Page, topic: str, number: int) -> None:
    live(page, "absent", _absent_part, page, topic, number)


def _absent_part(page: Page, topic: str, number: int) -> None:
    view = page.view()
    if row_of(view, topic, number) is not None:
        st.rerun()
    left = state.read_cached(detail_queries.remains, page.cluster_id, topic, number, version=view.version)
    name = f"{topic}-{number}"
    with st.container(key="card-absent"):
        if left.known:
            st.html(markup.alert("warning", f"{name} does not exist any more.", _last_seen(page, view, left)))
        else:
            instead = _instead(page, view, topic) if left.partition_count is None else _has(topic, left.partition_count)
            st.html(markup.empty(f"There is no partition {name} in {view.cluster.name}.", instead))
        links.link("partitions", "All partitions →")
    if not left.known:
        return
    topic_id = left.ledgers[0].topic_id if left.ledgers else None
    segments: list[SegmentRow] = []
    if topic_id is not None:
        segments = state.read_cached(
            queries.segments, page.cluster_id, topic, number, topic_id=topic_id, version=view.version
        )
    with st.container(key="card-ledger"):
        verdicts = lineage_verdicts.judge(segments, None)
        segments_card(page, view, verdicts, "left in the remote tier, newest first")
    with st.container(key="card-events"):
        events_card(page, view, topic, number, topic_id)


def _last_seen(page: Page, view: ClusterView, left: detail_queries.Remains) -> str:
    seen = ""
    if left.last_sampled_ms is not None:
        seen = f"Last seen {page.clock(left.last_sampled_ms, view.now_ms)}. "
    left_over = sum(kept(ledger) for ledger in left.ledgers)
    if not left.ledgers:
        return f"{seen}The ledger knows nothing of it."
    if not left_over:
        return f"{seen}Its remote segments are deleted."
    return f"{seen}{fmt.count(left_over)} of its segments are still in the remote tier, by the ledger."


def _has(topic: str, count: int) -> str:
    numbers = "partition 0" if count == 1 else f"partitions 0 to {count - 1}"
    return f"Topic {topic} has {numbers}."


def _instead(page: Page, view: ClusterView, topic: str) -> str:
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=view.version)
    near = [name for name in near_topics(topic, [row.topic for row in topics]) if name != topic]
    return f"Topics of a like name: {', '.join(near)}." if near else "Choose one in the list."
