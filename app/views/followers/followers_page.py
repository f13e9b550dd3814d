"""Followers: who is catching up, in which phase, for how long, and why is one stuck?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from app import observed, state
from app.components.cluster import health_text
from app.components.config import config_matrix
from app.components.follower import follower_table, phase_timeline
from app.components.follower.stuck_follower import why_stuck
from app.components.shared import format as fmt
from app.components.shared import markup, style
from app.components.shared.cards import card_head, title_line
from app.components.shared.page import Page, body_key, live, open_page
from app.components.shared.selection import RowOrder, row_order, select_row, warn_unknown
from app.query_cache import SlidingMs
from app.state import ClusterView
from app.theme import CONFIG
from app.views.followers import depth_card, reason_card
from app.views.followers.reason_card import SELECTED, STEP_MS, TIMELINE_MS
from backend.store.queries import audit, config
from backend.store.queries import followers as queries
from backend.store.queries.followers import FOLLOWERS_MAX, Follower
from backend.tiering.follower_phase import FollowerPhase

PLANS_MAX: Final = 5
TABLE_ROWS: Final = 14
OUT_OF_SYNC: Final = (*(phase.value for phase in FollowerPhase if phase is not FollowerPhase.IN_SYNC), None)
ANY_BROKER: Final = "Any broker"
# Of an attached cluster; "known" in the table says it of each replica.
KAFKA_TELLS: Final = "Kafka tells who is in sync; every other phase is inferred from samples."


@dataclass(frozen=True, slots=True)
class FollowerFilter:
    """Selects followers: part of the partition's name, a phase (None: those that matter now), a broker."""

    name: str = ""
    phase: str | None = None
    broker_id: int | None = None

    @property
    def active(self) -> bool:
        return bool(self.name) or self.phase is not None or self.broker_id is not None


def render() -> None:
    page = open_page("Followers", _fact)
    if page is None:
        return
    style.add("followers")
    try:
        filters = _controls(page)
    except state.DatabaseUnreachable:
        st.html(markup.empty("? The database is away, and this was not read before."))
        return
    with st.container(key="card-phases"):
        live(page, "phases", _phases, page, filters)
    live(page, "replicas", _replicas, page, filters)


def _fact(view: ClusterView) -> str:
    cluster_id, version = view.cluster.cluster_id, view.version
    counts = state.read_cached(queries.phase_counts, cluster_id, version=version)
    out = state.read_cached(queries.followers, cluster_id, phases=OUT_OF_SYNC, version=version)
    return follower_table.counts_text(
        counts, sum(why_stuck(follower.replica, _judged_ms(view)) is not None for follower in out)
    )


def _judged_ms(view: ClusterView) -> int:
    """The moment of the newest sample: later events are not known here."""
    return view.now_ms - (view.ages.offsets_ms or 0) if health_text.stale(view) else view.now_ms


def _controls(page: Page) -> FollowerFilter:
    brokers = observed.brokers(page.view())
    names = [ANY_BROKER, *(f"Broker {row.broker_id}" for row in brokers)]
    with st.container(horizontal=True, key="filters"):
        name = st.text_input(
            "Part of a partition's name",
            key="tp",
            bind="query-params",
            placeholder="Topic or partition",
            icon=":material/search:",
            max_chars=260,
            label_visibility="collapsed",
            width=240,
            live=True,
        )
        options = [follower_table.ALL, *follower_table.PHASES]
        warn_unknown("phase", options)
        phase = st.pills(
            "Phase",
            options,
            key="phase",
            bind="query-params",
            label_visibility="collapsed",
            width="content",
            wrap=True,
        )
        warn_unknown("broker", names)
        broker = st.selectbox(
            "Broker", names, key="broker", bind="query-params", label_visibility="collapsed", width=130
        )
    number = None if broker in (None, ANY_BROKER) else int(str(broker).removeprefix("Broker "))
    return FollowerFilter((name or "").strip(), phase, number)


def read(page: Page, view: ClusterView, filters: FollowerFilter) -> list[Follower]:
    """The followers asked for; without a phase those out of sync and those that changed since the timeline began."""
    phases: tuple[str | None, ...] | None = OUT_OF_SYNC
    since: SlidingMs | None = SlidingMs.of(view.read_ms, TIMELINE_MS, step_ms=STEP_MS)
    if filters.phase == follower_table.ALL:
        phases, since = None, None
    elif filters.phase is not None:
        phases, since = (follower_table.PHASES[filters.phase],), None
    return state.read_cached(
        queries.followers,
        page.cluster_id,
        phases=phases,
        changed_since_ms=since,
        name=filters.name,
        broker_id=filters.broker_id,
        version=view.version,
    )


# --- the timeline ---


def _phases(page: Page, filters: FollowerFilter) -> None:
    view = page.view()
    followers = read(page, view, filters)[: phase_timeline.ROWS_MAX]
    now_ms = _judged_ms(view)
    since_ms = now_ms - TIMELINE_MS
    rows = [_row(page, view, follower, since_ms, now_ms) for follower in followers]

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    with st.container(horizontal=True, key="cardhead-phase-legend"):
        title_line("phase-legend", "Phases", f"last {TIMELINE_MS // 60_000} min", html=_legend(page))
        st.html(_flag_pill(page, view), width="content")
    if not rows:
        _nothing(page, view, filters)
        return
    with st.container(key=body_key(view, "phases")):
        st.plotly_chart(
            phase_timeline.figure(rows, since_ms, now_ms, _plans(page, view, since_ms), page.colours, page.zone),
            theme=None,
            config=CONFIG,
            key="phase-timeline",
            alt=f"Phases of {len(rows)} followers over the last 20 minutes",
        )
    with st.container(horizontal=True, key="phase-notes"):
        source = "Told by the embedded brokers." if view.cluster.kind == "embedded" else KAFKA_TELLS
        more = f" The first {len(rows)}; the rest is in the list." if len(rows) == phase_timeline.ROWS_MAX else ""
        st.html(f'<div class="eb-note">{source}{more}</div>')
        with st.popover("View as table", key="table-phases"):
            st.dataframe(phase_timeline.rows_table(rows, clock), hide_index=True, key="twin-phases", width="content")


