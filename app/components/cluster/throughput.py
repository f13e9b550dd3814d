"""Is copying keeping up? Produced and copied rates above, pending below, one time axis. Rows → figure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from app.components.cluster.totals import ThroughputRates
from app.components.shared import format as fmt
from app.components.shared.gaps import broken, broken_times
from app.theme import Palette, layout
from backend.store.queries.overview import ClusterSample

HEIGHT = 284
RIGHT_PX = 126
# A limit farther away than this would press the pending line flat; it is then named, not drawn.
LIMIT_FACTOR_MAX = 4
AXIS_HEADROOM = 1.12


def scale(highest: float) -> tuple[float, str]:
    """Divisor and unit for an axis that reaches ``highest`` bytes."""
    for divisor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if highest >= divisor:
            return divisor, unit
    return 1.0, "B"


def figure(
    rates: ThroughputRates,
    history: Sequence[ClusterSample],
    limit_bytes: int | None,
    since_ms: int,
    now_ms: int,
    colours: Palette,
    zone: tzinfo | None,
) -> go.Figure:
    """Two rows over the whole range; where samples are missing, no line is drawn."""
    rate_top = max((value for value in (*rates.produced, *rates.copied) if value), default=0.0)
    rate_by, rate_unit = scale(rate_top)
    pending = [sample.pending_bytes for sample in history]
    pending_top = max([value for value in pending if value], default=0)
    limit_near = limit_bytes is not None and limit_bytes <= LIMIT_FACTOR_MAX * pending_top
    if limit_near:
        pending_top = max(pending_top, limit_bytes or 0)
    pending_by, pending_unit = scale(pending_top)
    times = [_time(at_ms, zone) for at_ms in broken_times(rates.at_ms, rates.gaps)]
    produced = _drawn(rates.produced, rate_by, rates.gaps)
    copied = _drawn(rates.copied, rate_by, rates.gaps)
    waiting = _drawn(pending, pending_by, rates.gaps)
    fig = go.Figure()
    fig.add_scatter(x=times, y=copied, mode="lines", line={"color": colours.remote, "width": 1.8}, name="copied")
    fig.add_scatter(x=times, y=produced, mode="lines", line={"color": colours.text, "width": 1.5}, name="produced")
    fig.add_scatter(
        x=times,
        y=waiting,
        mode="lines",
        line={"color": colours.local, "width": 1.8},
        fill="tozeroy",
        fillcolor=colours.local_fill,
        yaxis="y2",
        name="pending",
    )
    fig.update_traces(hovertemplate="%{x|%H:%M:%S} %{fullData.name} %{y:.3g}<extra></extra>")
    start, end = _time(since_ms, zone), _time(now_ms, zone)
    labels = _end_labels(
        [
            (f"produced {_rate(rates.produced)}", _last(produced), colours.text),
            (f"copied {_rate(rates.copied)}", _last(copied), colours.muted),
        ],
        rate_top / rate_by,
        "y",
        110,
    )
    below = [(f"pending {fmt.size(_last(pending))}", _last(waiting), colours.local)]
    shapes: list[dict[str, Any]] = []
    if limit_bytes is not None and not limit_near:
        below.append((f"limit {fmt.size(limit_bytes)} ↑", pending_top / pending_by * AXIS_HEADROOM, colours.muted))
    elif limit_bytes is not None:
        limit = limit_bytes / pending_by
        below.append((f"limit {fmt.size(limit_bytes)}", limit, colours.critical))
        line = {"color": colours.critical, "width": 1.2, "dash": "dash"}
        shapes.append({"type": "line", "x0": start, "x1": end, "y0": limit, "y1": limit, "yref": "y2", "line": line})
    labels += _end_labels(below, pending_top / pending_by, "y2", 100)
    axis = {"showgrid": True, "gridcolor": colours.grid, "zeroline": False, "fixedrange": True, "nticks": 4}
    title = {"xref": "paper", "x": -0.004, "xanchor": "right", "showarrow": False, "yref": "paper", "yanchor": "bottom"}
    labels += [
        {**title, "text": f"{rate_unit}/s", "y": 1.0, "font": {"color": colours.muted, "size": 11}},
        {**title, "text": pending_unit, "y": 0.44, "font": {"color": colours.muted, "size": 11}},
    ]
    fig.update_layout(
        **layout(
            colours,
            height=HEIGHT,
            margin={"l": 52, "r": RIGHT_PX, "t": 24, "b": 24},
            uirevision="throughput",
            shapes=shapes,
            annotations=labels,
            hovermode="closest",
            xaxis={
                "range": [start, end],
                "showgrid": False,
                "linecolor": colours.line,
                "tickangle": 0,
                "tickformat": "%H:%M",
                "fixedrange": True,
                "anchor": "y2",
            },
            yaxis={**axis, "domain": [0.57, 1.0], "range": [0, (rate_top / rate_by or 1.0) * AXIS_HEADROOM]},
            yaxis2={**axis, "domain": [0.0, 0.42], "range": [0, (pending_top / pending_by or 1.0) * AXIS_HEADROOM]},
        )
    )
    return fig


def rows(rates: ThroughputRates, history: Sequence[ClusterSample], zone: tzinfo | None) -> pd.DataFrame:
    """The same as a table, newest first."""
    return pd.DataFrame(
        {
            "time": [_time(at_ms, zone).strftime("%Y-%m-%d %H:%M:%S") for at_ms in rates.at_ms],
            "produced, bytes/s": rates.produced,
            "copied, bytes/s": rates.copied,
            "pending, bytes": [sample.pending_bytes for sample in history],
        }
    ).iloc[::-1]


def _end_labels(
    entries: Sequence[tuple[str, float | None, str]], top: float, axis: str, height_px: float
) -> list[dict[str, Any]]:
    """Labels at the lines' ends; those that would overlap are pushed apart, within the axis."""
    highest = (top or 1.0) * AXIS_HEADROOM
    step = highest / height_px * 15  # a line of text has 15 px
    ordered = sorted(entries, key=lambda entry: entry[1] if entry[1] is not None else 0.0)
    return [
        {
            "text": label,
            "x": 1.0,
            "xref": "paper",
            "xanchor": "left",
            "xshift": 8,
            "y": at,
            "yref": axis,
            "yanchor": "middle",
            "showarrow": False,
            "font": {"color": colour, "size": 11.5},
        }
        for (label, _, colour), at in zip(
            ordered, apart([value or 0.0 for _, value, _ in ordered], step, highest), strict=True
        )
    ]


def apart(values: Sequence[float], step: float, highest: float) -> list[float]:
    """Rising ``values``, moved as little as needed to be ``step`` apart and none above ``highest``."""
    placed: list[float] = []
    for value in values:
        placed.append(max(value, placed[-1] + step) if placed else value)
    ceiling = highest
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - step
    return placed


def _drawn(values: Sequence[float | None], by: float, gaps: frozenset[int]) -> list[float | None]:
    return broken([None if value is None else value / by for value in values], gaps, None)


def _rate(values: Sequence[float | None]) -> str:
    value = _last(values)
    return fmt.UNKNOWN if value is None else f"{fmt.size(value)}/s"


def _last(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _time(at_ms: int, zone: tzinfo | None) -> datetime:
    # Plotly draws the wall clock it is given.
    return datetime.fromtimestamp(at_ms / 1000, zone or UTC).replace(tzinfo=None)
