"""A follower's catch-up with its leader: both log ends over time, and its possible start offsets. Rows → figure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

import pandas as pd
import plotly.graph_objects as go

from app.components.partition import offset_lines
from app.components.partition.offset_lines import OffsetLine, Points, time_of
from app.theme import Palette
from backend.store.queries.partitions import PartitionPoint

HEIGHT_PX: Final = 230
# Points of a line: what the database gives at most is 2,100.
POINTS_MAX: Final = 600


def lines(follower: Points, leader: Sequence[PartitionPoint]) -> list[tuple[str, Points]]:
    """Name and points of each; what the leader does not know is left out."""
    drawn: list[tuple[str, Points]] = [
        ("leader end", [(point.sampled_ms, point.log_end_offset) for point in leader]),
        ("follower", list(follower)),
        (
            "pending from",
            [(point.sampled_ms, _offset_or_none(point.earliest_pending_upload_offset)) for point in leader],
        ),
        ("local start", [(point.sampled_ms, _offset_or_none(point.local_log_start_offset)) for point in leader]),
    ]
    return [(name, _thin(points)) for name, points in drawn if any(value is not None for _, value in points)]


def _offset_or_none(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset


def _thin(points: Points) -> Points:
    """At most POINTS_MAX of them, the last one kept."""
    step = -(-len(points) // POINTS_MAX) or 1
    return points[::-1][::step][::-1]


def figure(
    ends: Sequence[tuple[str, Points]],
    first_ms: int,
    last_ms: int,
    interval_ms: int,
    colours: Palette,
    zone: tzinfo | None,
) -> go.Figure:
    """Dotted: where a new one may start."""
    styles = {
        "leader end": (colours.text, "solid"),
        "follower": (colours.local, "solid"),
        "pending from": (colours.remote, "dot"),
        "local start": (colours.muted, "dot"),
    }
    drawn = [OffsetLine(name, points, *styles[name]) for name, points in ends]
    return offset_lines.figure(
        drawn, first_ms, last_ms, interval_ms, colours, zone, height_px=HEIGHT_PX, view="catch-up"
    )


def rows(ends: Sequence[tuple[str, Points]], zone: tzinfo | None) -> pd.DataFrame:
    """The points as a table, the newest first."""
    points = [(moment, name, value) for name, line in ends for moment, value in line]
    newest = sorted(points, key=lambda point: point[0], reverse=True)
    return pd.DataFrame(
        {
            "time": [time_of(moment, zone) for moment, _, _ in newest],
            "line": [name for _, name, _ in newest],
            "offset": pd.array([value for _, _, value in newest], dtype="Int64"),
        }
    )
