"""The control of time travel: an instant in the link as ``at``, the same on every page that has it."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import state
from app.components.partition import ledger_at_instant
from app.components.shared.page import Page

AT: Final = "at"
link = ledger_at_instant.link_text


def control(page: Page, what: str, *, width: int = 216) -> int | None:
    """Epoch ms of the instant that is asked for; None: now. ``what`` it shows is said with how to type it."""
    typed = st.text_input(
        "As of",
        key=AT,
        bind="query-params",
        placeholder="As of: now",
        icon=":material/history:",
        max_chars=40,
        label_visibility="collapsed",
        help=f"{what}: {ledger_at_instant.HINT}",
        on_change=fix,
        args=(page, AT),
        width=width,
    )
    if typed:
        st.button("Now", key="now", on_click=_go_to_now)
    return parsed(page, typed or "", "; this is now")


def parsed(page: Page, typed: str, instead: str = "") -> int | None:
    """The typed text as epoch ms; None when it is empty, or no time in the past, which the page then says."""
    if not typed.strip():
        return None
    instant = ledger_at_instant.parse_instant(typed, state.now_ms(), page.zone)
    if instant is None:
        st.toast(f"{typed!r:.44} is no time in the past{instead}. Use {ledger_at_instant.HINT}.")
    return instant


def fix(page: Page, name: str) -> None:
    """Replaces a typed time by an absolute one, which a link can carry."""
    at_ms = ledger_at_instant.parse_instant(st.session_state.get(name) or "", state.now_ms(), page.zone)
    if at_ms is not None:
        st.session_state[name] = link(at_ms)


def _go_to_now() -> None:
    st.session_state[AT] = ""
