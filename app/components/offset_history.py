"""How a partition's offsets moved: log end, latest tiered, local start. Rows → figure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from app.components.gaps import broken, broken_times, gaps
from app.components.offset_axis import Axis, ticks
from app.components.table_style import styled, whole
from app.theme import Palette, layout
from backend.store.queries.partitions import PartitionPoint
from backend.store.samples import HISTORY_INTERVAL_MS

HEIGHT_PX: Final = 250
LABEL_GAP: Final = 0.075  # of the axis: labels closer than this are moved apart


def figure(
    points: Sequence[PartitionPoint],
    first_ms: int,
    last_ms: int,
    interval_ms: int,
    colours: Palette,
    zone: tzinfo | None,
) -> go.Figure:
    """Lines named at their right end; not from zero, as offsets are not amounts.

    Gaps where not known, and where samples are missing; a partition that does not move has one a minute.
    """
    lines = (
        ("log end", [p.log_end_offset for p in points], colours.text),
        ("tiered to", [_tiered_end(p) for p in points], colours.remote),
        ("local start", [p.local_log_start_offset for p in points], colours.local),
    )
    known = [value for _, values, _ in lines for value in values if value is not None]
    low, high = min(known, default=0), max(known, default=1)
    room = max(1, (high - low) // 20)
    axis = Axis(max(0, low - room), high + room)
    at_ms = [p.sampled_ms for p in points]
    missing = gaps(at_ms, interval_ms, HISTORY_INTERVAL_MS)
    times = [time_of(moment, zone) for moment in broken_times(at_ms, missing)]
    fig = go.Figure()
    for name, values, colour in lines:
        fig.add_scatter(
            x=times,
            y=broken(values, missing, None),
            mode="lines",
            name=name,
            line={"color": colour, "width": 1.8},
            hovertemplate="%{x|%H:%M:%S} · " + name + " %{y:,}<extra></extra>",
        )
    at = ticks(axis, 5)
    fig.update_layout(
        **layout(
            colours,
            height=HEIGHT_PX,
            margin={"l": 70, "r": 76, "t": 8, "b": 24},
            uirevision="offset-history",
            annotations=labels(lines, axis),
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
                "ticktext": [words for _, words in at],
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
            },
        )
    )
    return fig


def shown(points: Sequence[PartitionPoint], zone: tzinfo | None) -> Any:
    """:func:`rows` with numbers written as on the rest of the page."""
    table = rows(points, zone)
    return styled(table, dict.fromkeys(table.columns[3:], whole))


def rows(points: Sequence[PartitionPoint], zone: tzinfo | None) -> pd.DataFrame:
    """The points as a table, the newest first."""
    newest = list(reversed(points))
    return pd.DataFrame(
        {
            "time": [time_of(p.sampled_ms, zone) for p in newest],
            "leader": [p.leader for p in newest],
            "epoch": [p.leader_epoch for p in newest],
            "log start": pd.array([p.log_start_offset for p in newest], dtype="Int64"),
            "local start": pd.array([p.local_log_start_offset for p in newest], dtype="Int64"),
            "latest tiered": pd.array([p.latest_tiered_offset for p in newest], dtype="Int64"),
            "high watermark": pd.array([p.high_watermark for p in newest], dtype="Int64"),
            "log end": pd.array([p.log_end_offset for p in newest], dtype="Int64"),
        }
    )


def _tiered_end(point: PartitionPoint) -> int | None:
    tiered = point.latest_tiered_offset
    return None if tiered is None or tiered < 0 else tiered + 1


def time_of(at_ms: int, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, zone or UTC).replace(tzinfo=None)


def labels(lines: Sequence[tuple[str, list[int | None], str]], axis: Axis) -> list[dict[str, Any]]:
    """Names at the height of the newest value, from the top down, moved apart where they would touch."""
    ends = [(next((v for v in reversed(values) if v is not None), None), name) for name, values, _ in lines]
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
