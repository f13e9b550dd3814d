"""The runbook that the link names, above the rest of Activity; what to look at, what to do, when it is over."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import runbooks
from app.components.shared import markup

KEY: Final = "runbook"
_SHOWN: Final = "runbook-shown"
NONE: Final = "Choose a runbook"


def render() -> None:
    """A choice of all of them, and the page of the chosen one."""
    known = runbooks.slugs()
    chosen = _chosen(known)
    with st.container(key="card-runbook"):
        st.html(markup.card_title("Runbook", "one page an incident: look, do, over when"))
        st.selectbox(
            "Runbook",
            known,
            index=known.index(chosen) if chosen is not None else None,
            placeholder=NONE,
            key=_SHOWN,
            label_visibility="collapsed",
            width=260,
        )
        text = None if chosen is None else runbooks.read(chosen)
        if text is not None:
            # Headings two levels down: page and card have titles already.
            st.markdown("\n".join(f"##{line}" if line.startswith("#") else line for line in text.splitlines()))


def _chosen(known: tuple[str, ...]) -> str | None:
    """That of the control, at first that of the link."""
    wanted = st.session_state[_SHOWN] if _SHOWN in st.session_state else st.query_params.get(KEY)
    if wanted is not None and wanted not in known:
        st.toast(f"There is no runbook {wanted!r:.40}.")
        wanted = None
    if wanted is None:
        st.query_params.pop(KEY, None)
    else:
        st.query_params[KEY] = wanted
    return wanted


# Below the card's own title (13.5 px, 600), whatever the theme's sizes of headings are.
