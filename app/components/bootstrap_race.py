"""The lab's bootstrap race: where the new replica starts with the flag off and on, and how fast it is there.

Pure: the run as the API gives it → HTML and figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from app.components import format as fmt
from app.components import markup
from app.theme import Palette, layout

Run = Mapping[str, Any]
RUNNING: Final = "running"
STEPS: Final = {False: "add a replica with the flag off", True: "add a replica with the flag on"}
NAMES: Final = {False: "Flag off", True: "Flag on"}
CSS: Final = """
.eb-race { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 6px 12px; align-items: center;
  font-size: 12px; margin: 8px 0; }
.eb-race .eb-lane { position: relative; height: 20px; border-left: 1px solid var(--eb-line); }
.eb-race .eb-lane > * { position: absolute; top: 0; height: 20px; box-sizing: border-box; }
.eb-race .eb-bar-remote { background: repeating-linear-gradient(135deg, var(--eb-remote) 0 3px,
  color-mix(in srgb, var(--eb-remote), var(--eb-card) 45%) 3px 5px); }
.eb-race .eb-bar-local { background: var(--eb-local); }
.eb-race .eb-bar-pending { border: 1.5px solid var(--eb-local); }
.eb-race .eb-bar-rest { border: 1px solid var(--eb-line); color: var(--eb-muted); text-align: center;
  line-height: 18px; overflow: hidden; white-space: nowrap; }
.eb-race .eb-name { text-align: right; color: var(--eb-text); }
"""


def race_of(run: Run, flag: bool) -> Mapping[str, Any] | None:
    """The race with the flag so, when it has ended."""
    return next((race for race in run["races"] if race["flag"] is flag), None)


def progress_words(run: Run) -> str:
    """What a race is about, or how it ended."""
    if run["state"] == RUNNING:
        text = f"Running: {run['step']}"
        if str(run["step"]).startswith("produce"):
            text += f", {fmt.size(run['produced_bytes'])} of {fmt.size(run['total_bytes'])}"
        return text + "."
    seconds = (run["ended_ms"] - run["started_ms"]) / 1000
    why = f" {run['message']}" if run["message"] else ""
    return f"The race is {run['state']} after {fmt.duration(seconds)}.{why}"


def comparison(run: Run) -> str | None:
    """One sentence that sets both replicas side by side; None before both are there."""
    off, on = race_of(run, False), race_of(run, True)
    if off is None or on is None or not off["copied_bytes"]:
        return None
    share = 100 * on["copied_bytes"] / off["copied_bytes"]
    return (
        f"With the flag on the replica copied {share:.0f} % of the bytes, in {on['seconds']:.2f} s instead of"
        f" {off['seconds']:.2f} s."
    )


def pills_html(run: Run, flag: bool) -> str:
    """The state of one side in a few words."""
    race = race_of(run, flag)
    if race is None:
        going_on = run["state"] == RUNNING and run["step"] == STEPS[flag]
        return '<div class="eb-pills">' + markup.pill("fetching" if going_on else "not begun", "notice") + "</div>"
    local = race["log_end"] - race["start_offset"]
    pills = [
        markup.pill(f"In sync after {race['seconds']:.2f} s", "ok"),
        markup.pill(f"copied {fmt.size(race['copied_bytes'])}"),
        markup.pill(f"{fmt.count(local)} records local", "warning" if flag else None),
    ]
    return '<div class="eb-pills">' + "".join(pills) + "</div>"


def lanes_html(run: Run, flag: bool) -> str:
    """Remote tier, leader and new replica over the offsets of the whole log."""
    log, race = run["leader_log"], race_of(run, flag)
    if log is None:
        return markup.empty("The topic is being built.")
    end, local, pending = log["log_end"], log["local_start"], log["pending_upload"]
    start = None if race is None else race["start_offset"]
    leader = [("local", local, pending, ""), ("pending", pending, end, "")]
    replica = [("rest", local, end, "not there yet")]
    if start is not None:
        replica = [("local", start, max(start, pending), ""), ("pending", max(start, pending), end, "")]
    lanes = (
        ("Remote tier", [("remote", log["log_start"], pending, "")]),
        (f"Leader b{run['leader']}", leader),
        (f"New replica b{run['broker']}", replica),
    )
    rows = "".join(
        f'<span class="eb-name">{markup.text(name)}</span><div class="eb-lane">'
        + "".join(_bar(kind, first, last, end, label) for kind, first, last, label in bars if last > first)
        + "</div>"
        for name, bars in lanes
    )
    starts = "is not there yet" if start is None else f"starts at {start}"
    alt = f"{NAMES[flag]}: the leader is local from {local}, tiered below {pending}; the new replica {starts}."
    return f'<div class="eb-race" role="img" aria-label="{markup.text(alt)}">{rows}</div>'


def _bar(kind: str, first: int, last: int, end: int, label: str) -> str:
    left, width = 100 * first / end, 100 * (last - first) / end
    return f'<div class="eb-bar-{kind}" style="left:{left:.2f}%;width:{width:.2f}%">{markup.text(label)}</div>'


def lag_rows(run: Run) -> pd.DataFrame:
    """Offsets behind the leader over the seconds since each replica was asked for."""
    rows = [
        (NAMES[race["flag"]], (seen["at_ms"] - race["began_ms"]) / 1000, race["log_end"] - seen["log_end"])
        for race in run["races"]
        for seen in race["positions"]
    ]
    return pd.DataFrame(rows, columns=["replica", "seconds", "offsets behind"])


def lag_figure(run: Run, colours: Palette) -> go.Figure:
    """Both replicas on one clock, the flag on with the solid line."""
    figure = go.Figure(layout=layout(colours, height=220))
    rows = lag_rows(run)
    for flag, dash in ((False, "dash"), (True, "solid")):
        part = rows[rows["replica"] == NAMES[flag]]
        line = {"color": colours.local, "width": 2, "dash": dash, "shape": "hv"}
        figure.add_scatter(x=part["seconds"], y=part["offsets behind"], mode="lines", line=line, name=NAMES[flag])
    figure.update_xaxes(title="seconds", rangemode="tozero", gridcolor=colours.grid, nticks=7)
    figure.update_yaxes(rangemode="tozero", gridcolor=colours.grid, nticks=6)
    return figure


def phase_table(run: Run) -> str:
    """Every phase of both replicas, in the order in which they happened."""
    rows = [
        [
            NAMES[race["flag"]],
            f"{(seen['at_ms'] - race['began_ms']) / 1000:.3f} s",
            seen["phase"].lower().replace("_", " "),
            "" if seen["target_offset"] is None else fmt.count(seen["target_offset"]),
            seen["reason"] or "",
        ]
        for race in run["races"]
        for seen in race["phases"]
    ]
    columns = [("Replica", "left"), ("After", "right"), ("Phase", "left"), ("Target", "right"), ("Why", "left")]
    return markup.table(columns, rows, caption="Phases of both new replicas")
