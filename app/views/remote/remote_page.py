"""Remote log: what is in the remote tier, how long each step takes, what is stuck, dangling or outside the lineage."""

from __future__ import annotations

import streamlit as st

from app import state
from app.components.cluster import health_text
from app.components.partition import ledger_at_instant
from app.components.partition.partition_filter import parse_name
from app.components.remote import open_copies, segment_cycle, segment_ledger
from app.components.shared import format as fmt
from app.components.shared import markup, style
from app.components.shared.cards import card_head
from app.components.shared.page import Page, ledger_key, live, open_page
from app.components.shared.selection import warn_unknown
from app.state import ClusterView
from app.theme import CONFIG
from app.views.remote import cost_cards, ledger_card, metadata_topic_cards
from app.views.remote.remote_data import LedgerQuery, RemoteData, read
from app.views.shared import comparison_card, instant_control
from backend.store.queries import partition_detail as detail_queries
from backend.store.queries import partitions as partition_queries
from backend.store.queries import remote_log as queries
from backend.store.queries.remote_log import Scope
from backend.tiering.segment_state import SegmentState


def render() -> None:
    page = open_page("Remote log", _fact)
    if page is None:
        return
    style.add("remote")
    try:
        ledger_query = _controls(page)
    except state.DatabaseUnreachable:
        st.html(markup.empty("? The database is away, and this was not read before."))
        return
    if ledger_query is None:
        return
    with st.container(key="card-cycle"):
        live(page, "cycle", _cycle, page, ledger_query)
    # Only with an instant: the ledger is what one comes for.
    if (
        ledger_query.at_ms is not None
        and ledger_query.scope.topic is not None
        and ledger_query.scope.partition is not None
    ):
        _compare(page, ledger_query.scope.topic, ledger_query.scope.partition)
    with st.container(key="grid-remote"):
        with st.container(key="left-remote"):
            with st.container(key="card-open"):
                live(page, "open", _open, page, ledger_query)
            with st.container(key="card-ledger"):
                live(page, "ledger", ledger_card.render, page, ledger_query)
        with st.container(key="right-remote"):
            with st.container(key="card-metadata"):
                live(page, "metadata", metadata_topic_cards.render_health, page)
            cost_cards.render(page, ledger_query)
            with st.container(key="card-unfollowed"):
                live(page, "unfollowed", metadata_topic_cards.render_unfollowed, page, ledger_query)


def _fact(view: ClusterView) -> str:
    totals = state.read_cached(queries.cycle_totals, view.cluster.cluster_id, Scope(), version=view.version)
    return f"{fmt.count(totals.copy_finished_segments)} segments · {fmt.size(totals.copy_finished_bytes)}"


# --- what is asked for ---


def _controls(page: Page) -> LedgerQuery | None:
    """None: it was said what cannot be shown. Raises DatabaseUnreachable."""
    with st.container(horizontal=True, key="filters"):
        typed = st.text_input(
            "Topic, partition or segment id",
            key="q",
            bind="query-params",
            placeholder="Topic, partition or segment id",
            icon=":material/search:",
            max_chars=260,
            label_visibility="collapsed",
            width=250,
        )
        warn_unknown("state", segment_ledger.STATES)
        chosen = st.pills(
            "State",
            segment_ledger.STATES,
            key="state",
            bind="query-params",
            label_visibility="collapsed",
            width="content",
            wrap=True,
        )
        with st.container(horizontal=True, key="filter-right", width="content"):
            at_ms = instant_control.control(page, "Time travel for one partition")
    scope, search = _scope(page, (typed or "").strip())
    if at_ms is not None and scope.partition is None:
        _no_past()
        return None
    return LedgerQuery(scope, search, chosen, at_ms)


def _no_past() -> None:
    with st.container(key="card-no-past"):
        st.html(
            markup.empty(
                "The past is computed from the stored events of one partition.",
                "Name one at the left, for example orders-7; or clear the time.",
            )
        )


def _scope(page: Page, typed: str) -> tuple[Scope, str]:
    """The part of the log that the text names; a text that names nothing filters what is listed.

    Raises DatabaseUnreachable.
    """
    if not typed:
        return Scope(), ""
    cluster_id, version = page.cluster_id, page.view().version
    key = parse_name(typed)
    if key is not None and _has_partitions(page, Scope(*key)):
        return Scope(*key), ""
    if _has_partitions(page, Scope(typed)):
        return Scope(typed), ""
    if len(typed) == ledger_card.SEGMENT_ID_CHARS:
        segment = state.read_cached(queries.find_segment, cluster_id, typed, version=version)
        if segment is not None:
            st.session_state[ledger_card.SEGMENT] = typed
            return Scope(segment.topic, segment.partition), ""
    return Scope(), typed


