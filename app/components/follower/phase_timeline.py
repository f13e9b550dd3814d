"""The phases a follower went through: one row a replica, one bar a phase. Rows → stretches → figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from app.components.follower.stuck_follower import attempts, is_ordinary_retry, why_stuck
from app.components.partition.replica_ranges import PHASE_LABELS
from app.components.shared import format as fmt
from app.components.shared import markup
from app.theme import Palette, layout
from backend.store.queries.followers import Follower, FollowerPhaseEvent, PhaseChange
from backend.tiering.follower_phase import FollowerPhase

ROWS_MAX: Final = 8
ROW_PX: Final = 28
UNKNOWN_PHASE: Final = "?"
_SHAPES: Final = {"WAITING_FOR_METADATA": ".", "BUILDING_REMOTE_AUX": "/", "DELAYED": "x", "FAILED": "x"}
ORDER: Final = (*(phase.value for phase in FollowerPhase), UNKNOWN_PHASE)
_BAR, _THIN = 0.52, 0.16


@dataclass(frozen=True, slots=True)
class Stretch:
    """``[start_ms, end_ms)`` in one phase."""

    phase: str
    start_ms: int
    end_ms: int
    source: str
    attempts: int = 0
    target_offset: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A follower with its stretches, oldest first."""

    follower: Follower
    stretches: tuple[Stretch, ...]
    outcome: str
    stuck: bool


def stretches(
    follower: Follower,
    events: Sequence[FollowerPhaseEvent],
    changes: Sequence[PhaseChange],
    since_ms: int,
    now_ms: int,
) -> tuple[Stretch, ...]:
    """From its broker's events, else from samples; the newest sample decides the last one. Clipped to the window."""
    in_order = _event_stretches(events, now_ms) if events else _sampled(changes, now_ms)
    replica = follower.replica
    phase = replica.phase or UNKNOWN_PHASE
    if not in_order or (in_order[-1].phase != phase and replica.sampled_ms >= in_order[-1].start_ms):
        start_ms = replica.phase_since_ms or replica.changed_ms
        if in_order:
            start_ms = max(start_ms, in_order[-1].start_ms + 1)
            in_order[-1] = replace(in_order[-1], end_ms=start_ms)
        in_order.append(Stretch(phase, start_ms, now_ms, replica.phase_source or "inferred", attempts(replica) or 0))
    clipped = [
        replace(stretch, start_ms=max(stretch.start_ms, since_ms)) for stretch in in_order if stretch.end_ms > since_ms
    ]
    return tuple(stretch for stretch in clipped if stretch.end_ms > stretch.start_ms)


def _event_stretches(events: Sequence[FollowerPhaseEvent], now_ms: int) -> list[Stretch]:
    in_order: list[Stretch] = []
    for event in events:
        body = event.body
        if is_ordinary_retry(body):
            continue  # the phase before goes on
        evidence = body.get("evidence") if isinstance(body.get("evidence"), dict) else {}
        target = body.get("target_offset")
        stretch = Stretch(
            str(body.get("phase")),
            event.at_ms,
            now_ms,
            "exact",
            int(body.get("attempts") or 0),
            target if isinstance(target, int) else None,
            str((evidence or {}).get("reason") or ""),
        )
        if in_order and in_order[-1].phase == stretch.phase:
            in_order[-1] = replace(stretch, start_ms=in_order[-1].start_ms)
            continue
        if in_order:
            in_order[-1] = replace(in_order[-1], end_ms=stretch.start_ms)
        in_order.append(stretch)
    return in_order


def _sampled(changes: Sequence[PhaseChange], now_ms: int) -> list[Stretch]:
    in_order: list[Stretch] = []
    for change in changes:
        # A phase began after the last sample that did not have it, even when the sample's own start time is earlier.
        earliest = change.before_ms + 1 if change.before_ms is not None else 0
        start_ms = max(earliest, change.phase_since_ms or change.sampled_ms)
        start_ms = min(start_ms, change.sampled_ms)
        if in_order:
            in_order[-1] = replace(in_order[-1], end_ms=start_ms)
        in_order.append(Stretch(change.phase or UNKNOWN_PHASE, start_ms, now_ms, change.phase_source or "inferred"))
    return in_order


