"""Config, rules: the thresholds that findings go by, and a form that changes one of them."""

from __future__ import annotations

import re
from typing import Final

import streamlit as st

from app.access.identity import READ_ONLY, User
from app.components.cluster import health_text
from app.components.config import rule_table
from app.components.config.rule_table import ThresholdLine
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page
from app.control.api_client import ControlApiError
from app.control.user_api import control_api, debounce

REASON_CHARS_MAX: Final = 500
_PROBLEM: Final = "rule-problem"
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,249}")


def render(page: Page) -> None:
    """Asks the API at each run of the page: nothing else changes them. Raises DatabaseUnreachable."""
    block = health_text.note_block(page.view(), page.user.may_write, READ_ONLY)
    with st.container(key="card-rules"):
        try:
            rows = rule_table.lines(control_api(page.user).rule_settings())
        except ControlApiError as error:
            card_head("rules", "Rules", "")
            st.html(markup.empty(f"? {error}"))
            return
        card_head("rules", "Rules", rule_table.clause(rows), rows=rule_table.frame(rows))
        problem = st.session_state.get(_PROBLEM)
        if problem:
            st.html(markup.alert("critical", "Nothing was changed.", str(problem)))
        _form(page.user, [row for row in rows if row.topics is None], block)
        st.html(rule_table.html(rows))
        st.html('<div class="eb-lines">Holds, severities and rules that are off: docs/alerts.md.</div>')


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
        wrong = (
            "" if not topics or _PATTERN.fullmatch(topics) else "The pattern has letters, digits, and . _ - * ? [ ]."
        )
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
                on_click=_change,
                args=(user, row.slug if row else "", row.name if row else "", new, topics or None, reason),
            )


def _change(user: User, slug: str, name: str, value: float | None, topics: str | None, reason: str) -> None:
    with debounce(f"rule {slug} {name} {value} {topics}") as first:
        if not first:
            return
        st.session_state.pop(_PROBLEM, None)
        try:
            control_api(user).change_rule(slug, {name: value}, topics, reason)
        except ControlApiError as error:
            st.session_state[_PROBLEM] = str(error)
