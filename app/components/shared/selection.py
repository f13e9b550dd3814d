"""The selection on a page: rows whose order stands while one of them is selected, and values of the link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app.components.shared.page import Page


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Names of the rows in their order; `ranked_ms`: when they were ranked, None: now."""

    names: list[str]
    ranked_ms: int | None = None

    def clause(self, page: Page, now_ms: int) -> str:
        """The part of a card's clause that says that the order is not of now; empty when it is."""
        if self.ranked_ms is None:
            return ""
        return f" · order of {page.clock(self.ranked_ms, now_ms)} while a row is selected"


def row_order(table: str, names: Sequence[str], query: object, now_ms: int) -> RowOrder:
    """The rows as they are ranked now or, while one of this table is selected, as they were when it was not.

    The selection of a table is a row number: rows must not move under it while the page refreshes. Rows that are
    not there any more are left out, new ones come last.
    """
    slot = f"{table}-order"
    last_query, before, ranked_ms = st.session_state.get(slot, (None, [], now_ms))
    if last_query != query or not _has_selection(table):
        st.session_state[slot] = (query, list(names), now_ms)
        return RowOrder(list(names))
    present, placed = set(names), set(before)
    kept = [name for name in before if name in present]
    return RowOrder([*kept, *(name for name in names if name not in placed)], ranked_ms)


def _has_selection(table: str) -> bool:
    chosen = st.session_state.get(table)
    return chosen is not None and bool(chosen.selection.rows)


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
