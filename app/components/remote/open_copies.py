"""Copies that have begun and not ended: their age against what copies of their partition take. Rows → figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from app.components.remote.copy_age import is_hung, why_dangling
from app.components.shared import format as fmt
from app.theme import Palette, layout
from backend.store.queries.partitions import PartitionRow, SegmentRow
from backend.tiering.segment_state import HUNG_FACTOR, HUNG_MS_MIN, SegmentState

TOPICS_MAX: Final = 8
ROW_PX: Final = 28
# A chart of one row would be lower than its axis and its labels need.
ROWS_MIN: Final = 2
HUNG, DANGLING, NORMAL = "hung", "dangling", "usual"
_LOW, _HIGH = -2.0, 3.2  # decades of age ÷ p99 that the axis shows at least
_NAMED_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """An open copy; ``ratio`` None: none of its partition's copies has ended, so there is no p99."""

    segment: SegmentRow
    age_ms: int
    p99_ms: int | None
    kind: str
    why: str = ""

    @property
    def ratio(self) -> float | None:
        return self.age_ms / self.p99_ms if self.p99_ms else None

    @property
    def name(self) -> str:
        return f"{self.segment.topic}-{self.segment.partition}"


def judge(
    segments: Iterable[SegmentRow],
    partitions: Iterable[PartitionRow],
    p99_ms: Mapping[tuple[str, int], int],
    now_ms: int,
) -> list[OpenCopy]:
    """The oldest first. Dangling: it will never finish, as its author does not lead the partition any more, the
    partition is gone, or it failed.
    """
    leaders = {(row.topic, row.partition): (row.leader, row.topic_id) for row in partitions}
    copies = []
    for segment in segments:
        if segment.state is not SegmentState.COPY_SEGMENT_STARTED:
            continue
        key = (segment.topic, segment.partition)
        age_ms, p99 = max(0, now_ms - segment.copy_started_ms), p99_ms.get(key)
        kind, why, dangling = NORMAL, "", why_dangling(segment, leaders.get(key))
        if dangling is not None and age_ms > HUNG_MS_MIN:
            kind, why = DANGLING, dangling
        elif is_hung(segment, p99, now_ms):
            kind, why = HUNG, f"open for {fmt.duration(age_ms / 1000)}"
        copies.append(OpenCopy(segment, age_ms, p99, kind, why))
    return sorted(copies, key=lambda copy: -copy.age_ms)


