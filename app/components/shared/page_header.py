"""The head row's controls: name and one fact, cluster, range, user."""

from __future__ import annotations

from datetime import tzinfo
from typing import Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from app import links, state
from app.access.identity import User
from app.components.cluster.alerts import PageStatus
from app.components.shared import markup
from app.state import ClusterView
from app.theme import STATUS_MARKS

# Entry of the session's state: whether the person wants the page to stand still.
PAUSED: Final = "paused"
RANGES: Final = {"15m": 15, "1h": 60, "6h": 360, "24h": 1440}


def title_only(name: str) -> None:
    st.html(f'<div class="eb-title"><h1>{markup.text(name)}</h1></div>')


def document_title(name: str, cluster: str, status: PageStatus) -> str:
    """``▲ 3 · demo.orders-0 · demo · ebbline``: tabs and bookmarks differ, and problems show in them."""
    mark = "" if status.severity is None else f"{STATUS_MARKS[status.severity]} {status.count} · "
    return f"{mark}{name} · {cluster} · ebbline"


def title(name: str, fact: str, parent: tuple[str, str] | None) -> None:
    clause = f'<span class="eb-clause">{markup.text(fact)}</span>' if fact else ""
    if parent is None:
        st.html(f'<div class="eb-title"><h1>{markup.text(name)}</h1>{clause}</div>')
        return
    with st.container(horizontal=True, key="crumbs"):
        links.link(*parent)
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
    # Drawn when it is opened: the address may have changed since the page was.
    with st.popover(user.label, key="person", on_change="rerun"):
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
        st.toggle("Stand still", key=PAUSED, help="The page is not drawn again until this is off.")
        st.caption("Link to this view")
        st.code(address_of_view(), language=None, wrap_lines=True)
        st.caption("Keys: G overview, P partitions, F followers, A reassign, Esc closes a dialog.")
        if user.can_sign_out and st.button("Sign out"):
            st.logout()
    return _browser_zone() if zone == "local" else None


def address_of_view() -> str:
    """The address of the page as it is seen now: Streamlit gives the path, and the parameters apart."""
    parameters = urlencode(st.query_params.to_dict())
    return (st.context.url or "/") + (f"?{parameters}" if parameters else "")


def _browser_zone() -> tzinfo | None:
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return None
