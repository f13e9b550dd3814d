"""Activity: maintenance windows, with a form for one that begins now."""

from __future__ import annotations

import re
from typing import Final

import streamlit as st

from app import state
from app.access.identity import READ_ONLY
from app.components.cluster import health_text, maintenance_list
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, live
from app.control import finding_notes
from app.query_cache import SlidingMs
from app.state import ClusterView
from backend.store.maintenance_window import MaintenanceWindow
from backend.store.queries import maintenance, overview

SHOWN: Final = 4
STEP_MS: Final = 5_000
MINUTES: Final = {"30 minutes": 30, "1 hour": 60, "2 hours": 120, "4 hours": 240, "8 hours": 480, "1 day": 1_440}
REASON_CHARS_MAX: Final = 500
EVERY_BROKER: Final = "Every broker"
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,249}")


def render(page: Page) -> None:
    """The card; what it lists stays as long as nothing changes."""
    with st.container(key="card-maintenance"):
        live(page, "maintenance", _windows_part, page)
        try:
            view = page.view()
            brokers = state.read_cached(overview.brokers, page.cluster_id, version=view.version)
        except state.DatabaseUnreachable:
            return
        block = health_text.note_block(view, page.user.may_write, READ_ONLY)
        _form(page, [broker.broker_id for broker in brokers], block)


def _windows(page: Page, view: ClusterView) -> list[MaintenanceWindow]:
    moment = SlidingMs.of(view.read_ms, step_ms=STEP_MS)
    return state.read_cached(maintenance.windows, page.cluster_id, moment, version=view.version)


def _windows_part(page: Page) -> None:
    view = page.view()
    windows = _windows(page, view)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    rows = maintenance_list.rows(windows, view.now_ms, clock) if windows else None
    card_head("maintenance", "Maintenance", "findings in a window send nothing", rows=rows)
    finding_notes.show_problem()
    if not windows:
        st.html(markup.empty("No window is open or planned."))
    block = health_text.note_block(view, page.user.may_write, READ_ONLY)
    for window in windows[:SHOWN]:
        with st.container(horizontal=True, key=f"plan-row-maintenance-{window.id}"):
            st.html(maintenance_list.line_html(window, view.now_ms))
            st.button(
                "End",
                key=f"maintenance-end-{window.id}",
                type="tertiary",
                disabled=block is not None,
                help=block or "Ends it now; what is still open is sent then",
                on_click=finding_notes.end_maintenance,
                args=(page.user, window.id),
            )
    if len(windows) > SHOWN:
        st.html(f'<div class="eb-lines">{len(windows) - SHOWN} more in the table.</div>')


def _form(page: Page, broker_ids: list[int], block: str | None) -> None:
    length = st.selectbox("Length", list(MINUTES), index=2, key="maintenance-length")
    topic = (st.text_input("Topics", key="maintenance-topic", placeholder="all, or a pattern: logs-*") or "").strip()
    broker = st.selectbox("Broker", [EVERY_BROKER, *map(str, broker_ids)], key="maintenance-broker")
    reason = (st.text_input("Reason", key="maintenance-reason", max_chars=REASON_CHARS_MAX) or "").strip()
    wrong = "" if not topic or _PATTERN.fullmatch(topic) else "The pattern has letters, digits, and . _ - * ? [ ]."
    hint = block or wrong or ("" if reason else "Give a reason first.")
    st.button(
        "Begin now",
        key="maintenance-begin",
        disabled=bool(hint),
        help=hint or "What it covers is shown and sends nothing until it ends",
        on_click=finding_notes.begin_maintenance,
        args=(
            page.user,
            MINUTES.get(length or "", 60),
            topic or None,
            int(broker) if broker and broker.isdigit() else None,
            reason,
        ),
    )
