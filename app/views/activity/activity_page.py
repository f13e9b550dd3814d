"""Activity: the audit, incidents, events of brokers, and plans with their reverts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from app import links, state
from app.access.identity import READ_ONLY
from app.components.cluster import activity_timeline, audit_table, cluster_changes, health_text
from app.components.follower.stuck_follower import is_ordinary_retry
from app.components.plan import plan_dialog, plan_text
from app.components.shared import format as fmt
from app.components.shared import markup, style
from app.components.shared.cards import card_head
from app.components.shared.page import Page, body_key, live, open_page
from app.components.shared.selection import warn_unknown
from app.query_cache import SlidingMs
from app.state import ClusterView
from app.theme import CONFIG
from app.views.activity import activity_rules, cause_card, maintenance_card, runbook_view
from backend.store.queries import activity as queries
from backend.store.queries import audit, overview
from backend.store.queries.audit import ROWS_MAX, AuditRow, OperationRow

SHOWN_MAX: Final = 12
PLANS_MAX: Final = 8
EVENTS_SHOWN: Final = 8
# The words are what the URL holds; behind them the audit's results.
RESULTS: Final = {"Verified": "verified", "Accepted": "accepted", "Refused": "refused", "Failed": "failed"}
STEP_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects entries of the audit."""

    search: str = ""
    result: str | None = None


def render() -> None:
    page = open_page("Activity", "who did what, what was wrong, what brokers told")
    if page is None:
        return
    style.add("plan", "activity")
    plan_dialog.host(page)
    cause_card.render(page)
    with st.container(key="card-timeline"):
        live(page, "timeline", _timeline, page)
    with st.container(key="grid-activity"):
        with st.container(key="left-activity"):
            with st.container(key="card-audit"):
                filters = _controls()
                live(page, "audit", _audit, page, filters)
            with st.container(key="card-plans"):
                _plans_part(page)
            with st.container(key="card-broker-events"):
                live(page, "broker-events", _broker_events, page)
        with st.container(key="right-activity"):
            runbook_view.render()
            maintenance_card.render(page)
            activity_rules.render(page)


