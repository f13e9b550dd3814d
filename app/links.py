"""The pages, and how to reach them. The pickers of the head row stay in the address from page to page.

Streamlit recognises a page by its path, so an object is made where one is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import streamlit as st

# Only pages that exist are listed.
TITLES: Final = {
    "overview": "Overview",
    "partitions": "Partitions",
    "partition": "Partition",
    "remote": "Remote log",
    "followers": "Followers",
    "reassign": "Reassign",
    "config": "Config",
    "lab": "Lab",
    "activity": "Activity",
}
_HIDDEN: Final = frozenset({"partition"})
NAMES: Final = tuple(TITLES)
FIRST: Final = "overview"  # stands at `/`


def _renderer(name: str) -> Any:
    def render() -> None:
        import_module(f"app.views.{name}.{name}_page").render()

    render.__name__ = name
    return render


def page(name: str) -> Any:
    """The page of one of :data:`NAMES`, to link or to switch to."""
    return st.Page(
        _renderer(name),
        title=TITLES[name],
        url_path=name,
        default=name == FIRST,
        visibility="hidden" if name in _HIDDEN else "visible",
    )


def link(name: str, label: str, **own: str) -> None:
    """Draws a link to a page; `own` are the parameters that this page reads."""
    st.page_link(page(name), label=label, query_params=own)


def switch(name: str, **own: str) -> None:
    """Goes to a page, as a link to it does."""
    # An empty mapping, not none at all: Streamlit refuses to clear what a widget is bound to.
    st.switch_page(page(name), query_params=own)


def navigation() -> Any:
    """Draws the top navigation; the page that the URL names, to be run."""
    chosen = st.navigation([page(name) for name in NAMES], position="top")
    # Before the page: a key works while the page is still being drawn.
    with st.container(key="shortcuts"):
        for name, key in (("overview", "g"), ("partitions", "p"), ("followers", "f"), ("reassign", "a")):
            if st.button(f"Go to {TITLES[name]}", key=f"shortcut-{name}", shortcut=key):
                switch(name)
    return chosen
