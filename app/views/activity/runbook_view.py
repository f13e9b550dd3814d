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
    slugs = runbooks.slugs()
    chosen = _chosen(slugs)
    with st.container(key="card-runbook"):
        st.html(markup.card_title("Runbook", "one page an incident: look, do, over when"))
        st.selectbox(
            "Runbook",
            slugs,
            index=slugs.index(chosen) if chosen is not None else None,
            placeholder=NONE,
            key=_SHOWN,
            label_visibility="collapsed",
            width=260,
        )
        text = None if chosen is None else runbooks.read(chosen)
        if text is not None:
            # Headings two levels down: page and card have titles already.
            st.markdown("\n".join(f"##{line}" if line.startswith("#") else line for line in text.splitlines()))


def _chosen(slugs: tuple[str, ...]) -> str | None:
    """That of the control, at first that of the link."""
    slug = st.session_state[_SHOWN] if _SHOWN in st.session_state else st.query_params.get(KEY)
    if slug is not None and slug not in slugs:
        st.toast(f"There is no runbook {slug!r:.40}.")
        slug = None
    if slug is None:
        st.query_params.pop(KEY, None)
    else:
        st.query_params[KEY] = slug
    return slug


# Below the card's own title (13.5 px, 600), whatever the theme's sizes of headings are.
