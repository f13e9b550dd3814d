"""Offsets over time as lines that are named at their right end: what the charts of a partition's past share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import plotly.graph_objects as go

from app.components.partition.offset_axis import Axis, ticks
from app.components.shared.gaps import broken, broken_times, gaps
from app.theme import Palette, layout
from backend.store.writes.samples import HISTORY_INTERVAL_MS

LABEL_GAP: Final = 0.075  # of the axis: labels closer than this are moved apart
# (time in epoch ms, offset or None where it is not known), in the order of time.
Points = Sequence[tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class OffsetLine:
    """One line of the chart; `dash` as Plotly names it."""

    name: str
    points: Points
    colour: str
    dash: str = "solid"


def figure(
    lines: Sequence[OffsetLine],
    first_ms: int,
    last_ms: int,
    interval_ms: int,
    colours: Palette,
    zone: tzinfo | None,
    *,
    height_px: int,
    view: str,
) -> go.Figure:
    """Not from zero, as offsets are not amounts. Gaps where not known, and where samples are missing.

    A zoomed section stays while `view` is the same.
    """
    offsets = [value for line in lines for _, value in line.points if value is not None]
    low, high = min(offsets, default=0), max(offsets, default=1)
    room = max(1, (high - low) // 20)
    axis = Axis(max(0, low - room), high + room)
    fig = go.Figure()
    for line in lines:
        at_ms = [moment for moment, _ in line.points]
        missing = gaps(at_ms, interval_ms, HISTORY_INTERVAL_MS)
        fig.add_scatter(
            x=[time_of(moment, zone) for moment in broken_times(at_ms, missing)],
            y=broken([value for _, value in line.points], missing, None),
            mode="lines",
            name=line.name,
            line={"color": line.colour, "width": 1.8 if line.dash == "solid" else 1.4, "dash": line.dash},
            hovertemplate="%{x|%H:%M:%S} · " + line.name + " %{y:,}<extra></extra>",
        )
    at = ticks(axis, 5)
    fig.update_layout(
        **layout(
            colours,
            height=height_px,
            margin={"l": 68, "r": 84, "t": 8, "b": 24},
            uirevision=view,
            annotations=_labels(lines, axis),
            xaxis={
                "range": [time_of(first_ms, zone), time_of(last_ms, zone)],
                "showgrid": False,
                "linecolor": colours.line,
                "showline": True,
                "fixedrange": True,
                "tickangle": 0,
                "nticks": 6,
                "tickformat": "%H:%M",
            },
            yaxis={
                "range": [axis.start, axis.end],
                "tickvals": [value for value, _ in at],
                "ticktext": [label for _, label in at],
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
            },
        )
    )
    return fig


def time_of(at_ms: int, zone: tzinfo | None) -> datetime:
    """The moment on a clock of the zone, UTC without one, as Plotly wants it."""
    return datetime.fromtimestamp(at_ms / 1000, zone or UTC).replace(tzinfo=None)


def _labels(lines: Sequence[OffsetLine], axis: Axis) -> list[dict[str, Any]]:
    """Names at the height of the newest value, from the top down, moved apart where they would touch."""
    ends = [(next((v for _, v in reversed(line.points) if v is not None), None), line.name) for line in lines]
    placed: list[dict[str, Any]] = []
    above = float("inf")
    for value, name in sorted(((value, name) for value, name in ends if value is not None), reverse=True):
        height = min(axis.percent(value) / 100, above - LABEL_GAP)
        above = height
        placed.append(
            {
                "text": name,
                "x": 1,
                "xref": "paper",
                "xanchor": "left",
                "xshift": 6,
                "y": height,
                "yref": "paper",
                "yanchor": "middle",
                "showarrow": False,
                "font": {"size": 11.5},
            }
        )
    return placed
