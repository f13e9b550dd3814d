"""Config: what is in effect, where it is set, by whom; and the safe way to change it."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import state
from app.components.cluster import audit_table
from app.components.shared import markup, style
from app.components.shared.cards import card_head
from app.components.shared.page import Page, live, open_page
from app.state import DatabaseUnreachable
from app.views.config import bootstrap_section, rule_section, settings_section
from backend.store.queries import audit

SECTIONS: Final = {
    "bootstrap": "Follower bootstrap",
    "brokers": "Brokers",
    "topics": "Topic tiering",
    "rules": "Rules",
    "history": "History",
}

AUDIT_MAX: Final = 100
_SHOWN: Final = "section-shown"


def render() -> None:
    section = _section()
    page = open_page("Config", SECTIONS[section].lower())
    if page is None:
        return
    style.add("plan", "config")
    st.segmented_control(
        "Section",
        list(SECTIONS),
        format_func=SECTIONS.__getitem__,
        default=section,
        required=True,
        key=_SHOWN,
        label_visibility="collapsed",
    )
    render = {
        "bootstrap": bootstrap_section.render,
        "brokers": settings_section.brokers,
        "topics": settings_section.topics,
        "rules": rule_section.render,
        "history": _history,
    }[section]
    try:
        render(page)
    except DatabaseUnreachable:
        st.html(markup.empty("? The database is away, and this was not read before."))


def _section() -> str:
    """The section of the control, at first that of the link. Not bound: a bound control's links hold its labels."""
    section = st.session_state.get(_SHOWN) or st.query_params.get("section") or "bootstrap"
    if section not in SECTIONS:
        st.toast(f"There is no section {section!r:.30}; this is {SECTIONS['bootstrap']}.")
        section = "bootstrap"
    st.query_params["section"] = section
    return str(section)


# --- history ---


def _history(page: Page) -> None:
    with st.container(key="card-history"):
        live(page, "history", _audit, page)


def _audit(page: Page) -> None:
    view = page.view()
    rows = state.read_cached(audit.entries, page.cluster_id, limit=AUDIT_MAX, version=view.read_ms)
    card_head(
        "config-history",
        "History",
        "who did what, refusals included, newest first",
        rows=audit_table.rows(rows) if rows else None,
    )
    if not rows:
        st.html(markup.empty("Nobody has planned or changed anything yet."))
        return
    st.html(audit_table.audit_html(rows, lambda at_ms: page.clock(at_ms, view.now_ms)))
    if len(rows) == AUDIT_MAX:
        st.html(f'<div class="eb-lines">The newest {AUDIT_MAX}; GET /v1/audit gives the rest.</div>')