def _has_partitions(page: Page, scope: Scope) -> bool:
    totals = state.read_cached(queries.cycle_totals, page.cluster_id, scope, version=page.view().version)
    return totals.partitions > 0


# --- the cards ---


def _cycle(page: Page, ledger_query: LedgerQuery) -> None:
    reading = read(page, ledger_query)
    boxes = segment_cycle.boxes(
        reading.totals,
        hung=sum(copy.kind == open_copies.HUNG for copy in reading.copies),
        dangling=sum(copy.kind == open_copies.DANGLING for copy in reading.copies),
        oldest_delete_ms=_oldest_delete_ms(reading),
        judging_ms=reading.judging_ms,
    )
    taken = segment_cycle.steps(reading.timed)
    missing = (
        segment_cycle.gaps(reading.verdicts, reading.log_start) if ledger_query.scope.partition is not None else None
    )
    clause = f"{ledger_query.name} · median and p99 of the newest segments"
    card_head(
        "cycle",
        "Segment life cycle",
        clause,
        html=segment_cycle.verdict_pills(reading.verdicts, missing),
        rows=segment_cycle.rows(boxes, taken),
    )
    if ledger_query.at_ms is not None:
        _past_notice(page, reading, ledger_query.at_ms)
    with st.container(key=ledger_key(reading.view, "cycle")):
        st.html(segment_cycle.cycle_html(boxes, taken))


def _compare(page: Page, topic: str, number: int) -> None:
    """Of the partition that is there, else of the one that the ledger knows last."""
    version = page.view().version
    row = state.read_cached(partition_queries.partition, page.cluster_id, topic, number, version=version)
    ledgers = state.read_cached(detail_queries.ledgers, page.cluster_id, topic, number, version=version)
    topic_id = row.topic_id if row is not None else ledgers[0].topic_id if ledgers else None
    if topic_id is not None:
        comparison_card.card(page, topic, number, topic_id, first_elsewhere=True)


def _oldest_delete_ms(reading: RemoteData) -> int | None:
    begun = [
        verdict.segment.delete_started_ms
        for verdict in reading.verdicts
        if verdict.segment.state is SegmentState.DELETE_SEGMENT_STARTED
        and verdict.segment.delete_started_ms is not None
        and not verdict.segment.copy_failed
    ]
    return min(begun, default=None)


def _past_notice(page: Page, reading: RemoteData, at_ms: int) -> None:
    clock = page.clock(at_ms, reading.view.now_ms)
    if reading.past is None:
        most = fmt.count(queries.PAST_EVENTS_MAX)
        sentence = f"This partition has more than {most} stored events: its past is not computed here."
        st.html(markup.alert("warning", f"As of {clock}.", sentence))
        return
    origin = ledger_at_instant.origin_text(reading.past, clock, page.clock(reading.past.first_ms, reading.view.now_ms))
    note = "Lineage is not judged: the epochs of then are not stored."
    if at_ms > health_text.ledger_ms(reading.view):
        note = "The pipeline has not read so far yet. " + note
    st.html(markup.alert("notice" if reading.past.exact else "warning", "Time travel.", origin, note))


def _open(page: Page, ledger_query: LedgerQuery) -> None:
    reading = read(page, ledger_query)
    unknown = sum(copy.ratio is None for copy in reading.copies)
    clause = "age against the p99 of the partition's own copies; right of the line is suspicious"
    if unknown:
        clause += f" · {fmt.count(unknown)} without a p99 yet: in the table"
    rows = open_copies.rows(reading.copies) if reading.copies else None
    card_head("open", "Open copies", clause, rows=rows)
    drawn = [copy for copy in reading.copies if copy.ratio is not None]
    if not drawn:
        many = f"{fmt.count(unknown)} copies are open; none of their partitions has finished one to compare with."
        st.html(markup.empty("No copy is open now." if not unknown else many))
        return
    with st.container(key=ledger_key(reading.view, "open")):
        st.plotly_chart(
            open_copies.figure(reading.copies, page.colours),
            theme=None,
            config=CONFIG,
            key="open-copies",
            alt=f"{len(drawn)} open copies by age against the p99 of their partition",
        )