def _entries(page: Page, view: ClusterView) -> list[AuditRow]:
    # The audit does not move the data version: it is asked for on every read, by index.
    return state.read_cached(audit.entries, page.cluster_id, limit=ROWS_MAX, version=view.read_ms // STEP_MS)


def _events(page: Page, view: ClusterView) -> list[queries.BrokerEvent]:
    since = SlidingMs.of(view.read_ms, page.range_ms, step_ms=STEP_MS)
    events = state.read_cached(queries.broker_events, page.cluster_id, since, version=view.version)
    # A passing answer that a follower asks again for is on the Partition and Followers pages only.
    return [event for event in events if event.type != "phase" or not is_ordinary_retry(event.body)]


def _samples(page: Page, view: ClusterView) -> list[overview.ClusterSample]:
    """The cluster's totals, in the steps in which the Overview reads them."""
    since = SlidingMs.of(view.read_ms, page.range_ms, step_ms=max(1000, page.range_ms // 600))
    return state.read_cached(overview.history, page.cluster_id, since, version=view.version)


# --- the timeline ---


def _timeline(page: Page) -> None:
    view = page.view()
    now_ms = view.now_ms
    since_ms = now_ms - page.range_ms
    since = SlidingMs.of(view.read_ms, page.range_ms, step_ms=STEP_MS)
    findings = state.read_cached(queries.findings, page.cluster_id, since, version=view.version)
    bars = activity_timeline.bars(findings, since_ms, now_ms)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, now_ms)

    samples = _samples(page, view)
    marks = [
        *activity_timeline.ticks(_entries(page, view), _events(page, view), since_ms),
        *cluster_changes.starts(view.processes.values(), since_ms),
        *cluster_changes.holes(samples, view.cluster.sample_interval_ms, clock),
        *cluster_changes.partition_changes(samples),
    ]
    clause = f"last {page.range_text} · bars are incidents, ticks are moments"
    if len(findings) >= queries.FINDINGS_MAX:
        clause += f" · of the incidents those that are open and the newest, {fmt.count(queries.FINDINGS_MAX)} in all"
    table = activity_timeline.rows(bars, marks, clock) if bars or marks else None
    card_head("timeline", "Incidents and changes", clause, rows=table)
    with st.container(key=body_key(view, "timeline")):
        st.plotly_chart(
            activity_timeline.figure(bars, marks, since_ms, now_ms, page.colours, page.zone),
            theme=None,
            config=CONFIG,
            key="activity-timeline",
            alt=f"{len(bars)} incidents and {len(marks)} moments over the last {page.range_text}",
        )


# --- the audit ---


def _controls() -> AuditFilter:
    with st.container(horizontal=True, key="audit-filters"):
        search = st.text_input(
            "Person, object or plan",
            key="q",
            bind="query-params",
            placeholder="Person, object, plan",
            icon=":material/search:",
            max_chars=120,
            label_visibility="collapsed",
            width=220,
            live=True,
        )
        warn_unknown("kind", list(RESULTS))
        result = st.pills(
            "Result",
            list(RESULTS),
            key="kind",
            bind="query-params",
            label_visibility="collapsed",
            width="content",
            wrap=True,
        )
    return AuditFilter((search or "").strip(), RESULTS.get(result or ""))


def _audit(page: Page, filters: AuditFilter) -> None:
    view = page.view()
    every = _entries(page, view)
    entries = audit_table.select(every, filters.search, filters.result)
    listed = f"the newest {fmt.count(ROWS_MAX)} entries" if len(every) >= ROWS_MAX else _count(len(every))
    clause = f"{_count(len(entries))} of {listed}" if len(entries) < len(every) else f"{listed}, refusals included"
    with st.container(horizontal=True, key="audit-head"):
        card_head("audit", "Audit", clause, rows=audit_table.rows(entries) if entries else None)
        if entries:
            st.download_button(
                "Export CSV",
                audit_table.csv(entries),
                file_name="ebbline-audit.csv",
                mime="text/csv",
                key="export",
                on_click="ignore",
                type="tertiary",
                icon=":material/download:",
            )
    if not every:
        st.html(
            markup.empty("Nobody has planned or changed anything yet.", "Every attempt is kept here, refused ones too.")
        )
    elif not entries:
        st.html(markup.empty("No entry fits.", "Search for another person, object or plan, or choose no result."))
    else:
        st.html(audit_table.audit_html(entries[:SHOWN_MAX], lambda at_ms: page.clock(at_ms, view.now_ms)))
        if len(entries) > SHOWN_MAX:
            more = fmt.count(len(entries) - SHOWN_MAX)
            st.html(f'<div class="eb-lines">{more} more in the table and in the file.</div>')


def _count(number: int) -> str:
    return f"{fmt.count(number)} entr{'y' if number == 1 else 'ies'}"


# --- plans and the way back ---


def _operations(page: Page, view: ClusterView) -> list[OperationRow]:
    return state.read_cached(audit.operations, page.cluster_id, limit=PLANS_MAX, version=view.read_ms)


def _sign(page: Page, view: ClusterView) -> tuple[object, ...]:
    """Changes when the buttons outside of live parts must be drawn again."""
    return (_block(page, view), tuple((row.id, row.state) for row in _operations(page, view)))


def _block(page: Page, view: ClusterView) -> str | None:
    return health_text.write_block(view, page.user.may_write, READ_ONLY)


def _plans_part(page: Page) -> None:
    """Outside of live parts, because its buttons open a dialog."""
    try:
        view = page.view()
        operations, sign = _operations(page, view), _sign(page, view)
    except state.DatabaseUnreachable:
        st.html(markup.card_title("Plans") + markup.empty("? The database is away, and this was not read before."))
        return
    block = sign[0]
    lines = [(row, plan_text.change_line(row)) for row in operations]
    card_head("plans", "Plans", "newest first", rows=_plan_rows(page, view, operations) if operations else None)
    if not lines:
        st.html(markup.empty("Nothing has been planned yet.", "Changes begin on the Config page."))
        links.link("config", "Config →")
    with st.container(key="plan-list"):
        for row, line in lines:
            with st.container(horizontal=True, key=f"plan-row-{row.id}"):
                st.html(_plan_html(page, row, line, view.now_ms))
                if line.revertible:
                    st.button(
                        "Revert…",
                        key=f"revert-{row.id}",
                        type="tertiary",
                        disabled=block is not None,
                        help=str(block) if block else f"Plan the way back from plan #{row.id}",
                        on_click=plan_dialog.revert,
                        args=(page.user, view.cluster.name, row.id),
                    )
    live(page, "watch", _watch, page, sign)


def _watch(page: Page, drawn: tuple[object, ...]) -> None:
    """Draws the page again when its buttons no longer fit what is in the database."""
    if _sign(page, page.view()) != drawn:
        st.rerun()


def _plan_html(page: Page, row: OperationRow, line: plan_text.ChangeLine, now_ms: int) -> str:
    what = f"#{row.id} {line.scope}: {line.change}"
    reason = f" · {line.reason}" if line.reason else ""
    return (
        f'<div class="eb-plan"><div>{markup.text(what)} {plan_text.state_html(line.state)}</div>'
        f'<div class="eb-clause">{markup.text(f"{page.clock(line.at_ms, now_ms)} · {line.who}{reason}")}</div></div>'
    )


def _plan_rows(page: Page, view: ClusterView, operations: list[OperationRow]) -> pd.DataFrame:
    lines = [plan_text.change_line(row) for row in operations]
    return pd.DataFrame(
        {
            "plan": [row.id for row in operations],
            "kind": [row.kind for row in operations],
            "object": [line.scope for line in lines],
            "change": [line.change for line in lines],
            "state": [line.state for line in lines],
            "who": [line.who for line in lines],
            "when": [page.clock(line.at_ms, view.now_ms) for line in lines],
            "reason": [line.reason for line in lines],
            "result": [str((row.result or {}).get("sentence") or "") for row in operations],
            "reverts": [row.reverts_id for row in operations],
            "command": [" ; ".join(row.cli or []) for row in operations],
        }
    )


# --- events of brokers ---


def _broker_events(page: Page) -> None:
    view = page.view()
    events = _events(page, view)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    clause = f"leader changes and failures, last {page.range_name}"
    rows = activity_timeline.event_rows(events, clock) if events else None
    card_head("broker-events", "Broker events", clause, rows=rows)
    if not events:
        why = "None was told in this time." if view.cluster.kind == "embedded" else "Apache Kafka tells no such events."
        st.html(markup.empty(why))
        return
    with st.container(key=body_key(view, "broker-events")):
        st.html(activity_timeline.events_html(events[:EVENTS_SHOWN], clock))
    if len(events) > EVENTS_SHOWN:
        more = f"{fmt.count(len(events) - EVENTS_SHOWN)} more in the table"
        full = (
            f"; the newest {queries.BROKER_EVENTS_MAX} are listed" if len(events) >= queries.BROKER_EVENTS_MAX else ""
        )
        st.html(f'<div class="eb-lines">{more}{full}.</div>')
