"""Offset ranges of many partitions, list form: bytes behind the log end, log scale, end at the right. Rows → figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from app.components.partition.pending_limits import pending_bytes, pending_status, pending_unknown_cause
from app.components.shared import format as fmt
from app.theme import Palette, layout, status_colour
from backend.store.queries.partitions import PartitionRow

ROW_PX: Final = 27
FRAME_PX: Final = 36
LANE: Final = 7 / ROW_PX


@dataclass(frozen=True, slots=True)
class RangeBar:
    """A partition as bytes behind its log end; None: not known, ``cause`` says why."""

    name: str
    remote_bytes: int | None
    local_bytes: int | None
    pending_bytes: int | None
    status: str | None
    cause: str = ""

    @property
    def reach(self) -> int:
        """The bytes from its oldest record to the log end."""
        behind = (self.pending_bytes or 0) + (self.remote_bytes or 0)
        return max(self.local_bytes or 0, behind)


def bar_of(row: PartitionRow, limit_bytes: int | None) -> RangeBar:
    """The bar of a partition; the ledger's bytes count before the observer's."""
    pending = pending_bytes(row)
    remote = row.ledger_bytes if row.ledger_bytes is not None else row.remote_log_bytes
    return RangeBar(
        f"{row.topic}-{row.partition}",
        remote,
        row.local_log_bytes,
        pending,
        pending_status(pending, limit_bytes),
        "" if pending is not None else pending_unknown_cause(row),
    )


def figure(bars: Sequence[RangeBar], colours: Palette, *, selected: str | None = None, left_px: int = 0) -> go.Figure:
    """At most 50 rows; the first is on top. Bars carry the partition's name as custom data."""
    low, high = _decades(bars)

    def position(size: float) -> float:
        return log10(max(size, 10**low))

    index = list(range(len(bars)))
    names = [bar.name for bar in bars]
    remote = [_span(position, bar.pending_bytes or 0, bar.reach if bar.remote_bytes else 0) for bar in bars]
    copied = [_span(position, bar.pending_bytes or 0, bar.local_bytes or 0) for bar in bars]
    waiting = [_span(position, 0, bar.pending_bytes or 0) for bar in bars]
    edges = [colours.local if bar.status is None else status_colour(colours, bar.status) for bar in bars]
    fills = {"critical": colours.critical_fill, "warning": colours.warning_fill}
    fig = go.Figure()
    fig.add_bar(
        **_lane(index, remote, -0.16, names),
        marker={
            "color": colours.remote,
            "line": {"width": 0},
            "pattern": {
                "shape": "/",
                "fillmode": "overlay",
                "fgcolor": colours.card,
                "fgopacity": 0.45,
                "size": 5,
                "solidity": 0.2,
            },
        },
        name="remote",
    )
    fig.add_bar(
        **_lane(index, copied, 0.16, names), marker={"color": colours.local, "line": {"width": 0}}, name="local"
    )
    fig.add_bar(
        **_lane(index, waiting, 0.16, names),
        marker={
            "color": [fills.get(bar.status or "", colours.card) for bar in bars],
            "line": {"width": 1.4, "color": edges},
        },
        name="pending",
    )
    fig.update_traces(
        hovertemplate="%{customdata} · %{fullData.name}<extra></extra>",
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
    )
    ticks = [decade for decade in range(ceil(low), floor(high) + 1) if decade > low + 0.25]
    ticks = ticks[:: -(-len(ticks) // 6)] if len(ticks) > 6 else ticks
    longest = max((len(name) for name in names), default=8)
    fig.update_layout(
        **layout(
            colours,
            height=ROW_PX * max(1, len(bars)) + FRAME_PX,
            margin={"l": left_px or min(220, 24 + 6.4 * longest), "r": 66, "t": 4, "b": 30},
            uirevision="ranges",
            barmode="overlay",
            bargap=0,
            clickmode="event+select",
            hovermode="closest",
            annotations=[_size_label(i, bar, colours) for i, bar in enumerate(bars)],
            shapes=_selection(names, selected, colours),
            xaxis={
                "range": [high, low],
                "tickvals": [low, *ticks],
                "ticktext": ["log end", *(fmt.size(10**tick).replace(".0", "") for tick in ticks)],
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
                "tickangle": 0,
            },
            yaxis={
                "range": [len(bars) - 0.45, -0.55],
                "tickvals": index,
                "ticktext": [_row_name(name, name == selected) for name in names],
                "tickfont": {"color": colours.text, "size": 11.5},
                "showgrid": False,
                "zeroline": False,
                "linecolor": colours.line,
                "showline": True,
                "fixedrange": True,
            },
        )
    )
    return fig


def rows(partitions: Sequence[PartitionRow], limits: Mapping[str, int | None]) -> pd.DataFrame:
    """The same facts as a table, offsets included."""
    bars = [bar_of(row, limits.get(row.topic)) for row in partitions]
    return pd.DataFrame(
        {
            "partition": [bar.name for bar in bars],
            "leader": [row.leader for row in partitions],
            "log start": [row.log_start_offset for row in partitions],
            "local start": [row.local_log_start_offset for row in partitions],
            "latest tiered": [row.latest_tiered_offset for row in partitions],
            "log end": [row.log_end_offset for row in partitions],
            "pending": [fmt.size(bar.pending_bytes) if not bar.cause else f"? {bar.cause}" for bar in bars],
            "remote": [fmt.size(bar.remote_bytes) for bar in bars],
            "local": [fmt.size(bar.local_bytes) for bar in bars],
            "in sync": [f"{len(row.isr)} of {len(row.replicas)}" for row in partitions],
        }
    )


def _decades(bars: Sequence[RangeBar]) -> tuple[float, float]:
    """The axis in log10 of bytes: half a decade below the smallest part, a fifth above the largest."""
    sizes = [size for bar in bars for size in (bar.reach, bar.local_bytes, bar.pending_bytes) if size]
    high = log10(max([*sizes, 1e6])) + 0.2
    low = log10(min(sizes, default=1e6)) - 0.5
    return max(low, high - 9.0), high


def _span(position: Any, near: float, far: float) -> tuple[float, float]:
    """Base and length of a bar from ``near`` to ``far`` bytes behind the end; nothing when far is not farther."""
    if far <= near:
        return 0.0, 0.0
    return position(near), position(far) - position(near)


def _lane(index: list[int], spans: list[tuple[float, float]], shift: float, names: list[str]) -> dict[str, Any]:
    kept = [i for i, (_, length) in enumerate(spans) if length > 0]
    return {
        "y": [index[i] + shift for i in kept],
        "base": [spans[i][0] for i in kept],
        "x": [spans[i][1] for i in kept],
        "customdata": [names[i] for i in kept],
        "orientation": "h",
        "width": LANE,
    }


def _size_label(index: int, bar: RangeBar, colours: Palette) -> dict[str, Any]:
    colour = colours.text if bar.status is None else status_colour(colours, bar.status)
    return {
        "text": fmt.size(bar.pending_bytes),
        "hovertext": bar.cause or None,
        "x": 1.0,
        "xref": "paper",
        "xanchor": "left",
        "xshift": 8,
        "y": index + 0.05,
        "yref": "y",
        "showarrow": False,
        "font": {"color": colour, "size": 11.5},
    }


def _row_name(name: str, chosen: bool) -> str:
    short = name if len(name) <= 32 else f"{name[:14]}…{name[-17:]}"
    escaped = short.replace("&", "&amp;").replace("<", "&lt;")
    return f"<b>{escaped}</b>" if chosen else escaped


def _selection(names: list[str], selected: str | None, colours: Palette) -> list[dict[str, Any]]:
    if selected not in names:
        return []
    at = names.index(selected)
    return [
        {
            "type": "rect",
            "layer": "below",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": at - 0.5,
            "y1": at + 0.5,
            "fillcolor": colours.epoch_fill,
            "line": {"width": 0},
        }
    ]
