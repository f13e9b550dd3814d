"""Config, topic tiering: the form that changes the tiering settings of one topic, held against Kafka's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from app import state
from app.access.identity import READ_ONLY
from app.components.cluster import health_text
from app.components.config import topic_form
from app.components.partition import durability
from app.components.plan import plan_dialog
from app.components.shared import markup
from app.components.shared.page import Page, live
from app.components.shared.selection import warn_unknown
from app.views.config import settings_form
from backend.store.queries import config
from backend.store.queries.config import TopicRow

KIND: Final = "topic_config"


def render(page: Page) -> None:
    """Outside of live parts, because its button opens a dialog. Raises DatabaseUnreachable."""
    view = page.view()
    listed = state.read_cached(config.topics, page.cluster_id, version=view.version)
    topics = {topic.topic: topic for topic in listed if not topic.internal}
    block = health_text.write_block(view, page.user.may_write, READ_ONLY)
    with st.container(key="card-topic-form"):
        st.html(markup.card_title("Change a topic", "checked here while you type, and by Kafka before you confirm"))
        with st.container(horizontal=True, key="topic-form", vertical_alignment="bottom"):
            warn_unknown("topic", list(topics))
            name = st.selectbox(
                "Topic",
                list(topics),
                key="topic",
                bind="query-params",
                index=None,
                placeholder="Choose a topic",
                width=260,
            )
            settings = _fields(topics[name]) if name in topics else {}
            problem = topic_form.problem(topics[name], settings) if name in topics else "Choose a topic."
            st.button(
                "Plan it…",
                key="topic-change",
                type="primary",
                disabled=block is not None or problem is not None,
                help=block or problem,
                on_click=plan_dialog.propose,
                args=(page.user, view.cluster.name, KIND, {"topic": name, "settings": settings}),
            )
        if name in topics:
            st.html(durability.of_topic(view, topics[name]))
            st.html(
                f'<div class="eb-lines">{settings_form.changes_text(block, problem, settings, topic_form.lines)}</div>'
            )
    live(page, "topic-watch", settings_form.watch, page, block)


def _fields(topic: TopicRow) -> dict[str, str]:
    """The controls with what is in effect; what differs from it, as Kafka takes it."""
    fields = {
        "remote.storage.enable": _choice(topic, "Tiering", topic_form.TIERING),
        "remote.log.copy.disable": _choice(topic, "Copying", topic_form.COPYING),
    }
    for setting in topic_form.RETENTION:
        now = (topic.config or {}).get(setting) or ""
        label = setting.removesuffix(".bytes").replace(".", " ") + (", bytes" if setting.endswith("bytes") else "")
        fields[setting] = st.text_input(
            label.replace(" ms", ", ms").capitalize(),
            value=now,
            max_chars=20,
            live=True,
            width=150,
            # Another topic has other values, so its field is another widget.
            key=f"{setting}-{topic.topic}",
        )
    return topic_form.changed(topic, fields)


def _choice(topic: TopicRow, label: str, values: Mapping[str, str]) -> str:
    setting = topic_form.SETTING_OF[label]
    now = (topic.config or {}).get(setting) or "false"
    names: Sequence[str] = list(values)
    chosen = st.selectbox(
        label,
        names,
        index=next((at for at, name in enumerate(names) if values[name] == now), 0),
        width=110,
        key=f"{setting}-{topic.topic}",
    )
    return values[chosen or names[0]]
