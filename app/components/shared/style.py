"""The style sheets of ``app/static/css`` on a page: ``base`` on every page, the others where their parts are.

Colours are variables (``--eb-*``) that come from the palette of the user's theme. Streamlit's own elements are selected
by our keys (``st-key-*``) and three stable test ids only.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import streamlit as st

from app.theme import MONO, STATIC, Palette

_VARIABLES: Final = (
    "local",
    "remote",
    "critical",
    "warning",
    "ok",
    "notice",
    "page",
    "card",
    "line",
    "grid",
    "text",
    "muted",
    "epoch_fill",
    "remote_fill",
    "critical_fill",
    "warning_fill",
    "local_fill",
    "ok_fill",
    "field",
)


@cache
def rules(name: str) -> str:
    """The rules of ``app/static/css/NAME.css``."""
    return (STATIC / "css" / f"{name}.css").read_text()


def base(colours: Palette) -> str:
    """A style element with the palette's colours as variables and the rules that every page needs."""
    variables = " ".join(f"--eb-{name}: {getattr(colours, name)};" for name in _VARIABLES)
    return f"<style>:root {{ {variables} --eb-mono: {MONO}; }}{rules('base')}</style>"


def add(*names: str) -> None:
    """Adds style sheets to the page that is being rendered."""
    st.html(f"<style>{''.join(rules(name) for name in names)}</style>")
