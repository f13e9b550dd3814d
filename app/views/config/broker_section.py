"""Config, brokers: the form that changes copy limits and pools, on all brokers or one, held against Kafka's rules."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import observed, state
from app.access.identity import READ_ONLY
from app.components.cluster import health_text
from app.components.config import broker_form
from app.components.config.broker_form import BrokerScope
from app.components.plan import plan_dialog
from app.components.shared import markup
from app.components.shared.page import Page, live
from app.views.config import settings_form
from backend.store.queries import config

KIND: Final = "broker_config"


def render(page: Page) -> None:
    """Outside of live parts, because its button opens a dialog. Raises DatabaseUnreachable."""
    view = page.view()
    brokers = [row.broker_id for row in observed.brokers(view)]
    rows = state.read_cached(
        config.config_values, page.cluster_id, "broker", names=tuple(broker_form.ALL), version=view.version
    )
    block = health_text.write_block(view, page.user.may_write, READ_ONLY)
    with st.container(key="card-broker-form"):
        st.html(
            markup.card_title("Copy limits and pools", "without a restart; checked here while you type, and by Kafka")
        )
        with st.container(horizontal=True, key="broker-form", vertical_alignment="bottom"):
            chosen = st.selectbox(
                "Set for",
                [None, *brokers],
                format_func=lambda broker_id: "Cluster default" if broker_id is None else f"Broker {broker_id}",
                key="broker-scope",
                width=140,
            )
            scope = BrokerScope(chosen)
            now = broker_form.in_effect(rows, scope)
            fields = {name: _field(name, value, scope) for name, value in now.items()}
            settings = broker_form.changed(now, fields)
            problem = broker_form.problem(now, settings) if now else "No broker lists these settings."
            st.button(
                "Plan it…",
                key="broker-change",
                type="primary",
                disabled=block is not None or problem is not None,
                help=block or problem,
                on_click=plan_dialog.propose,
                args=(page.user, view.cluster.name, KIND, {**scope.inputs, "settings": settings}),
            )
        st.html(
            f'<div class="eb-lines">{settings_form.changes_text(block, problem, settings, broker_form.lines)}</div>'
        )
    live(page, "broker-watch", settings_form.watch, page, block)


def _field(name: str, now: str, scope: BrokerScope) -> str:
    return st.text_input(
        broker_form.ALL[name],
        value=now,
        max_chars=20,
        live=True,
        width=190 if name in broker_form.LIMITS else 140,
        help=name,
        # Another broker has other values, so its field is another widget.
        key=f"{name}-{scope.broker_id}",
    )
