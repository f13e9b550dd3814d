"""Style of the Partitions and Partition pages: lanes, blocks and marks drawn as elements, so that they fit any width."""

from __future__ import annotations

from typing import Final

import streamlit as st

_SHEET: Final = """
.st-key-filters > :first-child { flex: 0 1 260px; }
.st-key-filters [data-baseweb="input"] { background: var(--eb-card); }
.st-key-filter-right { margin-left: auto; align-items: center; gap: 8px 14px; }
.st-key-selected-head { align-items: center; gap: 8px; }
.st-key-open-partition a { border: 1px solid var(--eb-line); border-radius: 6px; justify-content: center; min-height: 34px; }
.eb-sub-title { font-size: 13px; font-weight: 600; color: var(--eb-text); margin: 8px 0 4px; line-height: 1.5; }
.eb-step { width: 14px; height: 10px; display: inline-block; border-radius: 1px; }
.eb-note { font-size: 12.5px; color: var(--eb-muted); line-height: 18px; }
"""


def apply() -> None:
    """Adds the style to the page; colours are the variables of `style.sheet`."""
    st.html(f"<style>{_SHEET}</style>")
