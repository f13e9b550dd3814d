"""Pending upload of thousands of partitions: one cell each, 96 a row, topics apart. Rows → figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from app.components.partition.partition_filter import name_of
from app.components.partition.pending_limits import pending_bytes, pending_unknown_cause
from app.components.shared import format as fmt
from app.theme import Palette, layout
from backend.store.queries.partitions import PartitionRow

CELLS_A_ROW: Final = 96
ROW_PX: Final = 15
FRAME_PX: Final = 44
# Three steps by size, then three by the share of the topic's limit, then over the limit.
SIZES: Final = (100_000_000, 1_000_000_000)
SHARES: Final = (0.5, 0.65, 0.8, 1.0)
STEP_LABELS: Final = ("< 100 MB", "< 1 GB", "≥ 1 GB", "≥ 50 % of limit", "≥ 65 %", "≥ 80 %", "limit and over")
_LIGHT: Final = ("#E8EDF6", "#CBDBF2", "#9FBFEA", "#F6DDA4", "#EDB458", "#DC7C34", "#C8322B")
_DARK: Final = ("#1B2634", "#26405F", "#3F74AB", "#5C4A1C", "#9A7420", "#D08A2E", "#F0685F")


@dataclass(frozen=True, slots=True)
class HeatmapCell:
    """The place of a partition in the map; ``step``: its colour, 0 to 6, None: not known."""

    row: int
    column: int
    name: str
    step: int | None
    label: str


@dataclass(frozen=True, slots=True)
class Band:
    """A topic's rows, ``first`` to ``last``."""

    topic: str
    partitions: int
    first: int
    last: int


def colours_of(colours: Palette) -> tuple[str, ...]:
    """The seven steps: three blue, three amber, one red."""
    return _DARK if colours.name == "dark" else _LIGHT


def step(pending: int | None, limit: int | None) -> int | None:
    """The number of the colour, 0 to 6; None when pending is not known. Without a limit only the size counts."""
    if pending is None:
        return None
    if limit is not None and pending >= SHARES[0] * limit:
        return 2 + sum(pending >= share * limit for share in SHARES)
    return sum(pending >= size for size in SIZES)


def arrange(rows: Sequence[PartitionRow], limits: Mapping[str, int | None]) -> tuple[list[HeatmapCell], list[Band]]:
    """Topics with the most partitions first, one empty row between two; within a topic by number."""
    by_topic = {topic: list(group) for topic, group in groupby(sorted(rows, key=_by_name), key=lambda row: row.topic)}
    cells: list[HeatmapCell] = []
    bands: list[Band] = []
    top = 0
    for topic, members in sorted(by_topic.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        for position, row in enumerate(members):
            pending = pending_bytes(row)
            label = fmt.size(pending) if pending is not None else f"? {pending_unknown_cause(row)}"
            place = top + position // CELLS_A_ROW, position % CELLS_A_ROW
            cells.append(HeatmapCell(*place, name_of(row), step(pending, limits.get(topic)), label))
        last = top + (len(members) - 1) // CELLS_A_ROW
        bands.append(Band(topic, len(members), top, last))
        top = last + 2
    return cells, bands


def figure(cells: Sequence[HeatmapCell], bands: Sequence[Band], colours: Palette) -> go.Figure:
    """Cells carry name and size as custom data; a click selects the point above a cell."""
    height = bands[-1].last + 1 if bands else 1
    # One byte a cell: a figure of 10,000 cells is sent in 0.3 MB. 0 is no cell, or one that is not known: bytes of -1
    # would be slashes in base64, which Plotly sends as six letters each.
    steps = np.zeros((height, CELLS_A_ROW), dtype="uint8")
    for cell in cells:
        if cell.step is not None:
            steps[cell.row, cell.column] = cell.step + 1
    scale = ("rgba(0,0,0,0)", *colours_of(colours))
    fig = go.Figure()
    fig.add_heatmap(
        z=steps,
        zmin=-0.5,
        zmax=7.5,
        colorscale=[(edge / len(scale), colour) for i, colour in enumerate(scale) for edge in (i, i + 1)],
        xgap=1,
        ygap=1,
        showscale=False,
        hoverinfo="skip",
    )
    unknown = [cell for cell in cells if cell.step is None]
    fig.add_scatter(
        x=[cell.column for cell in unknown],
        y=[cell.row for cell in unknown],
        mode="text",
        text=["?"] * len(unknown),
        textfont={"size": 10.5, "color": colours.muted},
        hoverinfo="skip",
    )
    # Streamlit reports clicks on points only, so an unseen point lies on each cell. Plotly finds those that it does not
    # draw, too: 10,000 drawn ones would take a second.
    fig.add_scatter(
        x=np.array([cell.column for cell in cells], dtype="int8"),
        y=np.array([cell.row for cell in cells], dtype="int16"),
        mode="markers",
        marker={"symbol": "square", "size": 11, "opacity": 0, "color": colours.text, "maxdisplayed": 1},
        customdata=[f"{cell.name} {cell.label}" for cell in cells],
        hovertemplate="%{customdata}<extra></extra>",
    )
    longest = max((len(band.topic) for band in bands), default=8)
    fig.update_layout(
        **layout(
            colours,
            height=ROW_PX * height + FRAME_PX,
            margin={"l": min(240, 64 + 6.4 * min(longest, 24)), "r": 8, "t": 4, "b": 28},
            uirevision="heatmap",
            clickmode="event+select",
            hovermode="closest",
            xaxis={
                "range": [-0.5, CELLS_A_ROW - 0.5],
                "tickvals": [0, 24, 48, 72, 95],
                "ticktext": ["+0", "+24", "+48", "+72", "+95"],
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
                "tickangle": 0,
                "ticks": "",
            },
            yaxis={
                "range": [height - 0.5, -0.5],
                "tickvals": [(band.first + band.last) / 2 for band in bands],
                "ticktext": [_band_name(band, colours) for band in bands],
                "ticklabeloverflow": "allow",  # else each of 100 names is measured
                "tickfont": {"color": colours.text, "size": 11.5},
                "ticks": "",
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
            },
        )
    )
    return fig


def picked(event: Any) -> str | None:
    """The partition that a click on the figure chose; None without one."""
    points = event.selection.points if event is not None else []
    data = points[0].get("customdata") if points else None
    text = data[0] if isinstance(data, list) and data else data
    return str(text).split(" ")[0] if text else None


def legend_html(colours: Palette) -> str:
    """The seven steps in words, and what is not known."""
    entries = "".join(
        f'<span class="eb-legend-entry"><span class="eb-step" style="background:{colour}"></span>{label}</span>'
        for colour, label in zip(colours_of(colours), STEP_LABELS, strict=True)
    )
    return f'<div class="eb-legend">{entries}<span class="eb-legend-entry">? not known</span></div>'


def _by_name(row: PartitionRow) -> tuple[str, int]:
    return row.topic, row.partition


def _band_name(band: Band, colours: Palette) -> str:
    short = band.topic if len(band.topic) <= 24 else f"{band.topic[:12]}…{band.topic[-11:]}"
    escaped = short.replace("&", "&amp;").replace("<", "&lt;")
    return f'{escaped}  <span style="color:{colours.muted}">{fmt.count(band.partitions)}</span>\u2002'
