"""The lab's bootstrap race: where the new replica starts with the flag off and on, and how fast it is there.

Pure: the run as the API gives it → HTML and figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from app.components.lab import race_replay
from app.components.shared import format as fmt
from app.components.shared import markup
from app.theme import Palette, layout

RaceRun = Mapping[str, Any]
RUNNING: Final = "running"
LABEL_PERCENT_MIN: Final = 16
# Two labels at the right need this share of the chart's height between them, or this shift.
LABEL_GAP_SHARE: Final = 0.06
LABEL_PX: Final = 15
NAMES: Final = race_replay.NAMES


def race_of(run: RaceRun, flag: bool) -> Mapping[str, Any] | None:
    """The race with the flag so, when its replica has joined."""
    return next((race for race in run["races"] if race["flag"] is flag and race.get("joined", True)), None)


def _on_its_way(run: RaceRun, flag: bool) -> Mapping[str, Any] | None:
    """The last position of the replica that has not joined; None: it has, or has no log yet."""
    side = next((replica for replica in race_replay.sides(run) if replica["flag"] is flag), None)
    return None if side is None or side.get("joined", True) or not side["positions"] else side["positions"][-1]


def progress_text(run: RaceRun) -> str:
    """The subject of a race, or how it ended."""
    if run["state"] == RUNNING:
        text = f"Running: {run['step']}"
        if str(run["step"]).startswith("produce"):
            text += f", {fmt.size(run['produced_bytes'])} of {fmt.size(run['total_bytes'])}"
        return text + "."
    seconds = (run["ended_ms"] - run["started_ms"]) / 1000
    why = f" {run['message']}" if run["message"] else ""
    return f"The race is {run['state']} after {fmt.duration(seconds)}.{why}"


def comparison(run: RaceRun) -> str | None:
    """One sentence that sets both replicas side by side; None before both are there."""
    off, on = race_of(run, False), race_of(run, True)
    if off is None or on is None or not off["copied_bytes"]:
        return None
    share = 100 * on["copied_bytes"] / off["copied_bytes"]
    return (
        f"With the flag on the replica copied {share:.0f} % of the bytes, in {on['seconds']:.2f} s instead of"
        f" {off['seconds']:.2f} s."
    )


def pills_html(run: RaceRun, flag: bool) -> str:
    """The state of one side in a few words."""
    race = race_of(run, flag)
    if race is None:
        begun = any(side["flag"] is flag for side in race_replay.sides(run))
        label = "fetching" if begun else "not begun"
        seen, log = _on_its_way(run, flag), run["leader_log"]
        if seen is not None and log is not None and log["log_end"] > seen["local_start"]:
            share = (seen["log_end"] - seen["local_start"]) / (log["log_end"] - seen["local_start"])
            label = f"fetching · {100 * min(1.0, share):.0f} %"
        return '<div class="eb-pills">' + markup.pill(label, "notice") + "</div>"
    local = race["log_end"] - race["start_offset"]
    pills = [
        markup.pill(f"In sync after {race['seconds']:.2f} s", "ok"),
        markup.pill(f"copied {fmt.size(race['copied_bytes'])}"),
        markup.pill(f"{fmt.count(local)} records local", "warning" if flag else None),
    ]
    return '<div class="eb-pills">' + "".join(pills) + "</div>"


def lanes_html(run: RaceRun, flag: bool) -> str:
    """Remote tier, leader and new replica over the offsets of the whole log."""
    log, race = run["leader_log"], race_of(run, flag)
    if log is None:
        return markup.empty("The topic is being built.")
    end, local, pending = log["log_end"], log["local_start"], log["pending_upload"]
    start, reached = (None, local) if race is None else (race["start_offset"], end)
    if (seen := _on_its_way(run, flag)) is not None:
        start, reached = seen["local_start"], min(seen["log_end"], end)
    first = local if start is None else start
    to_go = "not there yet" if start is None else f"{fmt.count(end - reached)} to go"
    leader = [("local", local, pending, ""), ("pending", pending, end, "")]
    replica = [
        ("local", first, min(reached, max(first, pending)), ""),
        ("pending", max(first, pending), reached, ""),
        ("rest", reached, end, to_go),
    ]
    lanes = (
        ("Remote tier", [("remote", log["log_start"], pending, "")]),
        (f"Leader b{run['leader']}", leader),
        (f"New replica b{run['broker']}", replica),
    )
    rows = "".join(
        f'<span class="eb-name">{markup.text(name)}</span><div class="eb-lane">'
        + "".join(_bar(kind, low, high, end, label) for kind, low, high, label in bars if high > low)
        + ("" if start is None else f'<i style="left:{100 * start / end:.2f}%"></i>')
        + "</div>"
        for name, bars in lanes
    )
    starts = "is not there yet" if start is None else f"starts at {start}"
    alt = f"{NAMES[flag]}: the leader is local from {local}, tiered below {pending}; the new replica {starts}."
    head = f'<span></span><div class="eb-start">{_start_text(start, end, local, pending)}</div>'
    return f'<div class="eb-race" role="img" aria-label="{markup.text(alt)}">{head}{rows}{_axis_html(end)}</div>'


def _start_text(start: int | None, end: int, local: int, pending: int) -> str:
    """Over the dotted line where the new replica begins; at its left when there is no room at the right."""
    if start is None:
        return ""
    where = {local: " (leader's local start)", pending: " (earliest pending upload)"}.get(start, "")
    side = f"right:{100 - 100 * start / end:.2f}%" if start * 2 > end else f"left:{100 * start / end:.2f}%"
    return f'<span style="{side}">starts at {fmt.count(start)}{where}</span>'


def _axis_html(end: int) -> str:
    """Four round offsets and the log end."""
    unit = 10 ** max(0, len(str(max(1, end // 4))) - 1)
    step = max(1, end // 4 // unit * unit)
    ticks = [tick for tick in range(0, end, step) if end - tick > step // 2]
    marks = "".join(f'<span style="left:{100 * tick / end:.2f}%">{fmt.count(tick)}</span>' for tick in ticks)
    return f'<span></span><div class="eb-ticks">{marks}<span style="left:100%">{fmt.count(end)}</span></div>'


def _bar(kind: str, first: int, last: int, end: int, label: str) -> str:
    left, width = 100 * first / end, 100 * (last - first) / end
    label = label if width >= LABEL_PERCENT_MIN else ""  # it stands among the steps, too
    return f'<div class="eb-bar-{kind}" style="left:{left:.2f}%;width:{width:.2f}%">{markup.text(label)}</div>'


def lag_rows(run: RaceRun) -> pd.DataFrame:
    """Offsets behind the leader over the seconds since each replica was asked for."""
    rows = [
        (NAMES[race["flag"]], (seen["at_ms"] - race["began_ms"]) / 1000, race["log_end"] - seen["log_end"])
        for race in race_replay.sides(run)
        if race["log_end"] is not None
        for seen in race["positions"]
    ]
    return pd.DataFrame(rows, columns=["replica", "seconds", "offsets behind"])


def lag_figure(run: RaceRun, colours: Palette) -> go.Figure:
    """Both replicas on one clock, the flag on with the solid line."""
    figure = go.Figure(layout=layout(colours, height=300, margin={"l": 48, "r": 110, "t": 14, "b": 28}))
    rows = lag_rows(run)
    last_s, top = (float(rows[name].max()) if len(rows) else 0.0 for name in ("seconds", "offsets behind"))
    notes: list[dict[str, Any]] = []
    for flag, dash in ((False, "dash"), (True, "solid")):
        part = rows[rows["replica"] == NAMES[flag]]
        line = {"color": colours.local, "width": 2, "dash": dash, "shape": "hv"}
        seconds, behind = part["seconds"].tolist(), part["offsets behind"].tolist()
        if behind and behind[-1] == 0 and seconds[-1] < last_s:
            # The line of a replica that has arrived goes on at 0 while the other one still runs.
            seconds, behind = [*seconds, last_s], [*behind, 0]
        figure.add_scatter(x=seconds, y=behind, mode="lines", line=line, name=NAMES[flag])
        if behind:
            notes.append({"y": behind[-1], "text": f"{NAMES[flag].lower()}, {fmt.count(int(behind[-1]))}"})
    if len(notes) > 1 and abs(notes[0]["y"] - notes[1]["y"]) < LABEL_GAP_SHARE * top:
        max(notes, key=lambda note: note["y"])["yshift"] = LABEL_PX
    side = {
        "x": 1,
        "xref": "paper",
        "xanchor": "left",
        "xshift": 6,
        "showarrow": False,
        "font": {"color": colours.text},
    }
    figure.update_layout(annotations=[side | note for note in notes])
    figure.update_xaxes(
        ticksuffix=" s", range=[0, last_s or 1], gridcolor=colours.grid, zeroline=False, nticks=7, tickangle=0
    )
    figure.update_yaxes(rangemode="tozero", gridcolor=colours.grid, zerolinecolor=colours.line, nticks=6)
    return figure