def figure(copies: Sequence[OpenCopy], colours: Palette) -> go.Figure:
    """One mark a copy, a row a topic (at most 8, the oldest copies first); the line stands at three times the p99."""
    drawn = [copy for copy in copies if copy.ratio is not None]
    topics = list(dict.fromkeys(copy.segment.topic for copy in drawn))[:TOPICS_MAX]
    drawn = [copy for copy in drawn if copy.segment.topic in topics]
    high = max([_HIGH, *(log10(max(copy.ratio or 1, 1e-9)) + 0.3 for copy in drawn)])
    fig = go.Figure()
    marks: dict[str, dict[str, Any]] = {
        NORMAL: {"symbol": "circle", "size": 7, "color": colours.remote},
        HUNG: {"symbol": "triangle-up", "size": 11, "color": colours.critical},
        DANGLING: {
            "symbol": "diamond-open",
            "size": 10,
            "color": colours.critical,
            "line": {"width": 1.6, "color": colours.critical},
        },
    }
    for kind, marker in marks.items():
        of_kind = [copy for copy in drawn if copy.kind == kind]
        fig.add_scatter(
            x=[_place(copy, high) for copy in of_kind],
            y=[topics.index(copy.segment.topic) for copy in of_kind],
            mode="markers",
            marker=marker,
            name=kind,
            customdata=[[copy.name, fmt.duration(copy.age_ms / 1000), copy.segment.copy_broker_id] for copy in of_kind],
            hovertemplate="%{customdata[0]} · %{customdata[1]} · broker %{customdata[2]}<extra>" + kind + "</extra>",
        )
    line = log10(HUNG_FACTOR)
    fig.update_layout(
        **layout(
            colours,
            height=ROW_PX * max(ROWS_MIN, len(topics)) + 58,
            margin={"l": 106, "r": 18, "t": 22, "b": 26},
            uirevision="open-copies",
            hovermode="closest",
            shapes=[
                {
                    "type": "line",
                    "x0": line,
                    "x1": line,
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "line": {"color": colours.critical, "width": 1.4, "dash": "dash"},
                }
            ],
            annotations=_labels(drawn, topics, high, line, colours),
            xaxis={
                "range": [_LOW, high],
                "tickvals": list(range(-1, int(high) + 1)),
                "ticktext": [_tick(decade) for decade in range(-1, int(high) + 1)],
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
                "tickangle": 0,
                "showline": True,
                "linecolor": colours.line,
            },
            yaxis={
                "range": [max(ROWS_MIN, len(topics)) - 0.4, -0.6],
                "tickvals": list(range(len(topics))),
                "ticktext": [_row_name(name) for name in topics],
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


def rows(copies: Sequence[OpenCopy]) -> pd.DataFrame:
    """All open copies as a table."""
    return pd.DataFrame(
        {
            "partition": [copy.name for copy in copies],
            "offsets": [fmt.offset_range(copy.segment.start_offset, copy.segment.next_offset) for copy in copies],
            "begun by broker": [copy.segment.copy_broker_id for copy in copies],
            "age": [fmt.duration(copy.age_ms / 1000) for copy in copies],
            "p99 of its copies": [fmt.duration(None if copy.p99_ms is None else copy.p99_ms / 1000) for copy in copies],
            "age ÷ p99": [None if copy.ratio is None else round(copy.ratio, 2) for copy in copies],
            "judged": [f"{copy.kind}: {copy.why}" if copy.why else copy.kind for copy in copies],
            "size": [fmt.size(copy.segment.segment_size_bytes) for copy in copies],
            "segment id": [copy.segment.segment_id for copy in copies],
        }
    )


def _place(copy: OpenCopy, high: float) -> float:
    return min(high, max(_LOW + 0.1, log10(max(copy.ratio or 0, 1e-9))))


def _labels(
    drawn: Sequence[OpenCopy], topics: Sequence[str], high: float, line: float, colours: Palette
) -> list[dict[str, Any]]:
    """The line's name, and the oldest suspicious copy of each topic by name."""
    common = {"showarrow": False, "font": {"color": colours.critical, "size": 11.5}}
    annotations: list[dict[str, Any]] = [
        {**common, "text": f"{HUNG_FACTOR:.0f}× p99", "x": line, "y": 1, "yref": "paper", "yanchor": "bottom"}
    ]
    named: set[str] = set()
    for copy in drawn:
        if copy.kind == NORMAL or copy.segment.topic in named or len(named) >= _NAMED_MAX:
            continue
        named.add(copy.segment.topic)
        text = f"broker {copy.segment.copy_broker_id}: {copy.name} {fmt.duration(copy.age_ms / 1000)}"
        if copy.kind == DANGLING:
            text = f"{copy.name} · {copy.why}"
        at = _place(copy, high)
        left = at > (line + _LOW + 1.6)
        annotations.append(
            {
                **common,
                "text": _escaped(text),
                "x": at,
                "y": topics.index(copy.segment.topic),
                "xanchor": "right" if left else "left",
                "xshift": -9 if left else 9,
            }
        )
    return annotations


def _tick(decade: int) -> str:
    return "p99" if decade == 0 else f"{10.0**decade:g}×"


def _row_name(name: str) -> str:
    return _escaped(name if len(name) <= 16 else name[:15] + "…")


def _escaped(text: str) -> str:
    """Plotly reads a little markup in texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
