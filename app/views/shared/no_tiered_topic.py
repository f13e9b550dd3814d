"""In place of a card's content while no topic is tiered: what to do next, on every page in the same way."""

from __future__ import annotations

import streamlit as st

from app import links
from app.components.shared import markup
from backend.store.queries.health import ClusterRow


def render(card: str, cluster: ClusterRow) -> None:
    """Says so, with the page that switches tiering on and Kafka's command for it."""
    st.html(markup.empty("No topic is tiered yet: none has remote.storage.enable=true."))
    with st.container(horizontal=True, horizontal_alignment="center", key=f"no-tiered-topic-{card}"):
        links.link("config", "Switch tiering on for a topic →", section="topics")
    st.html('<div class="eb-lines">Or make one, as a producer of it would have to:</div>')
    st.code(command(cluster.bootstrap_servers), language="bash", wrap_lines=True)


def command(bootstrap_servers: str) -> str:
    """Kafka's command that makes a tiered topic."""
    first = bootstrap_servers.split(",", maxsplit=1)[0]
    return (
        f"kafka-topics.sh --bootstrap-server {first} --create --topic orders --partitions 3"
        " --config remote.storage.enable=true --config local.retention.ms=3600000"
    )
