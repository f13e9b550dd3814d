"""The look of the Remote log page; colours are the variables of `style.sheet`."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app.components.remote import retention_debt

_SHEET: Final = """
.st-key-grid-remote { grid-template-columns: minmax(0, 946fr) minmax(0, 398fr); align-items: start; }
.st-key-left-remote, .st-key-right-remote { gap: 12px; }
.st-key-filters > :last-child { margin-left: auto; }
.eb-push { margin-left: auto; }
[class*="st-key-cardhead-cycle"] .eb-card-title { width: 100%; }
.eb-cycle { display: grid; grid-template-columns: minmax(0, 1fr) 108px minmax(0, 1fr) 108px minmax(0, 1fr) 108px
  minmax(0, 1fr); align-items: stretch; font-variant-numeric: tabular-nums; }
.eb-cycle-box { border: 1px solid var(--eb-line); border-radius: 8px; padding: 8px 12px; font-size: 12.5px;
  line-height: 21px; color: var(--eb-muted); min-width: 0; }
.eb-cycle-box b { font-size: 19px; font-weight: 620; color: var(--eb-text); line-height: 27px; }
.eb-cycle-critical { background: var(--eb-critical_fill); border-color: var(--eb-critical); }
.eb-cycle-warning { background: var(--eb-warning_fill); border-color: var(--eb-warning); }
.eb-cycle-arrow { align-self: center;
  text-align: center; font-size: 12px; line-height: 18px; color: var(--eb-muted); padding: 0 4px; }
.eb-cycle-arrow span { display: block; white-space: nowrap; }
.eb-cycle-arrow i { display: block; position: relative; border-top: 1px solid var(--eb-muted); margin: 2px 2px; }
.eb-cycle-arrow i::after { content: ""; position: absolute; right: 0; top: -4.5px; border: 4px solid transparent;
  border-left: 7px solid var(--eb-muted); border-right: 0; }
.eb-unfollowed { display: grid; grid-template-columns: 62px minmax(0, 1fr); gap: 6px; font-size: 12.5px;
  line-height: 18px; padding: 4px 0; color: var(--eb-text); border-bottom: 1px solid var(--eb-grid); }
.eb-unfollowed > span { color: var(--eb-muted); } .eb-unfollowed div { overflow-wrap: anywhere; }
.st-key-card-metadata .eb-pills { margin-bottom: 8px; }
.eb-note { font-size: 12px; color: var(--eb-muted); line-height: 18px; }
.st-key-segment-head { align-items: center; } .st-key-segment-head > :first-child { flex: 1 1 0; min-width: 0; }
.st-key-segment-head .eb-clause { overflow-wrap: anywhere; }
.st-key-segment-head a { padding: 0; min-height: 0; }
.st-key-segment-head a p { color: var(--eb-local); font-size: 12.5px; white-space: nowrap; }
@media (max-width: 860px) {
  .eb-cycle { grid-template-columns: minmax(0, 1fr); gap: 4px; }
  .eb-cycle-arrow i { display: none; } .eb-cycle-arrow span { display: inline; padding-right: 8px; }
}
"""


def apply() -> None:
    """Adds the style to the page."""
    st.html(f"<style>{_SHEET}{retention_debt.CSS}</style>")
