"""Style of the Partitions and Partition pages: lanes, blocks and marks as elements, so that they fit any width."""

from __future__ import annotations

from typing import Final

import streamlit as st

SHEET: Final = """
.st-key-filters > :first-child { flex: 0 1 260px; }
.st-key-filters [data-baseweb="input"] { background: var(--eb-card); }
.st-key-filters > :last-child { margin-left: auto; }
.st-key-filter-right { align-items: center; gap: 8px 14px; }
.st-key-selected-head { align-items: center; gap: 8px; }
.st-key-open-partition a { border: 1px solid var(--eb-line); border-radius: 6px; justify-content: center;
  min-height: 34px; }
.eb-sub-title { font-size: 13px; font-weight: 600; color: var(--eb-text); margin: 8px 0 4px; line-height: 1.5; }
.eb-step { width: 14px; height: 10px; display: inline-block; border-radius: 1px; }
.eb-note { font-size: 12.5px; color: var(--eb-muted); line-height: 18px; }
.eb-head-pills { display: flex; align-items: center; gap: 8px 14px; flex-wrap: wrap; }
.eb-head-pills .eb-legend { margin-left: auto; }
.eb-swatch-square { width: 8px; height: 8px; }

.eb-ranges { display: grid; grid-template-columns: 126px minmax(0, 1fr); color: var(--eb-text); font-size: 12.5px;
  padding-right: 10px; }
.eb-lane-names > div { height: 52px; display: flex; flex-direction: column; justify-content: center; text-align: right;
  padding-right: 10px; line-height: 16px; }
.eb-lane-name small { font-size: 11.5px; color: var(--eb-muted); }
.eb-plot { position: relative; border-left: 1px solid var(--eb-line); border-bottom: 1px solid var(--eb-line); }
.eb-lane { position: relative; height: 52px; }
.eb-block { position: absolute; top: 13px; height: 26px; box-sizing: border-box; overflow: hidden; text-align: center;
  container-type: inline-size; font-size: 11.5px; line-height: 25px; white-space: nowrap; min-width: 1px; }
.eb-block > span { display: block; overflow: hidden; text-overflow: ellipsis; padding: 0 4px; }
.eb-block > em { display: none; font-style: normal; }
@container (max-width: 52px) { .eb-block > span { display: none; } .eb-block > em { display: block; } }
@container (max-width: 16px) { .eb-block > em { display: none; } }
.eb-block-remote { box-shadow: inset 0 0 0 0.75px var(--eb-card); background: repeating-linear-gradient(135deg,
  var(--eb-remote) 0 4.5px, color-mix(in srgb, var(--eb-remote), var(--eb-card) 32%) 4.5px 6px); }
.eb-block-copying { border: 1.5px dashed var(--eb-remote); color: var(--eb-muted); }
.eb-block-deleting { border: 1.5px dotted var(--eb-muted); color: var(--eb-muted); }
.eb-block-local { background: var(--eb-local); }
.eb-block-pending { border: 1.5px solid var(--eb-local); background: var(--eb-card); color: var(--eb-muted); }
.eb-block-unsure { border: 1.5px dashed var(--eb-local); background: var(--eb-card); color: var(--eb-muted); }
.eb-block-to-go { border: 1px solid var(--eb-line); background: var(--eb-card); color: var(--eb-muted); }
.eb-block-gap, .eb-epoch-outside, .eb-epoch-diverged { border: 1px solid var(--eb-critical); color: var(--eb-text);
  background: repeating-linear-gradient(45deg, var(--eb-critical) 0 1px, transparent 1px 6px),
  repeating-linear-gradient(135deg, var(--eb-critical) 0 1px, transparent 1px 6px), var(--eb-critical_fill); }
.eb-block-gap > span, .eb-epoch-diverged > span { background: var(--eb-card); width: fit-content; margin: 4px auto 0;
  line-height: 16px; border-radius: 3px; }
.eb-block-missing { border: 1px dashed var(--eb-muted); color: var(--eb-muted); }
.eb-lane-note { position: absolute; left: 10px; top: 0; line-height: 52px; color: var(--eb-muted); font-size: 12px;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis; max-width: calc(100% - 20px); z-index: 1; }
.eb-tick-line { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--eb-grid); }
.eb-mark-line { position: absolute; bottom: 0; width: 0; border-left: 1.5px dashed var(--eb-text); z-index: 2;
  opacity: 0.8; }
.eb-mark-local { border-color: var(--eb-local); }
.eb-mark-labels { position: absolute; left: 0; right: 0; bottom: 100%; height: 0; }
.eb-mark-label { position: absolute; padding: 0 6px 2px; font-size: 12px; line-height: 16px; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.eb-mark-label span { display: block; font-size: 11.5px; color: var(--eb-muted); }
.eb-at-left { transform: translateX(-100%); text-align: right; }
.eb-mark-list { display: none; grid-column: 1 / -1; gap: 2px 14px; flex-wrap: wrap; font-size: 12px;
  font-variant-numeric: tabular-nums; }
.eb-mark-list span { color: var(--eb-muted); }
.eb-axis { position: relative; grid-column: 2; height: 22px; font-size: 11.5px; color: var(--eb-muted);
  font-variant-numeric: tabular-nums; }
.eb-axis span { position: absolute; top: 3px; transform: translateX(-50%); white-space: nowrap; }
.eb-strip-name { text-align: right; padding: 6px 10px 0 0; font-size: 12px; color: var(--eb-muted); }
.eb-strip { position: relative; height: 24px; margin-top: 6px; border-left: 1px solid var(--eb-line);
  border-bottom: 1px solid var(--eb-line); }
.eb-strip .eb-block { top: 0; height: 7px; }
.eb-strip-upper, .eb-strip-lower { position: absolute; left: 0; right: 0; top: 3px; height: 7px; }
.eb-strip-lower { top: 13px; }
.eb-strip-window { position: absolute; top: 0; bottom: 1px; border: 1.2px solid var(--eb-text); border-radius: 2px;
  box-sizing: border-box; background: color-mix(in srgb, var(--eb-text), transparent 94%); }
.eb-strip-axis b, .eb-strip-axis em { position: absolute; top: 3px; left: 0; font-weight: 400; font-style: normal;
  white-space: nowrap; }
.eb-strip-axis em { left: auto; right: 0; }

.eb-epochs .eb-lane, .eb-epochs .eb-lane-names > div { height: 44px; }
.eb-epochs .eb-block { top: 8px; height: 28px; line-height: 26px; border: 1px solid var(--eb-line);
  background: var(--eb-card); }
.eb-epochs .eb-epoch-odd { background: var(--eb-epoch_fill); }
.eb-epochs .eb-epoch-remote { background: var(--eb-remote_fill); }
.eb-epochs .eb-epoch-outside, .eb-epochs .eb-epoch-diverged { border-color: var(--eb-critical);
  background: repeating-linear-gradient(45deg, var(--eb-critical) 0 1px, transparent 1px 6px),
  repeating-linear-gradient(135deg, var(--eb-critical) 0 1px, transparent 1px 6px), var(--eb-critical_fill); }
.eb-epochs .eb-lane-note { line-height: 44px; }
.eb-epoch-line { position: absolute; top: 0; bottom: 0; border-left: 1px dashed var(--eb-line); }
.eb-epochs .eb-axis span:first-child { transform: none; }
.eb-beside { position: absolute; top: 0; line-height: 44px; padding: 0 8px; color: var(--eb-critical); font-size: 12px;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.eb-evidence { display: grid; grid-template-columns: 64px minmax(0, 1fr); gap: 4px 8px; font-size: 12.5px;
  line-height: 18px; padding: 5px 8px; color: var(--eb-text); }
.eb-evidence b { font-weight: 400; color: var(--eb-muted); }
.eb-evidence div { overflow-wrap: anywhere; }
.eb-evidence span { color: var(--eb-muted); }
.st-key-card-events th:nth-child(1) { width: 130px; } .st-key-card-events th:nth-child(2) { width: 70px; }
.st-key-card-events td { overflow-wrap: anywhere; }
.st-key-grid-partition-more { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
.st-key-cardhead-hero { flex-wrap: wrap; }
@media (max-width: 760px) {
  .st-key-cardhead-hero > :first-child { flex: 1 1 100%; }
  .eb-head-pills .eb-legend { margin-left: 0; }
  .eb-ranges { grid-template-columns: 78px minmax(0, 1fr); }
  .eb-mark-list { display: flex; }
  .eb-mark-labels { display: none; }
  .eb-ranges > .eb-lane-names, .eb-ranges > .eb-plot { margin-top: 8px !important; }
  .eb-mark-line { top: 0 !important; }
  .eb-axis span:nth-child(even) { display: none; }
  .st-key-filters > :last-child { margin-left: 0; }
  [class*="st-key-card-"] .xaxislayer-above .xtick:nth-child(even) { display: none; }
}
"""


def apply() -> None:
    """Adds the style to the page; colours are the variables of `style.sheet`."""
    st.html(f"<style>{SHEET}</style>")
