"""Config, brokers: the replica folders that are set aside, and the plan that removes one of them for good."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import links, observed
from app.access.identity import READ_ONLY
from app.components.cluster import health_text
from app.components.config import set_aside_replicas
from app.components.plan import plan_dialog
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, body_key, live
from app.state import ClusterView

KIND: Final = "broker_config"
RUNBOOK: Final = "set-aside"
CHOSEN: Final = "set-aside-folder"


def render(page: Page) -> None:
    """Outside of live parts, because its button opens a dialog. Raises DatabaseUnreachable."""
    view, listing = _read(page)
    block = health_text.write_block(view, page.user.may_write, READ_ONLY)
    with st.container(key="card-set-aside"):
        live(page, "set-aside", _table, page)
        if listing.folders:
            _form(page, view, listing, block)
    live(page, "set-aside-watch", _watch, page, (block, listing.folders))


def _read(page: Page) -> tuple[ClusterView, set_aside_replicas.Listing]:
    view = page.view()
    return view, set_aside_replicas.of(observed.brokers(view))


def _table(page: Page) -> None:
    view, listing = _read(page)
    rows = set_aside_replicas.rows(listing.folders, view.now_ms) if listing.folders else None
    card_head("set-aside", "Set aside", set_aside_replicas.clause(listing), rows=rows)
    with st.container(key=body_key(view, "set-aside")):
        st.html(set_aside_replicas.html(listing, view.now_ms, embedded=view.cluster.kind == "embedded"))


def _form(page: Page, view: ClusterView, listing: set_aside_replicas.Listing, block: str | None) -> None:
    by_name = {(kept.broker_id, kept.log_dir, kept.name): kept for kept in listing.folders}
    if st.session_state.get(CHOSEN) not in by_name:
        st.session_state.pop(CHOSEN, None)  # it is gone by now
    with st.container(horizontal=True, key="set-aside-form", vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Folder to remove",
            list(by_name),
            index=None,
            format_func=lambda key: by_name[key].label,
            placeholder="Choose a folder",
            key=CHOSEN,
            width=420,
        )
        folder = by_name.get(chosen) if chosen is not None else None
        st.button(
            "Remove…",
            key="set-aside-remove",
            disabled=block is not None or folder is None,
            help=block or ("Choose a folder first." if folder is None else "Plans it; the broker deletes it for good"),
            on_click=plan_dialog.propose,
            args=(page.user, view.cluster.name, KIND, {} if folder is None else set_aside_replicas.inputs(folder)),
        )
        links.link("activity", "Runbook →", runbook=RUNBOOK)
    advice = "Each may be the only copy of its records: see first that nothing is missed."
    st.html(f'<div class="eb-lines">{markup.mark("notice")} {markup.text(block or advice)}</div>')


def _watch(page: Page, drawn: tuple[object, ...]) -> None:
    """Draws the page again when the choice or the button no longer fits."""
    view, listing = _read(page)
    if (health_text.write_block(view, page.user.may_write, READ_ONLY), listing.folders) != drawn:
        st.rerun()
