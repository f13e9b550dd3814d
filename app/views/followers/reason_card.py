"""Followers: why one is as it is, and how it comes up to its leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from app import links, state
from app.components.follower import catch_up as picture
from app.components.follower import follower_table
from app.components.follower.stuck_follower import why_stuck
from app.components.shared import markup
from app.components.shared.cards import card_head, title_line
from app.components.shared.page import Page, body_key
from app.query_cache import SlidingMs
from app.state import ClusterView
from app.theme import CONFIG
from backend.store.queries import followers as queries
from backend.store.queries import partitions
from backend.store.queries.followers import Follower

SELECTED: Final = "replica"
TIMELINE_MS: Final = 20 * 60_000
# Times asked for move in steps, so that two parts share one read.
STEP_MS: Final = 15_000


def chosen(by_name: Mapping[str, Follower], order: Sequence[str], now_ms: int) -> Follower | None:
    """The follower of the link or the table; else the first, one without progress before others; None: nobody."""
    follower = by_name.get(str(_selected()))
    if follower is None and order:
        stuck = [name for name in order if why_stuck(by_name[name].replica, now_ms)]
        follower = by_name[(stuck or list(order))[0]]
    return follower


def _selected() -> str | None:
    return st.session_state.get(SELECTED) or st.query_params.get(SELECTED)


def why(page: Page, view: ClusterView, follower: Follower | None, now_ms: int) -> None:
    """The evidence for the follower's phase; ``follower`` None: none is waiting."""
    if follower is None:
        st.html(markup.card_title("Why") + markup.empty("Nobody waits."))
        return
    replica = follower.replica
    name = f"{replica.topic}-{replica.partition}"
    since = SlidingMs.of(now_ms, TIMELINE_MS, step_ms=STEP_MS)
    events = state.read_cached(
        queries.phase_events,
        page.cluster_id,
        replica.topic,
        replica.partition,
        replica.broker_id,
        since,
        version=view.version,
    )
    title = "Why “stuck”" if why_stuck(replica, now_ms) else "Why"
    title_line("why", title, f"{name} on broker {replica.broker_id}")
    linked = _selected()
    if linked and follower_table.name_of(follower) != linked:
        st.html(f'<div class="eb-note">{markup.text(str(linked)[:120])} is not in this list; this is another.</div>')
    with st.container(key=body_key(view, "why")):
        st.html(follower_table.why_html(follower, events, lambda at_ms: page.clock(at_ms, view.now_ms), now_ms))
    with st.container(horizontal=True, key="why-links"):
        links.link("partition", "Open partition →", tp=name)
        if follower.tiered:
            links.link("remote", "Its remote segments →", q=name)


def catch_up(page: Page, view: ClusterView, follower: Follower, now_ms: int) -> None:
    """Its log end beside its leader's over the time of the timeline."""
    replica = follower.replica
    key = (replica.topic, replica.partition)
    since = SlidingMs.of(now_ms, TIMELINE_MS, step_ms=STEP_MS)
    ends = state.read_cached(queries.log_ends, page.cluster_id, *key, replica.broker_id, since, version=view.version)
    leader = state.read_cached(partitions.offset_history, page.cluster_id, *key, since, version=view.version)
    lines = picture.lines(ends, leader)
    enough = any(len(points) > 1 for _, points in lines)
    clause = f"{replica.topic}-{replica.partition} on broker {replica.broker_id}, last {TIMELINE_MS // 60_000} min"
    card_head("catch-up", "Catch-up", clause, rows=picture.rows(lines, page.zone) if enough else None)
    if not enough:
        st.html(markup.empty("No history yet: the chart begins with the second sample."))
        return
    with st.container(key=body_key(view, "catch-up")):
        st.plotly_chart(
            picture.figure(
                lines, now_ms - TIMELINE_MS, now_ms, view.cluster.sample_interval_ms, page.colours, page.zone
            ),
            theme=None,
            config=CONFIG,
            key="catch-up-chart",
            alt=f"Log end of {clause}, beside its leader's",
        )
