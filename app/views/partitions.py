"""Partitions: where does each partition's data live, which is furthest behind?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app import links, state
from app.components import format as fmt
from app.components import limits as limit_rules
from app.components import (
    lineage_verdicts,
    markup,
    partition_bars,
    partition_heatmap,
    partition_summary,
    partition_table,
    range_list,
    range_style,
)
from app.components.page import Page, body_key, card_head, live, open_page, source, standing_order
from app.components.partition_filter import (
    GAP_OR_OUTSIDE,
    RANKS,
    STATES,
    Filter,
    Key,
    name_of,
    parse_name,
    select,
)
from app.components.then_and_now import SAMPLE_VALID_INTERVALS
from app.state import View
from app.theme import CONFIG
from app.views import instant
from backend.store.queries import config as config_queries
from backend.store.queries import lineage as lineage_queries
from backend.store.queries import overview as overview_queries
from backend.store.queries import partitions as queries
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionRow

BARS_MAX = 22
HEATMAP_ABOVE = 2_000
BARS, HEATMAP, TABLE = VIEWS = ("Bars", "Heatmap", "Table")
SELECTED = "selected"


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything the page shows, read once per data version; ``outside`` None: too many segments to judge here."""

    view: View
    rows: list[PartitionRow]
    topics: dict[str, TopicRow]
    outside: Counter[Key] | None
    at_ms: int | None  # the instant that is shown; None: now

    @property
    def limits(self) -> dict[str, int | None]:
        return {name: limit_rules.pending_limit_bytes(topic) for name, topic in self.topics.items()}


def render() -> None:
    page = open_page("Partitions", "where each partition's data lives")
    if page is None:
        return
    range_style.apply()
    chosen, how, at_ms = _controls(page, _count(page))
    if at_ms is not None:
        live(page, "past", _say_past, page, at_ms)
    live(page, f"partitions-{how}", {BARS: _bars, HEATMAP: _heatmap, TABLE: _table}[how], page, chosen, at_ms)


def _count(page: Page) -> int:
    try:
        return len(_rows(page, page.view(), None))
    except state.DatabaseAway:
        return 0  # the alert of the page says why


def _rows(page: Page, view: View, at_ms: int | None) -> list[PartitionRow]:
    if at_ms is None:
        return state.read_cached(queries.partitions, page.cluster_id, version=view.version)
    # The past does not change: read again only as often as anything is.
    since_ms = at_ms - SAMPLE_VALID_INTERVALS * view.cluster.sample_interval_ms
    return state.read_cached(queries.partitions_then, page.cluster_id, at_ms, since_ms, version=0)


def _say_past(page: Page, at_ms: int) -> None:
    """What the list of an instant is made of."""
    view = page.view()
    rows = _rows(page, view, at_ms)
    missing = sum(row.error is not None for row in rows)
    clock = page.clock(at_ms, view.now_ms)
    words = f"As of {clock}: each partition by its last sample until then."
    if missing:
        words += f" Of {_count_words(missing)} no sample of that time is kept."
    note = "Limits are those of now; open copies and lineage of then are not stored, see the Remote log."
    st.html(markup.alert("warning" if missing else "notice", "Time travel.", words, note))


def read(page: Page, chosen: Filter, at_ms: int | None = None) -> Reading:
    """One consistent set of facts. Lineage of all segments is judged only when the filter asks. Raises DatabaseAway."""
    view = page.view()
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=view.version)
    outside: Counter[Key] | None = Counter()
    if at_ms is not None:
        outside = None
    elif chosen.state == GAP_OR_OUTSIDE:
        segments = state.read_cached(lineage_queries.finished_segments, page.cluster_id, version=view.version)
        chains = state.read_cached(lineage_queries.leader_chains, page.cluster_id, version=view.version)
        outside = None if segments is None else lineage_verdicts.outside_by_partition(segments, chains)
    return Reading(view, _rows(page, view, at_ms), {topic.topic: topic for topic in topics}, outside, at_ms)


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
        _say_unknown("state", STATES)
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
            at_ms = instant.control(page, "Time travel over the stored samples", width=150)
            _say_unknown("rank", RANKS)
            rank = st.selectbox(
                "Rank by",
                RANKS,
                format_func=lambda name: f"Rank: {name}",
                key="rank",
                bind="query-params",
                label_visibility="collapsed",
                width=184,
            )
            _say_unknown("view", VIEWS)
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


