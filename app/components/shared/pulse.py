"""The clock of a page: which of its live parts are drawn again, and when.

One for all parts of a page, in the browser (`static/js/pulse.js`), instead of a timer for each: a hidden page asks once
a minute, all parts are of one moment, and a page whose server is silent says so itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import streamlit as st

from app import state
from app.theme import STATIC

VISIBLE_MS: Final = 5_000
HIDDEN_MS: Final = 60_000
# Charts of six hours and more change slowly.
LONG_MS: Final = 30_000
# Three rounds without an answer, as for every process.
SILENT_MS: Final = 3 * VISIBLE_MS
# Entries of the session's state.
_PARTS: Final = "live_parts"
_DRAWN: Final = "drawn"


@dataclass(frozen=True, slots=True)
class LivePart:
    """A part of the page that is drawn again; `every_ms`: not more often than that. `drawn_ms`: when it was last."""

    every_ms: int
    drawn_ms: int


def due(parts: Mapping[str, LivePart], now_ms: int) -> list[str]:
    """Names of the parts to draw at this beat; half a beat early is in time, as beats come late as well."""
    return [name for name, part in parts.items() if now_ms - part.drawn_ms >= part.every_ms - VISIBLE_MS // 2]


def begin() -> None:
    """The page is about to be drawn as a whole."""
    st.session_state[_PARTS] = {}
    st.session_state[_DRAWN] = False


def end() -> None:
    """All of it is drawn."""
    st.session_state[_DRAWN] = True


def drawn(name: str, every_ms: int) -> None:
    """This part is being drawn."""
    st.session_state.setdefault(_PARTS, {})[name] = LivePart(every_ms, state.now_ms())


def key(name: str) -> str:
    """The key of the fragment of a part."""
    return f"live-{name}"


def mount(*, paused: bool) -> None:
    """Puts the clock into the page; while it is paused nothing is asked for."""
    data = {"paused": paused, "visible_ms": VISIBLE_MS, "hidden_ms": HIDDEN_MS, "silent_ms": SILENT_MS}
    with st.container(key="pulse"):
        _component()(key="pulse-component", data=data, on_beat_change=_beat)


def _beat() -> None:
    """Draws what is due; a page that was cut off while it was drawn is drawn as a whole."""
    if not st.session_state.get(_DRAWN):
        return
    names = due(st.session_state.get(_PARTS, {}), state.now_ms())
    st.rerun([key(name) for name in names or ["head"]])


@cache
def _component() -> Any:
    return st.components.v2.component("ebbline.pulse", js=(STATIC / "js" / "pulse.js").read_text(encoding="utf-8"))
