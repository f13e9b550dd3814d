"""How a follower comes up to its leader: both log ends over time, and where it could start. Rows → figure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

import pandas as pd
import plotly.graph_objects as go

from app.components.gaps import broken, broken_times, gaps
from app.components.offset_axis import Axis, ticks
from app.components.offset_history import labels, time_of
from app.theme import Palette, layout
from backend.store.queries.partitions import PartitionPoint
from backend.store.samples import HISTORY_INTERVAL_MS

HEIGHT_PX: Final = 230
# Points of a line: what the database gives at most is 2,100.
POINTS_MAX: Final = 600
Line = Sequence[tuple[int, int | None]]


def lines(mine: Line, leader: Sequence[PartitionPoint]) -> list[tuple[str, Line]]:
    """Name and points of each; what the leader does not know is left out."""
    drawn: list[tuple[str, Line]] = [
        ("leader end", [(point.sampled_ms, point.log_end_offset) for point in leader]),
        ("follower", list(mine)),
        ("pending from", [(point.sampled_ms, _known(point.earliest_pending_upload_offset)) for point in leader]),
        ("local start", [(point.sampled_ms, _known(point.local_log_start_offset)) for point in leader]),
    ]
    return [(name, _thin(points)) for name, points in drawn if any(value is not None for _, value in points)]


def _known(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset


def _thin(points: Line) -> Line:
    """At most POINTS_MAX of them, the last one kept."""
    step = -(-len(points) // POINTS_MAX) or 1
    return points[::-1][::step][::-1]


def figure(
    found: Sequence[tuple[str, Line]],
    first_ms: int,
    last_ms: int,
    interval_ms: int,
    colours: Palette,
    zone: tzinfo | None,
) -> go.Figure:
    """Lines named at their right end; not from zero, as offsets are not amounts. Dotted: where a new one may start."""
    styles = {
        "leader end": (colours.text, "solid"),
        "follower": (colours.local, "solid"),
        "pending from": (colours.remote, "dot"),
        "local start": (colours.muted, "dot"),
    }
    known = [value for _, points in found for _, value in points if value is not None]
    low, high = min(known, default=0), max(known, default=1)
    room = max(1, (high - low) // 20)
    axis = Axis(max(0, low - room), high + room)
    fig = go.Figure()
    for name, points in found:
        at_ms = [moment for moment, _ in points]
        missing = gaps(at_ms, interval_ms, HISTORY_INTERVAL_MS)
        colour, dash = styles[name]
        fig.add_scatter(
            x=[time_of(moment, zone) for moment in broken_times(at_ms, missing)],
            y=broken([value for _, value in points], missing, None),
            mode="lines",
            name=name,
            line={"color": colour, "width": 1.8 if dash == "solid" else 1.4, "dash": dash},
            hovertemplate="%{x|%H:%M:%S} · " + name + " %{y:,}<extra></extra>",
        )
    at = ticks(axis, 5)
    named = [(name, [value for _, value in points], styles[name][0]) for name, points in found]
    fig.update_layout(
        **layout(
            colours,
            height=HEIGHT_PX,
            margin={"l": 66, "r": 84, "t": 8, "b": 24},
            uirevision="catch-up",
            annotations=labels(named, axis),
            xaxis={
                "range": [time_of(first_ms, zone), time_of(last_ms, zone)],
                "showgrid": False,
                "linecolor": colours.line,
                "showline": True,
                "fixedrange": True,
                "tickangle": 0,
                "nticks": 5,
                "tickformat": "%H:%M",
            },
            yaxis={
                "range": [axis.start, axis.end],
                "tickvals": [value for value, _ in at],
                "ticktext": [words for _, words in at],
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
            },
        )
    )
    return fig


def rows(found: Sequence[tuple[str, Line]], zone: tzinfo | None) -> pd.DataFrame:
    """The points as a table, the newest first."""
    points = [(moment, name, value) for name, line in found for moment, value in line]
    newest = sorted(points, key=lambda point: point[0], reverse=True)
    return pd.DataFrame(
        {
            "time": [time_of(moment, zone) for moment, _, _ in newest],
            "line": [name for _, name, _ in newest],
            "offset": pd.array([value for _, _, value in newest], dtype="Int64"),
        }
    )