def _say_unknown(name: str, known: Sequence[str]) -> None:
    wanted = st.query_params.get(name)
    if wanted is not None and wanted.removeprefix("Rank: ") not in known:
        st.toast(f"There is no {name} {wanted!r:.40}; this is the default.")


# --- three views ---


def _bars(page: Page, chosen: Filter, at_ms: int | None) -> None:
    reading = read(page, chosen, at_ms)
    found = select(reading.rows, chosen, reading.outside or ())
    if not found:
        _nothing(reading, chosen)
        return
    shown = found[:BARS_MAX]
    selected = _selected([name_of(row) for row in shown], reading)
    with st.container(key="grid-partitions"):
        with st.container(key="card-ranges"):
            card_head("ranges", "Ranges", _clause(reading, chosen, found, len(shown)), rows=_twin(shown, reading))
            st.html(markup.legend())
            bars = [range_list.bar_of(row, reading.limits.get(row.topic)) for row in shown]
            with st.container(key=body_key(reading.view, "ranges")):
                st.plotly_chart(
                    partition_bars.figure(bars, page.colours, selected),
                    theme=None,
                    config=CONFIG,
                    key="bars",
                    on_select=_take_bar,
                    selection_mode="points",
                    alt=f"Remote and local ranges of {len(shown)} partitions, bytes behind the log end",
                )
        _summary(page, reading, selected, [name_of(row) for row in shown])


def _table(page: Page, chosen: Filter, at_ms: int | None) -> None:
    reading = read(page, chosen, at_ms)
    found = select(reading.rows, chosen, reading.outside or ())
    if not found:
        _nothing(reading, chosen)
        return
    names = [name_of(row) for row in found]
    # The selection of a table is a row number: the order stands until the filter changes.
    order = standing_order("table_order", names, (chosen, reading.view.cluster.cluster_id))
    by_name = dict(zip(names, found, strict=True))
    ordered = [by_name[name] for name in order]
    selected = _selected(order, reading)
    with st.container(key="grid-partitions"):
        with st.container(key="card-table"):
            clause = _clause(reading, chosen, found, len(found))
            card_head("table", "Partitions", clause, files=lambda: partition_table.frame(ordered))
            with st.container(key=body_key(reading.view, "table")):
                st.dataframe(
                    partition_table.shown(ordered),
                    column_config=partition_table.columns(len(ordered)),
                    hide_index=True,
                    height=min(640, 37 + 35 * len(ordered)),
                    key="rows",
                    on_select=lambda: _take_row(order),
                    selection_mode="single-row",
                    placeholder="?",
                    alt=f"{len(ordered)} partitions with their offsets and sizes",
                )
        near = order.index(selected) if selected in by_name else 0
        _summary(page, reading, selected, order[max(0, near - BARS_MAX) : near + BARS_MAX])


def _heatmap(page: Page, chosen: Filter, at_ms: int | None) -> None:
    reading = read(page, chosen, at_ms)
    found = select(reading.rows, chosen, reading.outside or ())
    if not found:
        _nothing(reading, chosen)
        return
    cells, bands = partition_heatmap.arrange(found, reading.limits)
    with st.container(key="card-heatmap"):
        clause = f"{_count_words(len(found))} · each cell is one partition, ordered by number"
        card_head("heatmap", "Pending upload by partition", clause, rows=_twin(found[:HEATMAP_ABOVE], reading))
        st.html(partition_heatmap.legend_html(page.colours))
        with st.container(key=body_key(reading.view, "heatmap")):
            event = st.plotly_chart(
                partition_heatmap.figure(cells, bands, page.colours),
                theme=None,
                config=CONFIG,
                key="cells",
                on_select="rerun",
                selection_mode="points",
                alt=f"Pending upload of {len(found)} partitions by topic",
            )
        st.html(
            '<div class="eb-note">Select a cell to open the partition. '
            f"Above {fmt.count(HEATMAP_ABOVE)} partitions this map comes first; "
            "amber starts at half of the topic's local retention, red at all of it.</div>"
        )
    name = partition_heatmap.picked(event)
    if name is not None:
        st.switch_page(links.page("partition"), query_params={"tp": name})


# --- the selected partition ---


def _take_bar() -> None:
    name = partition_bars.picked(st.session_state.get("bars"))
    if name is not None:
        st.session_state[SELECTED] = name


