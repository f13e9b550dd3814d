"""Config, brokers and topics: the settings in effect and where they are set."""

from __future__ import annotations

import streamlit as st

from app import state
from app.components.config import config_table
from app.components.plan import plan_dialog
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, body_key, live
from app.views.config import broker_section, set_aside_section, topic_section
from backend.store.queries import config


def brokers(page: Page) -> None:
    """Forms for limits, pools and set-aside folders of brokers, and all their settings. Raises DatabaseUnreachable."""
    plan_dialog.host(page)
    broker_section.render(page)
    set_aside_section.render(page)
    with st.container(horizontal=True, key="filters"):
        name_part = st.text_input(
            "Setting",
            key="key",
            bind="query-params",
            placeholder="Part of a setting's name",
            label_visibility="collapsed",
            live=True,
            max_chars=120,
            width=320,
        )
        only = st.segmented_control(
            "Which settings",
            ["Tiering and retention", "All"],
            default="Tiering and retention",
            required=True,
            key="settings-shown",
            label_visibility="collapsed",
        )
    with st.container(key="card-broker-settings"):
        live(page, "broker-settings", _broker_settings, page, (name_part or "").strip(), only != "All")


def _broker_settings(page: Page, name_part: str, tiering_only: bool) -> None:
    view = page.view()
    rows = state.read_cached(config.config_values, page.cluster_id, "broker", version=view.version)
    count = len({row.resource for row in rows if row.resource})
    settings = config_table.broker_settings(rows, name_part=name_part, tiering_only=tiering_only)
    differing = sum(setting.differs for setting in settings)
    clause = f"{fmt.count(len(settings))} in effect on {count} brokers · {fmt.count(differing)} differ, shown first"
    card_head("broker-settings", "Brokers", clause, rows=config_table.broker_rows(settings) if settings else None)
    if not rows:
        st.html(markup.empty("No broker has told its settings yet.", "They come with the first samples."))
    elif not settings:
        st.html(markup.empty("No setting fits.", "Choose All, or search for another part of the name."))
    else:
        with st.container(key=body_key(view, "broker-settings")):
            st.html(config_table.broker_html(settings, count))
        _more(len(settings), config_table.ROWS_MAX)


# --- topics ---


def topics(page: Page) -> None:
    """The settings of all topics, and the form for one. Raises DatabaseUnreachable."""
    plan_dialog.host(page)
    with st.container(key="card-topics"):
        live(page, "topics", _topic_table, page)
    topic_section.render(page)


def _topic_table(page: Page) -> None:
    view = page.view()
    topics = state.read_cached(config.topics, page.cluster_id, version=view.version)
    rows = state.read_cached(config.config_values, page.cluster_id, "topic", version=view.version)
    sources = {(row.resource, row.name): row.source for row in rows}
    shown = sorted((t for t in topics if t.tiered or not t.internal), key=lambda topic: (not topic.tiered, topic.topic))
    tiered = sum(topic.tiered for topic in shown)
    card_head(
        "topics",
        "Topic tiering",
        f"{fmt.count(tiered)} of {fmt.count(len(shown))} topics are tiered · muted: inherited from the brokers",
        rows=config_table.topic_rows(shown, sources) if shown else None,
    )
    if not shown:
        st.html(markup.empty("There is no topic yet.", "Create one with remote.storage.enable=true."))
        return
    with st.container(key=body_key(view, "topics")):
        st.html(config_table.topic_html(shown, sources))
    _more(len(shown), config_table.ROWS_MAX)


def _more(count: int, shown: int) -> None:
    if count > shown:
        st.html(f'<div class="eb-lines">The first {shown} of {fmt.count(count)}; the table holds all.</div>')
