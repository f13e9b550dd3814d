"""A partition's offsets over time: log end, latest tiered, local start. Rows → figure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from app.components.partition import offset_lines
from app.components.partition.offset_lines import OffsetLine, time_of
from app.components.shared.table_style import styled, whole
from app.theme import Palette
from backend.store.queries.partitions import PartitionPoint

HEIGHT_PX: Final = 250


def figure(
    points: Sequence[PartitionPoint],
    first_ms: int,
    last_ms: int,
    interval_ms: int,
    colours: Palette,
    zone: tzinfo | None,
) -> go.Figure:
    """Log end, the end of what is tiered, local start; a partition that does not move has one sample a minute."""
    lines = (
        OffsetLine("log end", [(p.sampled_ms, p.log_end_offset) for p in points], colours.text),
        OffsetLine("tiered to", [(p.sampled_ms, _tiered_end(p)) for p in points], colours.remote),
        OffsetLine("local start", [(p.sampled_ms, p.local_log_start_offset) for p in points], colours.local),
    )
    return offset_lines.figure(
        lines, first_ms, last_ms, interval_ms, colours, zone, height_px=HEIGHT_PX, view="offset-history"
    )


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
            "last stable": pd.array([p.last_stable_offset for p in newest], dtype="Int64"),
            "high watermark": pd.array([p.high_watermark for p in newest], dtype="Int64"),
            "log end": pd.array([p.log_end_offset for p in newest], dtype="Int64"),
        }
    )


def _tiered_end(point: PartitionPoint) -> int | None:
    tiered = point.latest_tiered_offset
    return None if tiered is None or tiered < 0 else tiered + 1
