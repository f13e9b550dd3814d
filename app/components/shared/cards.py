"""The cards of the pages: title with source and age, the table twin, and files to take away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import streamlit as st

from app.components.shared import export, markup, sources

# Entry of the session's state: the facts that the page has read last, of which the cards say the age.
SEEN: Final = "view_seen"


def card_head(name: str, title: str, clause: str = "", *, html: str = "", rows: Any = None, files: Any = None) -> None:
    """The first line of a card, at its right the table twin when ``rows`` (a data frame) is given.

    ``files``: a function that gives the rows of a card that is a table already, to take away as a file.
    """
    with st.container(horizontal=True, key=f"cardhead-{name}"):
        title_line(name, title, clause, html=html)
        if rows is not None:
            table_twin(name, title, rows)
        elif files is not None:
            export_menu(name, title, files)


def title_line(name: str, title: str, clause: str = "", *, html: str = "") -> None:
    """A card's title with its source and age, where a whole :func:`card_head` does not fit."""
    st.html(markup.card_title(title, clause, html=source(name) + html))


def source(name: str) -> str:
    """The mark that says where the numbers of this card come from, as of what its part of the page has read."""
    return sources.note_html(name, st.session_state.get(SEEN))


def table_twin(name: str, title: str, rows: Any) -> None:
    """The same facts as rows, for those who cannot use the picture."""
    with st.popover("View as table", key=f"table-{name}"):
        st.dataframe(rows, hide_index=True, width="content", key=f"twin-{name}", alt=f"{title}, as a table")
        downloads(name, title, rows)


def export_menu(name: str, title: str, rows: Any) -> None:
    """The files of a card that is a table already."""
    with st.popover("Export", key=f"table-{name}"):
        downloads(name, title, rows)


def downloads(name: str, title: str, rows: Any) -> None:
    """CSV and Parquet of these rows, made at a download."""
    subject = (st.query_params.get("tp") or st.query_params.get("q") or "").strip()
    name_text = export.file_title(st.session_state.get(SEEN), subject, title)
    with st.container(horizontal=True, key=f"downloads-{name}"):
        for kind, make, mime in (
            ("CSV", export.csv, "text/csv"),
            ("Parquet", export.parquet, "application/vnd.apache.parquet"),
        ):
            download(
                f"{kind.lower()}-{name}", kind, partial(make, rows), export.file_name(name_text, kind.lower()), mime
            )


def download(key: str, label: str, make: Callable[[], bytes], file_name: str, mime: str) -> None:
    """A button whose file is made when it is pressed; it changes nothing on the page."""
    st.download_button(
        label,
        make,
        file_name=file_name,
        mime=mime,
        key=f"download-{key}",
        on_click="ignore",
        icon=":material/download:",
    )
