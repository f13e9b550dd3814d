"""Config, rules: every rule with its hold, severity and what it explains, and a form that sets those."""

from __future__ import annotations

import re
from typing import Final

import streamlit as st

from app.access.identity import User
from app.components.config import rule_catalogue
from app.components.config.rule_catalogue import RuleLine, RuleSettingLine
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.control import rule_changes

ON, OFF = "on", "off"
REASON_CHARS_MAX: Final = 500
PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,249}")
WRONG_PATTERN: Final = "The pattern has letters, digits, and . _ - * ? [ ]."


def render(user: User, rules: list[RuleLine], block: str | None) -> None:
    """The card."""
    with st.container(key="card-rule-catalogue"):
        rows = rule_catalogue.frame(rules) if rules else None
        card_head("rule-catalogue", "Rules", rule_catalogue.clause(rules), rows=rows)
        _form(user, {rule.slug: rule for rule in sorted(rules, key=lambda rule: rule.slug)}, block)
        st.html(rule_catalogue.html(rules) if rules else markup.empty("? The API has listed no rules."))


def _form(user: User, rules: dict[str, RuleLine], block: str | None) -> None:
    with st.container(horizontal=True, key="rule-settings-form", vertical_alignment="bottom"):
        slug = st.selectbox(
            "Rule", list(rules), index=None, placeholder="Choose a rule", key="rule-settings-rule", width=220
        )
        topics = (
            st.text_input("Topics", key="rule-settings-topics", placeholder="all, or logs-*", width=140) or ""
        ).strip()
        rule = rules.get(slug or "")
        now = RuleSettingLine() if rule is None else rule.settings.get(topics or None, RuleSettingLine())
        chosen = _fields(now, f"{slug}-{topics}")
        reason = (
            st.text_input("Reason", key="rule-settings-reason", max_chars=REASON_CHARS_MAX, width=220) or ""
        ).strip()
        values = rule_catalogue.changes(now, chosen)
        wrong = WRONG_PATTERN if topics and not PATTERN.fullmatch(topics) else ""
        missing = "Choose a rule first." if rule is None else wrong or ("" if values else "Nothing differs yet.")
        hint = block or missing or ("" if reason else "Give a reason first.")
        st.button(
            "Set",
            key="rule-settings-set",
            disabled=bool(hint),
            help=hint or "Written to the alerts file; in force at once",
            on_click=rule_changes.change,
            args=(user, slug or "", values, topics or None, reason),
        )


def _fields(now: RuleSettingLine, of: str) -> RuleSettingLine:
    """The controls with what is set; another rule or pattern has other values, so its controls are others."""
    hold_s = st.number_input(
        "Hold (s)",
        value=now.hold_s,
        min_value=0.0,
        max_value=rule_catalogue.HOLD_S_MAX,
        placeholder=rule_catalogue.BY_RULE,
        key=f"rule-settings-hold-{of}",
        format="%g",
        step=None,
        width=190,
    )
    severities = [rule_catalogue.BY_RULE, *rule_catalogue.SEVERITIES]
    severity = st.selectbox(
        "Severity",
        severities,
        index=severities.index(now.severity) if now.severity in severities else 0,
        key=f"rule-settings-severity-{of}",
        width=150,
    )
    state = st.selectbox("State", [ON, OFF], index=int(now.off), key=f"rule-settings-state-{of}", width=80)
    return RuleSettingLine(hold_s, None if severity == rule_catalogue.BY_RULE else severity, state == OFF)
