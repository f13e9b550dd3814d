"""Partitions: where does each partition's data live, which is furthest behind?"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import links, state
from app.components.partition import partition_bars, partition_heatmap, partition_table, range_list
from app.components.partition.partition_filter import GAP_OR_OUTSIDE, RANKS, STATES, Filter, name_of, select
from app.components.shared import format as fmt
from app.components.shared import markup, style
from app.components.shared.cards import card_head
from app.components.shared.page import Page, body_key, live, open_page
from app.components.shared.selection import row_order
from app.theme import CONFIG
from app.views.partitions import selected_card
from app.views.partitions.partitions_data import PartitionsData, partition_rows, read
from app.views.shared import instant_control, no_tiered_topic
from backend.store.queries.partitions import PartitionRow

BARS_MAX = 22
HEATMAP_ABOVE = 2_000
BARS, HEATMAP, TABLE = VIEWS = ("Bars", "Heatmap", "Table")


def render() -> None:
    page = open_page("Partitions", "where each partition's data lives")
    if page is None:
        return
    style.add("ranges")
    chosen, how, at_ms = _controls(page, _count(page))
    if at_ms is not None:
        live(page, "past", _past_notice, page, at_ms)
    live(page, f"partitions-{how}", {BARS: _bars, HEATMAP: _heatmap, TABLE: _table}[how], page, chosen, at_ms)


def _count(page: Page) -> int:
    try:
        return len(partition_rows(page, page.view(), None))
    except state.DatabaseUnreachable:
        return 0  # the alert of the page says why


def _past_notice(page: Page, at_ms: int) -> None:
    """Says which stored facts the list of an instant is made of."""
    view = page.view()
    rows = partition_rows(page, view, at_ms)
    missing = sum(row.error is not None for row in rows)
    clock = page.clock(at_ms, view.now_ms)
    text = f"As of {clock}: each partition by its last sample until then."
    if missing:
        text += f" Of {_count_text(missing)} no sample of that time is kept."
    note = "Limits are those of now; open copies and lineage of then are not stored, see the Remote log."
    st.html(markup.alert("warning" if missing else "notice", "Time travel.", text, note))


# --- what to show, and how ---


def _controls(page: Page, count: int) -> tuple[Filter, str, int | None]:
    with st.container(horizontal=True, key="filters"):
        text = st.text_input(
            "Filter topic or partition",
            key="q",
            bind="query-params",
            placeholder="Filter topic or partition",
            icon=":material/search:",
            max_chars=249,
            label_visibility="collapsed",
            width=196,
            live=True,
        )
        _warn_unknown("state", STATES)
        chosen_state = st.pills(
            "State",
            STATES,
            key="state",
            bind="query-params",
            label_visibility="collapsed",
            width="content",
            wrap=True,
        )
        with st.container(horizontal=True, key="filter-right", width="content"):
            at_ms = instant_control.control(page, "Time travel over the stored samples", width=150)
            _warn_unknown("rank", RANKS)
            rank = st.selectbox(
                "Rank by",
                RANKS,
                format_func=lambda name: f"Rank: {name}",
                key="rank",
                bind="query-params",
                label_visibility="collapsed",
                width=184,
            )
            _warn_unknown("view", VIEWS)
            how = st.segmented_control(
                "Show as",
                VIEWS,
                default=HEATMAP if count > HEATMAP_ABOVE else BARS,
                required=True,
                key="view",
                bind="query-params",
                label_visibility="collapsed",
            )
    return Filter(text or "", chosen_state, rank or RANKS[0]), how or BARS, at_ms


def _warn_unknown(name: str, options: Sequence[str]) -> None:
    linked = st.query_params.get(name)
    if linked is not None and linked.removeprefix("Rank: ") not in options:
        st.toast(f"There is no {name} {linked!r:.40}; this is the default.")


# --- three views ---


def _bars(page: Page, chosen: Filter, at_ms: int | None) -> None:
    reading = read(page, chosen, at_ms)
    matching = select(reading.rows, chosen, reading.outside or ())
    if not matching:
        _nothing(reading, chosen)
        return
    shown = matching[:BARS_MAX]
    selected = selected_card.chosen_of([name_of(row) for row in shown], reading)
    with st.container(key="grid-partitions"):
        with st.container(key="card-ranges"):
            card_head("ranges", "Ranges", _clause(reading, chosen, matching, len(shown)), rows=_twin(shown, reading))
            st.html(markup.legend())
            bars = [range_list.bar_of(row, reading.limits.get(row.topic)) for row in shown]
            with st.container(key=body_key(reading.view, "ranges")):
                st.plotly_chart(
                    partition_bars.figure(bars, page.colours, selected),
                    theme=None,
                    config=CONFIG,
                    key="bars",
                    on_select=selected_card.select_bar,
                    selection_mode="points",
                    alt=f"Remote and local ranges of {len(shown)} partitions, bytes behind the log end",
                )
        selected_card.summary(page, reading, selected, [name_of(row) for row in shown])


def _table(page: Page, chosen: Filter, at_ms: int | None) -> None:
    reading = read(page, chosen, at_ms)
    matching = select(reading.rows, chosen, reading.outside or ())
    if not matching:
        _nothing(reading, chosen)
        return
    names = [name_of(row) for row in matching]
    ranked = row_order("rows", names, (chosen, reading.view.cluster.cluster_id), reading.view.now_ms)
    order = ranked.names
    by_name = dict(zip(names, matching, strict=True))
    ordered = [by_name[name] for name in order]
    selected = selected_card.chosen_of(order, reading)
    with st.container(key="grid-partitions"):
        with st.container(key="card-table"):
            clause = _clause(reading, chosen, matching, len(matching)) + ranked.clause(page, reading.view.now_ms)
            card_head("table", "Partitions", clause, files=lambda: partition_table.frame(ordered))
            with st.container(key=body_key(reading.view, "table")):
                st.dataframe(
                    partition_table.shown(ordered),
                    column_config=partition_table.columns(len(ordered)),
                    hide_index=True,
                    height=min(640, 37 + 35 * len(ordered)),
                    key="rows",
                    on_select=lambda: selected_card.select_row(order),
                    selection_mode="single-row",
                    placeholder="?",
                    alt=f"{len(ordered)} partitions with their offsets and sizes",
                )
        near = order.index(selected) if selected in by_name else 0
        selected_card.summary(page, reading, selected, order[max(0, near - BARS_MAX) : near + BARS_MAX])


def _heatmap(page: Page, chosen: Filter, at_ms: int | None) -> None:
    reading = read(page, chosen, at_ms)
    matching = select(reading.rows, chosen, reading.outside or ())
    if not matching:
        _nothing(reading, chosen)
        return
    cells, bands = partition_heatmap.arrange(matching, reading.limits)
    with st.container(key="card-heatmap"):
        clause = f"{_count_text(len(matching))} · each cell is one partition, ordered by number"
        card_head("heatmap", "Pending upload by partition", clause, rows=_twin(matching[:HEATMAP_ABOVE], reading))
        st.html(partition_heatmap.legend_html(page.colours))
        with st.container(key=body_key(reading.view, "heatmap")):
            event = st.plotly_chart(
                partition_heatmap.figure(cells, bands, page.colours),
                theme=None,
                config=CONFIG,
                key="cells",
                on_select="rerun",
                selection_mode="points",
                alt=f"Pending upload of {len(matching)} partitions by topic",
            )
        st.html(
            '<div class="eb-note">Select a cell to open the partition. '
            f"Above {fmt.count(HEATMAP_ABOVE)} partitions this map comes first; "
            "amber starts at half of the topic's local retention, red at all of it.</div>"
        )
    name = partition_heatmap.picked(event)
    if name is not None:
        links.switch("partition", tp=name)


# --- words ---


def _twin(rows: Sequence[PartitionRow], reading: PartitionsData) -> object:
    return range_list.rows(rows, reading.limits)


def _count_text(count: int) -> str:
    return f"{fmt.count(count)} partition{'' if count == 1 else 's'}"


def _clause(reading: PartitionsData, chosen: Filter, matching: Sequence[PartitionRow], shown: int) -> str:
    every = f"{fmt.count(len(matching))} match of {_count_text(len(reading.rows))}" if chosen.active else ""
    what = every or _count_text(len(reading.rows))
    if shown < len(matching):
        what = f"top {shown} of {fmt.count(len(matching))}" + (" that match" if chosen.active else "")
    order = f"by {chosen.rank}"
    if reading.outside is None and chosen.state == GAP_OR_OUTSIDE:
        order += " · gaps only: lineage is not judged " + (
            "of then" if reading.at_ms else "here, the ledger is too large"
        )
    return f"{what}, {order}"


def _nothing(reading: PartitionsData, chosen: Filter) -> None:
    with st.container(key="card-none"):
        if not reading.rows:
            no_tiered_topic.render("none", reading.view.cluster)
            return
        of_name = f" “{chosen.text.strip()}”" if chosen.text.strip() else ""
        of_state = f" in “{chosen.state}”" if chosen.state else ""
        st.html(markup.empty(f"None of {_count_text(len(reading.rows))} matches{of_name}{of_state}."))
        if reading.outside is None and reading.at_ms is None:
            st.html(markup.empty("Lineage was not judged: the ledger is too large. Open a partition to see its own."))
        # The filter is outside this live part: the whole page has to run.
        if st.button("Clear the filter", on_click=_clear, key="clear"):
            st.rerun()


def _clear() -> None:
    st.session_state["q"] = ""
    st.session_state["state"] = None