def row(follower: Follower, in_order: tuple[Stretch, ...], now_ms: int) -> TimelineRow:
    """The row with its outcome in words."""
    stuck = why_stuck(follower.replica, now_ms) is not None
    return TimelineRow(follower, in_order, _outcome(follower, in_order, stuck), stuck)


def _outcome(follower: Follower, in_order: Sequence[Stretch], stuck: bool) -> str:
    phase = follower.replica.phase or UNKNOWN_PHASE
    if stuck:
        tried = attempts(follower.replica)
        if phase in (FollowerPhase.DELAYED.value, FollowerPhase.FAILED.value):
            return "stuck" + (f" · attempt {tried}" if tried else "")
        return f"stuck · {PHASE_LABELS.get(phase, phase)}"
    if phase == FollowerPhase.IN_SYNC.value:
        took = _took_ms(in_order)
        return "in sync" if took is None else f"in sync after {fmt.duration(took / 1000)}"
    if phase == FollowerPhase.DELAYED.value:
        return "waits for the next attempt"
    label = PHASE_LABELS.get(phase, "? not known")
    if phase == FollowerPhase.FETCHING.value and follower.behind is not None:
        return f"{label} · {fmt.axis_count(follower.behind)} behind"
    return label


def _took_ms(in_order: Sequence[Stretch]) -> int | None:
    """The duration of the last catch-up into the ISR, when the window holds all of it."""
    if len(in_order) < 2 or in_order[-1].phase != FollowerPhase.IN_SYNC.value:
        return None
    first = len(in_order) - 1
    while first > 0 and in_order[first - 1].phase != FollowerPhase.IN_SYNC.value:
        first -= 1
    return in_order[-1].start_ms - in_order[first].start_ms


def figure(
    rows: Sequence[TimelineRow],
    since_ms: int,
    now_ms: int,
    plans: Sequence[tuple[int, str]],
    colours: Palette,
    zone: tzinfo | None,
) -> go.Figure:
    """At most 8 rows, the first on top. ``plans``: (when, name) of changes, as dotted lines."""
    fig = go.Figure()
    styles = _bar_styles(colours)
    for phase in ORDER:
        bars = [
            (at, stretch)
            for at, timeline_row in enumerate(rows)
            for stretch in timeline_row.stretches
            if stretch.phase == phase
        ]
        if not bars:
            continue
        thin = phase == FollowerPhase.IN_SYNC.value
        fig.add_bar(
            y=[at for at, _ in bars],
            base=[_time(stretch.start_ms, zone) for _, stretch in bars],
            x=[stretch.end_ms - stretch.start_ms for _, stretch in bars],
            width=_THIN if thin else _BAR,
            orientation="h",
            marker=styles[phase],
            name=PHASE_LABELS.get(phase, "not known"),
            customdata=[
                [fmt.duration((stretch.end_ms - stretch.start_ms) / 1000), stretch.source] for _, stretch in bars
            ],
            hovertemplate="%{fullData.name} · %{customdata[0]} · %{customdata[1]}<extra></extra>",
        )
    first, last = _time(since_ms, zone), _time(now_ms, zone)
    names = [_name(timeline_row) for timeline_row in rows]
    longest = max((len(f"{f.follower.replica.topic}-{f.follower.replica.partition}") for f in rows), default=8)
    fig.update_layout(
        **layout(
            colours,
            height=ROW_PX * max(1, len(rows)) + 54,
            margin={"l": min(250, 76 + 6.6 * min(longest, 24)), "r": 168, "t": 22, "b": 26},
            uirevision="phases",
            barmode="overlay",
            hovermode="closest",
            shapes=[
                {
                    "type": "line",
                    "x0": _time(at_ms, zone),
                    "x1": _time(at_ms, zone),
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "line": {"color": colours.muted, "width": 1.2, "dash": "dot"},
                }
                for at_ms, _ in plans
            ],
            annotations=_labels(rows, plans, colours, zone),
            xaxis={
                "type": "date",
                "range": [first, last],
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
                "tickangle": 0,
                "nticks": 7,
                "tickformat": "%H:%M",
                "showline": True,
                "linecolor": colours.line,
            },
            yaxis={
                "range": [max(1, len(rows)) - 0.45, -0.55],
                "tickvals": list(range(len(rows))),
                "ticktext": names,
                "tickfont": {"color": colours.text, "size": 11.5},
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
                "showline": True,
                "linecolor": colours.line,
            },
        )
    )
    return fig


