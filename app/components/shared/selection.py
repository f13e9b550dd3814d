"""The selection on a page: rows whose order is stable while it refreshes, and values of the link."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st


def standing_order(slot: str, names: Sequence[str], query: object) -> list[str]:
    """The order in which this question was first answered, without what is gone, new ones at the end.

    The selection of a table is a row number: rows must not move under it while the page refreshes.
    """
    last_query, before = st.session_state.get(slot, (None, []))
    present = set(names)
    order = [name for name in before if name in present] if last_query == query else []
    placed = set(order)
    order += [name for name in names if name not in placed]
    st.session_state[slot] = (query, order)
    return order


def select_row(table: str, slot: str, names: Sequence[str]) -> None:
    """Puts the name of the row that is selected in ``table`` into the session and the link, as ``slot``."""
    rows = st.session_state[table].selection.rows
    put(slot, names[rows[0]] if rows and rows[0] < len(names) else None)


def put(slot: str, name: str | None) -> bool:
    """Chooses ``name`` in the session and in the link; None: nothing. Whether that changed anything."""
    before = st.session_state.get(slot) or st.query_params.get(slot)
    if name is None:
        st.session_state.pop(slot, None)
        st.query_params.pop(slot, None)
    else:
        st.session_state[slot] = name
        st.query_params[slot] = name
    return before != name


def warn_unknown(name: str, options: Sequence[str]) -> None:
    """A notice when the link holds a value that this page does not know; the default is used."""
    linked = st.query_params.get(name)
    if linked is not None and linked not in options:
        st.toast(f"There is no {name} {linked!r:.40}; this is the default.")
