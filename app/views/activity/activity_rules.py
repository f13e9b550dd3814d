"""Activity: the alert rules, and the same rules as a file for Prometheus."""

from __future__ import annotations

from functools import partial
from typing import Final

import streamlit as st

from app import observed, runbooks
from app.access.identity import User
from app.components.cluster import alert_rules
from app.components.shared.cards import card_head, download
from app.components.shared.page import Page, body_key, live
from app.control.api_client import ControlApiError
from app.control.user_api import reading_api

SHOWN: Final = 4


def render(page: Page) -> None:
    """The card; the file is asked of the control API at its download."""
    with st.container(key="card-rules"):
        live(page, "rules", _rules, page)
        rules_file = partial(_rules_file, page.user)
        download("rules", "Download Prometheus rules", rules_file, "ebbline.rules.yml", "application/yaml")


def _rules(page: Page) -> None:
    view = page.view()
    findings = observed.open_findings(view)
    rules = alert_rules.rules(runbooks.slugs(), findings)
    card_head("rules", "Alert rules", alert_rules.clause(rules), rows=alert_rules.rows(rules, view.now_ms))
    firing = sum(rule.since_ms is not None for rule in rules)
    with st.container(key=body_key(view, "rules")):
        st.html(alert_rules.rules_html(rules, view.now_ms, max(SHOWN, min(firing + 1, 2 * SHOWN))))


def _rules_file(user: User) -> bytes:
    try:
        return reading_api(user).alert_rules()
    except ControlApiError as error:
        # No YAML of rules, so that Prometheus refuses it; who opens it reads why.
        return f"No rules were written: {error}\n`ebbline rules` prints them without the control API.\n".encode()
