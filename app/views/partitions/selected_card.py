"""The partition that is selected on Partitions: its facts, why its local data stays, what is pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from app import links, state
from app.components.partition import durability, partition_bars, partition_summary
from app.components.partition import pending_limits as limit_rules
from app.components.partition.partition_filter import name_of, parse_name
from app.components.shared import markup
from app.components.shared.cards import source
from app.components.shared.page import Page, body_key
from app.components.shared.selection import put
from app.query_cache import SlidingMs
from app.theme import CONFIG
from app.views.partitions.partitions_data import PartitionsData
from app.views.shared import instant_control
from backend.store.queries import overview as overview_queries
from backend.store.queries import partitions as queries
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionRow

SELECTED = "selected"


def select_bar() -> None:
    name = partition_bars.picked(st.session_state.get("bars"))
    if name is not None:
        put(SELECTED, name)


def select_row(order: Sequence[str]) -> None:
    rows = st.session_state["rows"].selection.rows
    if rows and rows[0] < len(order):
        put(SELECTED, order[rows[0]])


def _select_pick(key: str) -> None:
    put(SELECTED, st.session_state[key])


def chosen_of(shown: Sequence[str], reading: PartitionsData) -> str:
    """The partition that was chosen here or in the link, while it exists; else the first shown."""
    name = st.session_state.get(SELECTED) or st.query_params.get(SELECTED)
    key = parse_name(name) if name else None
    if key is not None and any((row.topic, row.partition) == key for row in reading.rows):
        return str(name)
    if name and put(SELECTED, None):
        st.toast(f"There is no tiered partition {name!r:.60}; this is {shown[0]:.60}.")
    return shown[0]


def summary(page: Page, reading: PartitionsData, name: str, shown: Sequence[str]) -> None:
    row = next(row for row in reading.rows if name_of(row) == name)
    topic = reading.topics.get(row.topic)
    version = reading.view.version
    # Of then the open copies are not known.
    now_ms = reading.view.now_ms if reading.at_ms is None else reading.at_ms
    every = state.read_cached(queries.open_segments, page.cluster_id, version=version) if reading.at_ms is None else []
    open_segments = [segment for segment in every if (segment.topic, segment.partition) == (row.topic, row.partition)]
    copying = ((row.topic, row.partition),) if open_segments else ()
    p99 = state.read_cached(overview_queries.copy_p99_ms, page.cluster_id, copying, version=version)
    since = SlidingMs.of(now_ms, page.range_ms, step_ms=max(1000, page.range_ms // 600))
    until = () if reading.at_ms is None else (reading.at_ms,)
    points = state.read_cached(
        queries.offset_history, page.cluster_id, row.topic, row.partition, since, *until, version=version
    )
    options = list(shown) if name in shown else [name, *shown]
    with st.container(key="card-selected"):
        # A choice elsewhere makes another widget: setting this one's value races with the browser's own reruns.
        key = f"pick-{name}"
        st.selectbox(
            "Selected partition",
            options,
            index=options.index(name),
            key=key,
            on_change=_select_pick,
            args=(key,),
            label_visibility="collapsed",
        )
        with st.container(key=body_key(reading.view, "selected")):
            st.html(
                partition_summary.pills_html(
                    row,
                    open_segments,
                    p99.get((row.topic, row.partition)),
                    now_ms,
                    outside=(reading.outside or Counter())[row.topic, row.partition],
                )
            )
            st.html(partition_summary.facts_html(row, topic, partition_summary.rates(row, points, now_ms)))
            if reading.at_ms is None:
                st.html(durability.of_partition(reading.view, row, topic))
            why = f'<div class="eb-sub-title">Why local data is not deleted {source("selected")}</div>'
            st.html(why + _lines(row, topic))
            _pending_chart(page, row, reading, points)
        with st.container(key="open-partition"):
            at = {} if reading.at_ms is None else {"at": instant_control.link(reading.at_ms)}
            links.link("partition", ":material/open_in_full: Open partition", tp=name, **at)


def _lines(row: PartitionRow, topic: TopicRow | None) -> str:
    inner = "".join(f"<div>{markup.text(line)}</div>" for line in partition_summary.why_local(row, topic))
    return f'<div class="eb-lines">{inner}</div>'


def _pending_chart(
    page: Page, row: PartitionRow, reading: PartitionsData, points: Sequence[queries.PartitionPoint]
) -> None:
    until = "" if reading.at_ms is None else f" until {page.clock(reading.at_ms, reading.view.now_ms)}"
    st.html(f'<div class="eb-sub-title">Pending, last {page.range_name}{until}</div>')
    series = partition_summary.pending_series(row, points)
    if sum(value is not None for _, value in series) < 2:
        st.html('<div class="eb-note">? no history yet: the line begins with the second sample.</div>')
        return
    status = limit_rules.pending_status(limit_rules.pending_bytes(row), reading.limits.get(row.topic))
    st.plotly_chart(
        partition_summary.pending_figure(series, status, page.colours, page.zone),
        theme=None,
        config=CONFIG,
        key="pending-history",
        alt=f"Bytes pending upload of {name_of(row)}, last {page.range_name}",
    )
