"""Config, rules: the rules, the thresholds that findings go by, and a form that changes one of them."""

from __future__ import annotations

import streamlit as st

from app.access.identity import READ_ONLY, User
from app.components.cluster import health_text
from app.components.config import rule_catalogue, rule_table
from app.components.config.rule_table import ThresholdLine
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page
from app.control import rule_changes
from app.control.api_client import ControlApiError
from app.control.user_api import control_api
from app.views.config import rule_settings_card
from app.views.config.rule_settings_card import PATTERN, REASON_CHARS_MAX, WRONG_PATTERN


def render(page: Page) -> None:
    """Asks the API at each run of the page: nothing else changes them. Raises DatabaseUnreachable."""
    block = health_text.note_block(page.view(), page.user.may_write, READ_ONLY)
    try:
        response = control_api(page.user).rule_settings()
    except ControlApiError as error:
        with st.container(key="card-rules"):
            card_head("rules", "Rules", "")
            st.html(markup.empty(f"? {error}"))
        return
    rule_changes.show_problem()
    rule_settings_card.render(page.user, rule_catalogue.lines(response), block)
    rows = rule_table.lines(response)
    with st.container(key="card-rules"):
        card_head("thresholds", "Thresholds", rule_table.clause(rows), rows=rule_table.frame(rows))
        _form(page.user, [row for row in rows if row.topics is None], block)
        st.html(rule_table.html(rows))


def _form(user: User, rows: list[ThresholdLine], block: str | None) -> None:
    by_label = {row.label: row for row in sorted(rows, key=lambda row: row.label)}
    with st.container(horizontal=True, key="rule-form", vertical_alignment="bottom"):
        label = st.selectbox(
            "Threshold", list(by_label), index=None, placeholder="Choose a threshold", key="rule-threshold", width=300
        )
        row = by_label.get(label or "")
        value = st.number_input(
            f"Value ({row.unit})" if row else "Value",
            value=row.value if row else None,
            key=f"rule-value-{label}",
            format="%g",
            step=None,
            width=140,
        )
        topics = (st.text_input("Topics", key="rule-topics", placeholder="all, or logs-*", width=160) or "").strip()
        reason = (st.text_input("Reason", key="rule-reason", max_chars=REASON_CHARS_MAX, width=220) or "").strip()
        wrong = "" if not topics or PATTERN.fullmatch(topics) else WRONG_PATTERN
        missing = "" if row else "Choose a threshold first."
        hint = block or missing or wrong or ("" if reason else "Give a reason first.")
        for name, key, new, note in (
            ("Set", "rule-set", value, "Written to the alerts file; in force at once"),
            ("Default", "rule-default", None, "Takes the value out of the alerts file"),
        ):
            st.button(
                name,
                key=key,
                disabled=bool(hint) or (key == "rule-set" and value is None),
                help=hint or note,
                on_click=rule_changes.change,
                args=(user, row.slug if row else "", {row.name if row else "": new}, topics or None, reason),
            )
