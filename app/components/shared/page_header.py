"""The head row's controls: name and one fact, cluster, range, user."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from app import state
from app.access.identity import User
from app.components.shared import markup
from app.state import ClusterView

RANGES: Final = {"15m": 15, "1h": 60, "6h": 360, "24h": 1440}


def title_only(name: str) -> None:
    st.html(f'<div class="eb-title"><h1>{markup.text(name)}</h1></div>')


def title(name: str, fact: str, parent: tuple[Any, str] | None) -> None:
    clause = f'<span class="eb-clause">{markup.text(fact)}</span>' if fact else ""
    if parent is None:
        st.html(f'<div class="eb-title"><h1>{markup.text(name)}</h1>{clause}</div>')
        return
    with st.container(horizontal=True, key="crumbs"):
        st.page_link(parent[0], label=parent[1])
        st.html(
            f'<div class="eb-title"><span class="eb-slash">/</span><h1>{markup.text(name)}</h1>{clause}</div>',
            width="content",
        )


def wanted_cluster() -> str | None:
    return st.session_state.get("cluster") or st.query_params.get("cluster")


def cluster_picker(view: ClusterView) -> str:
    names = {row.cluster_id: row.name for row in view.clusters}
    own = state.environment().cluster_id
    ids = sorted(names, key=lambda cluster_id: (cluster_id != own, names[cluster_id]))
    linked = st.query_params.get("cluster")
    if linked is not None and linked not in names:
        st.toast(f"There is no cluster {linked!r:.60} here; this is {names[ids[0]]}.")
    chosen = st.selectbox(
        "Cluster",
        ids,
        format_func=lambda cluster_id: names.get(cluster_id, cluster_id),
        key="cluster",
        bind="query-params",
        persist_state="session",
        label_visibility="collapsed",
        width=130,
    )
    return chosen or ids[0]


def range_picker() -> str:
    linked = st.query_params.get("range")
    if linked is not None and linked not in RANGES:
        st.toast(f"There is no range {linked!r:.20}; this is the last hour.")
    chosen = st.segmented_control(
        "Range of the charts",
        list(RANGES),
        default="1h",
        required=True,
        key="range",
        bind="query-params",
        persist_state="session",
        label_visibility="collapsed",
    )
    return chosen or "1h"


def user_menu(user: User) -> tzinfo | None:
    with st.popover(user.label, key="person"):
        st.markdown(f"**{user.name}**  \n{user.explanation}")
        zone = st.segmented_control(
            "Times in",
            ["UTC", "local"],
            default="UTC",
            required=True,
            key="tz",
            bind="query-params",
            persist_state="session",
        )
        st.caption("Link to this view")
        st.code(st.context.url or "/", language=None, wrap_lines=True)
        st.caption("Keys: G overview, P partitions, F followers, A reassign, Esc closes a dialog.")
        if user.can_sign_out and st.button("Sign out"):
            st.logout()
    return _browser_zone() if zone == "local" else None


def _browser_zone() -> tzinfo | None:
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return None
