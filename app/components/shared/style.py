"""The page's style sheet: colours from the palette as variables, cards, tables, the responsive grid.

Streamlit's own parts are reached by our keys (``st-key-*``) and three stable test ids only.
"""

from __future__ import annotations

from typing import Final

from app.theme import MONO, Palette

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

_SHEET: Final = """
.stApp { background: var(--eb-page); }
[data-testid="stHeader"] { background: var(--eb-card); border-bottom: 1px solid var(--eb-line); height: 44px;
  min-height: 44px; }
[data-testid="stMainBlockContainer"] { padding: 54px 20px 12px; max-width: none; }
[data-testid="stMainBlockContainer"] > div { gap: 12px; }
.eb-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip: rect(0 0 0 0); }
.st-key-shortcuts { position: absolute; width: 1px; height: 1px; overflow: hidden; clip: rect(0 0 0 0); }
:has(> .st-key-shortcuts) { position: absolute; width: 1px; }
.st-key-shortcuts:focus-within { position: static; width: auto; height: auto; clip: auto; }

.st-key-head { align-items: center; gap: 8px 14px; min-height: 38px; }
.st-key-head > :first-child { flex: 1 1 0; min-width: 330px; width: auto !important; }
.st-key-head-live > div { min-width: 0; }
.st-key-crumbs { gap: 6px; align-items: baseline; flex-wrap: nowrap; }
.st-key-crumbs > :first-child { flex: none; }
.st-key-crumbs > :last-child { flex: 0 1 auto; min-width: 0; }
.st-key-crumbs .eb-slash + h1 { flex: 0 1 auto; min-width: 0; max-width: calc(100% - 20px); overflow-wrap: anywhere; }
.st-key-crumbs a { padding: 0; min-height: 0; }
.st-key-crumbs a p { font-size: 18px; color: var(--eb-muted); }
.eb-title { display: flex; align-items: baseline; gap: 10px; flex-wrap: wrap; margin: 0; }
.eb-title h1 { font-size: 18px; font-weight: 620; margin: 0; padding: 0; letter-spacing: 0; color: var(--eb-text);
  line-height: 1.4; }
.eb-title .eb-slash { font-size: 18px; color: var(--eb-muted); }
.eb-title .eb-clause { font-size: 13px; }
.eb-clause { color: var(--eb-muted); font-weight: 400; }
.eb-pills { display: flex; gap: 6px; flex-wrap: wrap; }
.eb-pills + .eb-lines { margin-top: 6px; }
.eb-pill { display: inline-flex; align-items: center; gap: 5px; border: 1px solid var(--eb-line); border-radius: 5px;
  background: var(--eb-card); padding: 1px 7px; font-size: 12px; line-height: 18px; white-space: nowrap;
  color: var(--eb-text); font-variant-numeric: tabular-nums; }
.eb-mark { font-size: 11px; display: inline-block; font-family: 'DejaVu Sans', 'Segoe UI Symbol', 'Apple Symbols',
  sans-serif; }
.eb-critical { color: var(--eb-critical); } .eb-warning { color: var(--eb-warning); }
.eb-ok { color: var(--eb-ok); } .eb-notice { color: var(--eb-notice); }
.eb-quiet { color: var(--eb-muted); }
.eb-status { font-weight: 600; font-size: 12px; white-space: nowrap; }

[class*="st-key-card-"] { background: var(--eb-card); border: 1px solid var(--eb-line); border-radius: 8px;
  padding: 12px 14px; gap: 8px; height: 100%; }
[class*="st-key-card-"] > div > [data-testid="stVerticalBlock"] { gap: 6px; }
[class*="st-key-cardhead-"] { align-items: center; gap: 8px; min-height: 26px; }
[class*="st-key-cardhead-"] > :first-child { flex: 1 1 0; min-width: 0; }
[class*="st-key-table-"] { width: auto; }
[class*="st-key-table-"] button { border: 0; background: none; padding: 0 2px; min-height: 22px; box-shadow: none; }
[class*="st-key-table-"] button p { font-size: 11.5px; color: var(--eb-muted); }
.eb-card-title { display: flex; align-items: baseline; gap: 8px; flex-wrap: wrap; }
.eb-card-title h2 { font-size: 13.5px; font-weight: 600; margin: 0; padding: 0; color: var(--eb-text);
  letter-spacing: 0; line-height: 1.5; }
.eb-card-title .eb-clause { font-size: 12.5px; min-width: 0; overflow-wrap: anywhere; }
.eb-card-title .eb-pills { margin-left: 8px; }

[class*="st-key-grid-"] { display: grid; gap: 12px; align-items: stretch; width: 100%; }
[class*="st-key-grid-"] > * { min-width: 0; width: 100% !important; height: 100%; }
.st-key-grid-overview-a, .st-key-grid-overview-b { grid-template-columns: minmax(0, 556fr) minmax(0, 779fr); }
.st-key-grid-partitions { grid-template-columns: minmax(0, 960fr) minmax(0, 375fr); }
.st-key-grid-partition { grid-template-columns: minmax(0, 825fr) minmax(0, 510fr); }
.st-key-grid-config { grid-template-columns: minmax(0, 848fr) minmax(0, 488fr); }
.st-key-grid-partitions { align-items: start; }
@media (max-width: 1100px) { [class*="st-key-grid-"] { grid-template-columns: minmax(0, 1fr) !important; } }
.st-key-left-config { gap: 12px; }

.eb-tiles { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 14px; }
@media (max-width: 1100px) { .eb-tiles { grid-template-columns: repeat(3, minmax(0, 1fr)); } }
@media (max-width: 560px) { .eb-tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
.eb-tile { position: relative; background: var(--eb-card); border: 1px solid var(--eb-line); border-radius: 8px;
  padding: 11px 14px 10px; min-height: 86px; overflow: hidden; }
.eb-tile .eb-name { color: var(--eb-muted); font-size: 12.5px; line-height: 18px; }
.eb-tile .eb-figure { font-size: 20px; font-weight: 620; line-height: 28px; color: var(--eb-text);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.eb-tile .eb-sub { font-size: 12px; line-height: 18px; white-space: nowrap; color: var(--eb-muted); position: relative;
  z-index: 1; }
.eb-tile .eb-sub.eb-critical { color: var(--eb-critical); } .eb-tile .eb-sub.eb-warning { color: var(--eb-warning); }
.eb-tile img { position: absolute; right: 12px; bottom: 10px; width: 64px; height: 42px; }
@media (max-width: 560px) { .eb-tile img { width: 40px; height: 26px; top: 30px; } }

.st-key-attention-list > * + * { border-top: 1px solid var(--eb-line); }
[class*="st-key-attention-row"] { align-items: center; padding: 6px 0; gap: 10px; flex-wrap: nowrap; }
[class*="st-key-attention-row"] > :first-child { flex: 1 1 0; min-width: 0; }
[class*="st-key-attention-row"] a { padding: 0; min-height: 0; }
[class*="st-key-attention-row"] a p { color: var(--eb-local); font-size: 12.5px; white-space: nowrap; }
.st-key-attention-list { gap: 0; }
.eb-problem { display: grid; grid-template-columns: 78px minmax(0, 1fr); align-items: center; gap: 0 6px; }
@media (max-width: 560px) { .eb-problem { grid-template-columns: minmax(0, 1fr); } }
.eb-problem .eb-sentence { font-size: 13px; line-height: 18px; color: var(--eb-text); overflow-wrap: anywhere; }
.eb-problem .eb-detail { font-size: 12px; line-height: 17px; color: var(--eb-muted); overflow-wrap: anywhere; }

.eb-scroll { overflow-x: auto; }
.eb-table { width: 100%; border-collapse: collapse; font-size: 12.5px; color: var(--eb-text);
  font-variant-numeric: tabular-nums; margin: 0; }
.eb-table th { font-weight: 400; color: var(--eb-muted); font-size: 12px; padding: 6px 8px; border: 0;
  border-bottom: 1px solid var(--eb-line); white-space: nowrap; }
.eb-table td { padding: 6px 8px; border: 0; border-bottom: 1px solid var(--eb-grid); height: 34px; }
.eb-table tr:last-child td { border-bottom: 0; }
.eb-table code, .eb-code { font-family: __MONO__; font-size: 12px; background: none; color: inherit; padding: 0; }
.eb-left { text-align: left; } .eb-right { text-align: right; } .eb-center { text-align: center; }
.eb-nowrap { white-space: nowrap; }

.eb-grid-table { display: grid; gap: 4px; font-size: 12px; align-items: center; min-width: 480px; }
.eb-grid-table .eb-col { color: var(--eb-muted); text-align: center; font-size: 11.5px; padding-bottom: 2px; }
.eb-grid-table .eb-cell { background: var(--eb-epoch_fill); color: var(--eb-muted); border-radius: 4px;
  text-align: center; line-height: 24px; height: 24px; white-space: nowrap; overflow: hidden; }
.eb-grid-table .eb-cell-critical { background: var(--eb-critical_fill); color: var(--eb-critical); font-weight: 600; }
.eb-grid-table .eb-cell-warning { background: var(--eb-warning_fill); color: var(--eb-warning); font-weight: 600; }
.eb-grid-table .eb-cell-unknown { background: none; border: 1px dashed var(--eb-line); line-height: 22px; }

.eb-legend { display: flex; gap: 16px; flex-wrap: wrap; font-size: 12px; color: var(--eb-muted); }
.eb-legend-entry { display: inline-flex; align-items: center; gap: 6px; white-space: nowrap; }
.eb-swatch { width: 14px; height: 7px; display: inline-block; border-radius: 1px; }
.eb-swatch-remote { background: repeating-linear-gradient(135deg, var(--eb-remote) 0 2.5px,
  color-mix(in srgb, var(--eb-remote), var(--eb-card) 45%) 2.5px 4px); }
.eb-swatch-local { background: var(--eb-local); }
.eb-swatch-pending { border: 1.5px solid var(--eb-local); }
.eb-swatch-box { width: 7px; height: 7px; }

:root dl.eb-pairs, :root dl.eb-facts { padding: 0; }
.eb-pairs { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 5px 12px; margin: 0; padding: 0;
  font-size: 12.5px; }
.eb-pairs dt { color: var(--eb-muted); font-weight: 400; }
.eb-pairs dd { margin: 0; text-align: right; color: var(--eb-text); font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.eb-pairs dd.eb-critical { color: var(--eb-critical); } .eb-pairs dd.eb-warning { color: var(--eb-warning); }
.eb-facts { display: grid; grid-template-columns: 120px minmax(0, 1fr); gap: 8px 10px; margin: 0; padding: 0;
  font-size: 13px; }
.eb-facts dt { color: var(--eb-muted); font-weight: 400; } .eb-facts dd { margin: 0; color: var(--eb-text); }
@media (max-width: 560px) { .eb-facts { grid-template-columns: 1fr; } }
.eb-lines { font-size: 12.5px; color: var(--eb-muted); line-height: 19px; }
.eb-prose { font-size: 13px; line-height: 19px; color: var(--eb-text); }
.eb-empty { color: var(--eb-muted); font-size: 13px; padding: 18px 4px; text-align: center; }
.eb-empty p { margin: 0 0 4px; }
.eb-alert { display: flex; gap: 12px; align-items: baseline; border: 1px solid; border-radius: 8px; padding: 8px 14px;
  font-size: 13px; color: var(--eb-text); line-height: 19px; }
.eb-alert-critical { background: var(--eb-critical_fill); border-color: var(--eb-critical); }
.eb-alert-warning { background: var(--eb-warning_fill); border-color: var(--eb-warning); }
.eb-alert-notice { background: var(--eb-card); border-color: var(--eb-line); }
.eb-alert-ok { background: var(--eb-card); border-color: var(--eb-line); }
.st-key-alerts { gap: 8px; }
[data-testid="stLayoutWrapper"]:has(> [data-testid="stVerticalBlock"]:empty) { display: none; }

.eb-value { display: inline-block; min-width: 54px; padding: 0 8px; line-height: 20px; border-radius: 5px;
  border: 1px solid var(--eb-line); text-align: center; font-size: 12px; white-space: nowrap; }
.eb-value-wins { background: var(--eb-local_fill); border-color: var(--eb-local); font-weight: 600; }
.eb-value-unset { border-style: dashed; color: var(--eb-muted); }
.eb-diff { border: 1px solid var(--eb-line); border-radius: 6px; overflow: hidden; font-family: __MONO__;
  font-size: 12.5px; }
.eb-diff div { padding: 4px 10px; overflow-wrap: anywhere; }
.eb-diff .eb-minus { background: var(--eb-critical_fill); color: var(--eb-critical); }
.eb-diff .eb-plus { background: var(--eb-ok_fill); color: var(--eb-ok); }
[data-testid="stBaseButton-primary"]:not(:disabled) p { color: var(--eb-card); }
[class*="st-key-change-row"] { align-items: center; border-bottom: 1px solid var(--eb-grid); flex-wrap: nowrap;
  gap: 6px; }
[class*="st-key-change-row"] > :first-child { flex: 1 1 0; min-width: 0; }
[class*="st-key-change-row"] button { padding: 0 4px; min-height: 26px; }
[class*="st-key-change-row"] button p { font-size: 12.5px; }
.eb-change { display: grid; grid-template-columns: 118px 100px 104px 150px 86px minmax(60px, 1fr); gap: 8px;
  font-size: 12.5px; line-height: 20px; padding: 6px 8px; color: var(--eb-text); }
.eb-change-head { color: var(--eb-muted); font-size: 12px; }
.eb-change > span { overflow-wrap: anywhere; }
.st-key-changes { gap: 0; overflow-x: auto; }
.st-key-changes > * { min-width: 640px; }
@media (max-width: 560px) { .st-key-card-behind .xtick:nth-child(even) { display: none; } }
.eb-old, [class*="st-key-stale-"] { filter: grayscale(1); opacity: 0.62; }
[class*="st-key-stale-"] .eb-old { filter: none; opacity: 1; }
.st-key-person button { border: 0; background: none; }
.st-key-person button p { white-space: nowrap; font-size: 12.5px; }
.st-key-filters { align-items: center; gap: 8px 14px; }
.st-key-dialog-buttons { justify-content: flex-end; }
"""


def sheet(colours: Palette, more: str = "") -> str:
    """A style element with the palette's colours as variables, and ``more`` rules."""
    variables = " ".join(f"--eb-{name}: {getattr(colours, name)};" for name in _VARIABLES)
    return f"<style>:root {{ {variables} }}{_SHEET.replace('__MONO__', MONO)}{more}</style>"