def _legend(page: Page) -> str:
    return phase_timeline.legend_html(page.colours)


def _row(page: Page, view: ClusterView, follower: Follower, since_ms: int, now_ms: int) -> phase_timeline.TimelineRow:
    replica = follower.replica
    since = SlidingMs.of(now_ms, TIMELINE_MS, step_ms=STEP_MS)
    key = (replica.topic, replica.partition, replica.broker_id, since)
    events = state.read_cached(queries.phase_events, page.cluster_id, *key, version=view.version)
    changes: list[queries.PhaseChange] = []
    if not events:
        changes = state.read_cached(queries.phase_changes, page.cluster_id, *key, version=view.version)
    stretches = phase_timeline.stretches(follower, events, changes, since_ms, now_ms)
    return phase_timeline.row(follower, stretches, now_ms)


def _plans(page: Page, view: ClusterView, since_ms: int) -> list[tuple[int, str]]:
    operations = state.read_cached(audit.operations, page.cluster_id, limit=PLANS_MAX, version=view.read_ms // STEP_MS)
    return [
        (row.requested_ms, f"plan #{row.id} started")
        for row in operations
        if row.requested_ms is not None and row.requested_ms >= since_ms
    ]


def _flag_pill(page: Page, view: ClusterView) -> str:
    rows = state.read_cached(
        config.config_values, page.cluster_id, "broker", names=config_matrix.NAMES, version=view.version
    )
    brokers = observed.brokers(view)
    summary = config_matrix.summarize(config_matrix.broker_flags(brokers, rows))
    return markup.pill(f"Bootstrap from tiered offset: {summary.label}", "warning" if summary.mixed else None)


def _nothing(page: Page, view: ClusterView, filters: FollowerFilter) -> None:
    counts = state.read_cached(queries.phase_counts, page.cluster_id, version=view.version)
    total = sum(counts.values())
    if filters.active:
        st.html(markup.empty("No follower fits.", "Choose another phase or broker, or another part of a name."))
    elif total:
        st.html(markup.empty(f"All {fmt.count(total)} replicas are in sync.", "None changed its phase in this time."))
    else:
        st.html(markup.empty("No follower is known.", "Every partition has one replica, or none was sampled yet."))


# --- the list and why ---


def _replicas(page: Page, filters: FollowerFilter) -> None:
    view = page.view()
    followers = read(page, view, filters)
    now_ms = _judged_ms(view)
    by_name = {follower_table.name_of(listed): listed for listed in followers}
    ranked = row_order("follower-rows", list(by_name), (filters, page.cluster_id), view.now_ms)
    order = ranked.names
    ordered = [by_name[name] for name in order]
    # The details of the chosen row come first, the list below them.
    with st.container(key="grid-followers"):
        follower = reason_card.chosen(by_name, order, now_ms)
        if follower is not None:
            with st.container(key="card-catch-up"):
                reason_card.catch_up(page, view, follower, now_ms)
            with st.container(key="card-depth"):
                depth_card.render(page, view, follower, ordered, now_ms)
        with st.container(key="card-why"):
            reason_card.why(page, view, follower, now_ms)
    with st.container(key="card-replicas"):
        _list(page, view, filters, ordered, ranked, now_ms)


def _list(
    page: Page,
    view: ClusterView,
    filters: FollowerFilter,
    ordered: Sequence[Follower],
    ranked: RowOrder,
    now_ms: int,
) -> None:
    counts = state.read_cached(queries.phase_counts, page.cluster_id, version=view.version)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    files = (lambda: follower_table.frame(ordered, clock, now_ms)) if ordered else None
    pills = follower_table.pills_html(counts)
    card_head(
        "replicas", "Replicas", _clause(filters, ordered) + ranked.clause(page, view.now_ms), html=pills, files=files
    )
    if not ordered:
        st.html(markup.empty("Nothing to list: every follower has been in sync for a while."))
        return
    with st.container(key=body_key(view, "replicas")):
        st.dataframe(
            follower_table.shown(ordered, clock, now_ms),
            column_config=follower_table.columns(ordered),
            hide_index=True,
            height=37 + 35 * min(TABLE_ROWS, len(ordered)),
            key="follower-rows",
            on_select=lambda: select_row("follower-rows", SELECTED, ranked.names),
            selection_mode="single-row",
            placeholder="",
            alt=f"{len(ordered)} followers with phase, since when, target and evidence",
        )


def _clause(filters: FollowerFilter, followers: Sequence[Follower]) -> str:
    what = "out of sync, or changed in the last 20 min" if filters.phase is None else filters.phase.lower()
    many = f"the first {fmt.count(FOLLOWERS_MAX)}" if len(followers) >= FOLLOWERS_MAX else fmt.count(len(followers))
    return f"{many} · {what}"