def rows_table(rows: Sequence[TimelineRow], clock: Any) -> pd.DataFrame:
    """Every stretch as a row."""
    flat = [(timeline_row, stretch) for timeline_row in rows for stretch in timeline_row.stretches]
    return pd.DataFrame(
        {
            "partition": [f"{f.follower.replica.topic}-{f.follower.replica.partition}" for f, _ in flat],
            "broker": [f.follower.replica.broker_id for f, _ in flat],
            "phase": [PHASE_LABELS.get(stretch.phase, "? not known") for _, stretch in flat],
            "from": [clock(stretch.start_ms) for _, stretch in flat],
            "for": [fmt.duration((stretch.end_ms - stretch.start_ms) / 1000) for _, stretch in flat],
            "known": [stretch.source for _, stretch in flat],
            "failed attempts": [stretch.attempts for _, stretch in flat],
            "why": [stretch.reason for _, stretch in flat],
        }
    )


def legend_html(colours: Palette) -> str:
    """The phases in their order, each drawn as its bar."""
    inner = "".join(
        f'<span class="eb-legend-entry"><span class="eb-swatch eb-phase-{phase.lower()}" aria-hidden="true"></span>'
        f"{markup.text('stuck or failed' if phase == 'DELAYED' else PHASE_LABELS[phase])}</span>"
        for phase in ORDER
        if phase not in (UNKNOWN_PHASE, "FAILED")
    )
    return f'<div class="eb-legend">{inner}</div>'


def _bar_styles(colours: Palette) -> dict[str, dict[str, Any]]:
    fills = {
        "TRUNCATING": colours.notice,
        "WAITING_FOR_METADATA": colours.warning,
        "BUILDING_REMOTE_AUX": colours.remote,
        "FETCHING": colours.local,
        "DELAYED": colours.critical,
        "FAILED": colours.critical,
        "IN_SYNC": colours.ok,
        UNKNOWN_PHASE: colours.line,
    }
    styles: dict[str, dict[str, Any]] = {}
    for phase, colour in fills.items():
        styles[phase] = {"color": colour, "line": {"width": 0.8, "color": colours.card}}
        if phase == "IN_SYNC":
            styles[phase] = {"color": colour, "opacity": 0.55, "line": {"width": 0}}
        if phase in _SHAPES:
            styles[phase]["pattern"] = {
                "shape": _SHAPES[phase],
                "fillmode": "overlay",
                "fgcolor": colours.card,
                "fgopacity": 0.45,
                "size": 5,
                "solidity": 0.2,
            }
    return styles


def _labels(
    rows: Sequence[TimelineRow], plans: Sequence[tuple[int, str]], colours: Palette, zone: tzinfo | None
) -> list[dict[str, Any]]:
    annotations: list[dict[str, Any]] = [
        {
            "text": ("▲ " if timeline_row.stuck else "") + _escaped(timeline_row.outcome),
            "x": 1,
            "xref": "paper",
            "xanchor": "left",
            "xshift": 8,
            "y": at,
            "yref": "y",
            "yanchor": "middle",
            "showarrow": False,
            "font": {"size": 11.5, "color": colours.critical if timeline_row.stuck else colours.text},
        }
        for at, timeline_row in enumerate(rows)
    ]
    annotations += [
        {
            "text": _escaped(name),
            "x": _time(at_ms, zone),
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "xanchor": "left",
            "showarrow": False,
            "font": {"size": 11, "color": colours.muted},
        }
        for at_ms, name in plans
    ]
    return annotations


def _name(timeline_row: TimelineRow) -> str:
    replica = timeline_row.follower.replica
    name = f"{replica.topic}-{replica.partition}"
    if len(name) > 24:
        name = f"{name[:12]}…{name[-11:]}"
    return f"{_escaped(name)}  broker {replica.broker_id}"


def _escaped(text: str) -> str:
    """Plotly reads a little markup in texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _time(at_ms: int, zone: tzinfo | None) -> datetime:
    # Plotly draws the wall clock it is given.
    return datetime.fromtimestamp(at_ms / 1000, zone or UTC).replace(tzinfo=None)