def _take_row(order: Sequence[str]) -> None:
    rows = st.session_state["rows"].selection.rows
    if rows and rows[0] < len(order):
        st.session_state[SELECTED] = order[rows[0]]


def _take_pick(key: str) -> None:
    st.session_state[SELECTED] = st.session_state[key]


def _selected(shown: Sequence[str], reading: Reading) -> str:
    """The chosen partition while it exists, else the first shown."""
    name = st.session_state.get(SELECTED)
    key = parse_name(name) if name else None
    if key is None or not any((row.topic, row.partition) == key for row in reading.rows):
        return shown[0]
    return str(name)


def _summary(page: Page, reading: Reading, name: str, shown: Sequence[str]) -> None:
    row = next(row for row in reading.rows if name_of(row) == name)
    topic = reading.topics.get(row.topic)
    version = reading.view.version
    # Of then the open copies are not known.
    now_ms = reading.view.now_ms if reading.at_ms is None else reading.at_ms
    every = state.read_cached(queries.open_segments, page.cluster_id, version=version) if reading.at_ms is None else []
    open_segments = [segment for segment in every if (segment.topic, segment.partition) == (row.topic, row.partition)]
    copying = ((row.topic, row.partition),) if open_segments else ()
    p99 = state.read_cached(overview_queries.copy_p99_ms, page.cluster_id, copying, version=version)
    step_ms = max(1000, page.range_ms // 600)
    since_ms = (now_ms - page.range_ms) // step_ms * step_ms
    until = () if reading.at_ms is None else (reading.at_ms,)
    points = state.read_cached(
        queries.offset_history, page.cluster_id, row.topic, row.partition, since_ms, *until, version=version
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
            on_change=_take_pick,
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
            why = f'<div class="eb-sub-title">Why local data is not deleted {source("selected")}</div>'
            st.html(why + _lines(row, topic))
            _pending_chart(page, row, reading, points)
        with st.container(key="open-partition"):
            st.page_link(
                links.page("partition"),
                label="Open partition",
                icon=":material/open_in_full:",
                query_params={"tp": name} if reading.at_ms is None else {"tp": name, "at": instant.link(reading.at_ms)},
                width="stretch",
            )


def _lines(row: PartitionRow, topic: TopicRow | None) -> str:
    inner = "".join(f"<div>{markup.text(line)}</div>" for line in partition_summary.why_local(row, topic))
    return f'<div class="eb-lines">{inner}</div>'


def _pending_chart(page: Page, row: PartitionRow, reading: Reading, points: Sequence[queries.PartitionPoint]) -> None:
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


# --- words ---


def _twin(rows: Sequence[PartitionRow], reading: Reading) -> object:
    return range_list.rows(rows, reading.limits)


def _count_words(count: int) -> str:
    return f"{fmt.count(count)} partition{'' if count == 1 else 's'}"


def _clause(reading: Reading, chosen: Filter, found: Sequence[PartitionRow], shown: int) -> str:
    every = f"{fmt.count(len(found))} match of {_count_words(len(reading.rows))}" if chosen.active else ""
    what = every or _count_words(len(reading.rows))
    if shown < len(found):
        what = f"top {shown} of {fmt.count(len(found))}" + (" that match" if chosen.active else "")
    order = f"by {chosen.rank}"
    if reading.outside is None and chosen.state == GAP_OR_OUTSIDE:
        order += " · gaps only: lineage is not judged " + (
            "of then" if reading.at_ms else "here, the ledger is too large"
        )
    return f"{what}, {order}"


def _nothing(reading: Reading, chosen: Filter) -> None:
    with st.container(key="card-none"):
        if not reading.rows:
            st.html(
                markup.empty(
                    "No topic has remote.storage.enable=true.", "Enable tiering on a topic, or start the demo."
                )
            )
            return
        said = f" “{chosen.text.strip()}”" if chosen.text.strip() else ""
        of_state = f" in “{chosen.state}”" if chosen.state else ""
        st.html(markup.empty(f"None of {_count_words(len(reading.rows))} matches{said}{of_state}."))
        if reading.outside is None and reading.at_ms is None:
            st.html(markup.empty("Lineage was not judged: the ledger is too large. Open a partition to see its own."))
        # The filter is outside this live part: the whole page has to run.
        if st.button("Clear the filter", on_click=_clear, key="clear"):
            st.rerun()


def _clear() -> None:
    st.session_state["q"] = ""
    st.session_state["state"] = None
