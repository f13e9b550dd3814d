"""Activity: maintenance windows, with a form for one that begins now or later."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import observed, runbooks, state
from app.access.identity import READ_ONLY
from app.components.cluster import health_text, maintenance_form, maintenance_list
from app.components.cluster.maintenance_form import MaintenanceInput
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, live
from app.control import finding_notes

SHOWN: Final = 4
STEP_MS: Final = 5_000
REASON_CHARS_MAX: Final = 500
EVERY_BROKER: Final = "Every broker"
EVERY_RULE: Final = "Every rule"
LENGTH: Final = "maintenance-length"


def render(page: Page) -> None:
    """The card; what it lists stays as long as nothing changes."""
    with st.container(key="card-maintenance"):
        live(page, "maintenance", _windows_part, page)
        try:
            view = page.view()
            brokers = observed.brokers(view)
        except state.DatabaseUnreachable:
            return
        block = health_text.note_block(view, page.user.may_write, READ_ONLY)
        _form(page, [broker.broker_id for broker in brokers], block)


def _windows_part(page: Page) -> None:
    view = page.view()
    windows = observed.maintenance_windows(view)

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
    given = _given(page, broker_ids)
    hint = block or maintenance_form.refusal(given, state.now_ms())
    now = given.begins_ms is None
    st.button(
        "Begin now" if now else "Plan it",
        key="maintenance-begin",
        disabled=bool(hint),
        help=hint or "What it covers is shown and sends nothing until it ends",
        on_click=finding_notes.add_maintenance,
        args=(page.user, given),
    )


def _given(page: Page, broker_ids: list[int]) -> MaintenanceInput:
    """The fields, two a line: when, of what, why."""
    zone_text = "UTC" if page.zone is None else "your time"
    with st.container(horizontal=True, key="maintenance-when", vertical_alignment="bottom"):
        begins = st.datetime_input(
            f"Begins ({zone_text})", value=None, key="maintenance-begins", help="Now, while it is empty"
        )
        length = st.selectbox("Length", [*maintenance_form.LENGTHS, maintenance_form.UNTIL], index=2, key=LENGTH)
    ends = None
    if length == maintenance_form.UNTIL:
        ends = st.datetime_input(f"Ends ({zone_text})", value=None, key="maintenance-ends")
    with st.container(horizontal=True, key="maintenance-what", vertical_alignment="bottom"):
        slug = st.selectbox("Rule", [EVERY_RULE, *runbooks.slugs()], key="maintenance-rule")
        broker = st.selectbox("Broker", [EVERY_BROKER, *map(str, broker_ids)], key="maintenance-broker")
    topic = st.text_input("Topics", key="maintenance-topic", placeholder="all, or a pattern: logs-*")
    reason = st.text_input("Reason", key="maintenance-reason", max_chars=REASON_CHARS_MAX)
    return MaintenanceInput(
        begins_ms=maintenance_form.epoch_ms(begins, page.zone),
        minutes=maintenance_form.LENGTHS.get(length or ""),
        ends_ms=maintenance_form.epoch_ms(ends, page.zone),
        slug=None if slug == EVERY_RULE else slug,
        topic=(topic or "").strip(),
        broker_id=int(broker) if broker and broker.isdigit() else None,
        reason=(reason or "").strip(),
    )
