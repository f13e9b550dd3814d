"""The ranges of the Partitions page: the list form, each row wide enough to hit, with its facts on hover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from app.components.partition import range_list
from app.components.partition.range_list import RangeBar
from app.components.shared import format as fmt
from app.theme import Palette


def figure(bars: Sequence[RangeBar], colours: Palette, selected: str | None) -> go.Figure:
    """As :func:`range_list.figure`, with one unseen bar over each row that takes the click."""
    fig = range_list.figure(bars, colours, selected=selected)
    fig.update_traces(hoverinfo="skip", hovertemplate=None)
    high, low = fig.layout.xaxis.range
    fig.add_bar(
        y=list(range(len(bars))),
        base=[low] * len(bars),
        x=[high - low] * len(bars),
        width=1,
        orientation="h",
        marker={"opacity": 0, "color": colours.text},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        customdata=[[bar.name, _facts(bar)] for bar in bars],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        name="select",
    )
    return fig


def picked(event: Any) -> str | None:
    """The partition that a click chose; None without one."""
    points = event.selection.points if event is not None else []
    data = points[0].get("customdata") if points else None
    return str(data[0]) if isinstance(data, (list, tuple)) and data else None


def _facts(bar: RangeBar) -> str:
    pending = fmt.size(bar.pending_bytes) + (f" ({bar.cause})" if bar.cause else "")
    return f"remote {fmt.size(bar.remote_bytes)} · local {fmt.size(bar.local_bytes)} · pending {pending}"
