"""The card that compares a partition at two instants; on the page of the partition and on the remote log."""

from __future__ import annotations

from typing import Final, TypeAlias

import streamlit as st

from app import state
from app.components.partition import instant_comparison as pictures
from app.components.partition import ledger_at_instant
from app.components.partition.instant_comparison import Instant
from app.components.shared import markup
from app.components.shared.cards import table_twin, title_line
from app.components.shared.page import Page, ledger_key, live
from app.query_cache import SlidingMs
from app.state import ClusterView
from app.views.shared import instant_control
from backend.store.queries import partitions as partition_queries
from backend.store.queries import time_travel

FIRST: Final = instant_control.AT
SECOND: Final = "vs"
TITLE: Final = "Then and now"
# The leader's offsets are read from the samples around each instant only: a quarter of an hour of them.
SAMPLES_MS: Final = 15 * 60_000
# First and last of the samples around an instant; of now they move with the clock.
Samples: TypeAlias = tuple[int | SlidingMs, int | SlidingMs]


def card(page: Page, topic: str, number: int, topic_id: str, *, first_elsewhere: bool = False) -> None:
    """``first_elsewhere``: the page has the control of the first instant already."""
    with st.container(key="card-compare"):
        title_line("compare", TITLE, "what was remote at two instants, and where the leader stood")
        with st.container(horizontal=True, key="compare-controls"):
            first = st.session_state.get(FIRST) if first_elsewhere else _instant(page, FIRST, "First: 10m")
            second = _instant(page, SECOND, "Second: now")
        first_ms = instant_control.parsed(page, first or "")
        if first_ms is None:
            hint = f"Name an instant: {ledger_at_instant.HINT}."
            st.html(f'<div class="eb-note">{markup.text(hint)}</div>')
            return
        second_ms = instant_control.parsed(page, second or "")
        live(page, "compare", _render, page, topic, number, topic_id, first_ms, second_ms)


def _instant(page: Page, name: str, placeholder: str) -> str | None:
    return st.text_input(
        placeholder,
        key=name,
        bind="query-params",
        placeholder=placeholder,
        icon=":material/history:",
        max_chars=40,
        label_visibility="collapsed",
        help=ledger_at_instant.HINT,
        on_change=instant_control.fix,
        args=(page, name),
        width=216,
    )


def _render(page: Page, topic: str, number: int, topic_id: str, first_ms: int, second_ms: int | None) -> None:
    view = page.view()
    later_ms = view.read_ms if second_ms is None else second_ms
    first = _instant_at(page, view, topic, number, topic_id, first_ms, (first_ms - SAMPLES_MS, first_ms))
    around: Samples = (later_ms - SAMPLES_MS, later_ms)
    if second_ms is None:
        around = (SlidingMs.of(later_ms, SAMPLES_MS), SlidingMs.of(later_ms))
    second = _instant_at(page, view, topic, number, topic_id, later_ms, around)
    clocks = [page.clock(first_ms, view.now_ms), "now" if second_ms is None else page.clock(later_ms, view.now_ms)]
    clocks_html = f'<div class="eb-note">{markup.text(f"{clocks[0]} against {clocks[1]}")}</div>'
    with st.container(horizontal=True, key="cardhead-compare"):
        st.html(clocks_html)
        table_twin("compare", TITLE, pictures.rows(first, second))
    with st.container(key=ledger_key(view, "compare")):
        st.html(pictures.table_html(first, second, *clocks))
        note = "Remote: by the times that the events of __remote_log_metadata say. Offsets: the last sample before."
        st.html(f'<div class="eb-note">{note}</div>')


def _instant_at(
    page: Page, view: ClusterView, topic: str, number: int, topic_id: str, at_ms: int, around: Samples
) -> Instant:
    remote = state.read_cached(
        time_travel.remote_totals_at, page.cluster_id, topic_id, number, around[1], version=view.version
    )
    points = state.read_cached(
        partition_queries.offset_history, page.cluster_id, topic, number, *around, version=view.version
    )
    return Instant(at_ms, remote, pictures.point_at(points, at_ms, view.cluster.sample_interval_ms))
