"""One partition in short: how it is, what lies where, why local data stays, how pending moved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

import plotly.graph_objects as go

from app.components.partition import pending_limits
from app.components.partition.partition_filter import gap, remote_bytes
from app.components.remote.copy_age import is_hung
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell
from app.theme import Palette, layout, status_colour
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionPoint, PartitionRow, SegmentRow
from backend.tiering.segment_state import SegmentState

# A rate over less time than this says more about two samples than about the partition.
RATE_MS_MIN: Final = 20_000


@dataclass(frozen=True, slots=True)
class PartitionRates:
    """Bytes a second over the history shown, and for how long no copy finished; None: not known."""

    produced_bytes_s: float | None = None
    copied_bytes_s: float | None = None
    copy_still_ms: int | None = None
    still_since_before: bool = False  # no copy finished in the whole history shown


def record_bytes(row: PartitionRow) -> float | None:
    """Mean size of the leader's local records; None: not known, or there are none."""
    start, end, size = row.local_log_start_offset, row.log_end_offset, row.local_log_bytes
    return size / (end - start) if size is not None and start is not None and end is not None and end > start else None


def rates(row: PartitionRow, points: Sequence[PartitionPoint], now_ms: int) -> PartitionRates:
    """From the first to the last point at which both offsets are known."""
    each = record_bytes(row)
    complete = [p for p in points if p.log_end_offset is not None and p.latest_tiered_offset is not None]
    if each is None or len(complete) < 2 or complete[-1].sampled_ms - complete[0].sampled_ms < RATE_MS_MIN:
        return PartitionRates()
    first, last = complete[0], complete[-1]
    seconds = (last.sampled_ms - first.sampled_ms) / 1000
    produced = max(0, (last.log_end_offset or 0) - (first.log_end_offset or 0))
    copied = max(0, (last.latest_tiered_offset or 0) - (first.latest_tiered_offset or 0))
    moved = next(
        (p.sampled_ms for p in reversed(complete) if p.latest_tiered_offset != last.latest_tiered_offset), None
    )
    still_ms = max(0, now_ms - (first.sampled_ms if moved is None else moved))
    return PartitionRates(produced * each / seconds, copied * each / seconds, still_ms, moved is None)


def pills_html(
    row: PartitionRow, open_segments: Sequence[SegmentRow], p99_ms: int | None, now_ms: int, *, outside: int = 0
) -> str:
    """The state of a partition at a glance, the worst first."""
    pills: list[tuple[str, str]] = []
    copies = [s for s in open_segments if s.state is SegmentState.COPY_SEGMENT_STARTED and not s.superseded]
    if row.error:
        pills.append((f"? {row.error}", "warning"))
    if any(is_hung(segment, p99_ms, now_ms) for segment in copies):
        pills.append(("Copy hung", "critical"))
    elif copies:
        pills.append(("Copying", "notice"))
    if gap(row) is not None:
        pills.append(("Gap between tiers", "critical"))
    if outside:
        pills.append((f"{outside} outside lineage", "warning"))
    pills.append((f"Leader b{row.leader}", "notice") if row.leader >= 0 else ("No leader", "critical"))
    whole = len(row.isr) >= len(row.replicas)
    pills.append((f"In sync {len(row.isr)} of {len(row.replicas)}", "ok" if whole else "warning"))
    return '<div class="eb-pills">' + "".join(markup.pill(label, status) for label, status in pills) + "</div>"


def facts_html(row: PartitionRow, topic: TopicRow | None, seen: PartitionRates) -> str:
    """Ranges, rates and retention."""
    limit = None if topic is None else pending_limits.pending_limit_bytes(topic)
    pending = pending_limits.pending_bytes(row)
    status = pending_limits.pending_status(pending, limit) or ""
    produced, copied = seen.produced_bytes_s, seen.copied_bytes_s
    still = seen.copy_still_ms
    stopped = copied == 0 and bool(pending) and produced
    copy_rate = f"{fmt.size(copied)}/s" if copied is not None else "? no history yet"
    if stopped and still is not None:
        copy_rate = f"0 B/s for {'over ' if seen.still_since_before else ''}{fmt.duration(still / 1000)}"
    return markup.pairs(
        [
            ("Remote", _range(row.log_start_offset, _tiered_end(row), remote_bytes(row), none="nothing copied yet")),
            ("Local", _range(row.local_log_start_offset, row.log_end_offset, row.local_log_bytes)),
            ("Pending", _pending(row, pending, status)),
            ("Produce rate", "? no history yet" if produced is None else f"{fmt.size(produced)}/s"),
            ("Copy rate", Cell(copy_rate, css="eb-critical" if stopped and status == "critical" else "")),
            ("Local retention", retention_text(row, topic)),
        ]
    )


def retention_text(row: PartitionRow, topic: TopicRow | None) -> str:
    """``12.0 GB · exceeded by 58.0 GB``, or the time when only that is limited."""
    if topic is None or topic.config is None:
        return "? settings not read yet"
    size, ms = pending_limits.local_retention(topic)
    limits = [fmt.size(size)] if size is not None else []
    limits += [fmt.duration(ms / 1000)] if ms is not None else []
    if not limits:
        return "no limit"
    if size is not None and row.local_log_bytes is not None and row.local_log_bytes > size:
        limits.append(f"exceeded by {fmt.size(row.local_log_bytes - size)}")
    return " · ".join(limits)


def why_local(row: PartitionRow, topic: TopicRow | None) -> list[str]:
    """Why local data is not deleted, each reason a line; only what the database knows.

    A record may be deleted from the local disk once it is in the remote tier. It goes there when its segment is rolled
    and below the last stable offset, which is never above the high watermark.
    """
    lines = []
    pending = pending_limits.pending_bytes(row)
    config = {} if topic is None or topic.config is None else topic.config
    if config.get("remote.log.copy.disable") == "true":
        lines.append("Copying is disabled for this topic: local data follows total retention.")
    if not pending_limits.is_tiered(row):
        lines.append("The topic is not tiered: local data follows total retention.")
    elif pending is None:
        lines.append(f"? not known what is not copied yet: {pending_limits.pending_unknown_cause(row)}")
    elif pending:
        lines.append(f"{fmt.size(pending)} not copied yet")
        segment = None if topic is None else pending_limits.number(topic, "segment.bytes")
        if segment:
            lines.append(f"of it up to {fmt.size(min(segment, pending))} in the active segment, copied once it rolls")
    lines.append(_past_watermark(row))
    size = None if topic is None else pending_limits.local_retention(topic)[0]
    over = None if size is None or row.local_log_bytes is None else row.local_log_bytes - size
    if pending is not None and over is not None and over > pending:
        lines.append(f"{fmt.size(over - pending)} more may go at the next retention check")
    elif over is not None and over <= 0:
        lines.append(f"{fmt.size(-over)} below local retention: nothing has to go by size")
    return lines


def pending_series(row: PartitionRow, points: Sequence[PartitionPoint]) -> list[tuple[int, float | None]]:
    """(time, bytes pending) with today's mean record size; None: not known then."""
    each = record_bytes(row)
    return [(point.sampled_ms, _pending_then(point, each)) for point in points]


def pending_figure(
    series: Sequence[tuple[int, float | None]], status: str | None, colours: Palette, zone: tzinfo | None
) -> go.Figure:
    """A quiet line from zero; gaps where it is not known."""
    colour = colours.local if status is None else status_colour(colours, status)
    top = max([value for _, value in series if value is not None], default=0.0) or 1.0
    unit, scale = _unit(top)
    fig = go.Figure()
    fig.add_scatter(
        x=[datetime.fromtimestamp(at_ms / 1000, zone or UTC).replace(tzinfo=None) for at_ms, _ in series],
        y=[None if value is None else value / scale for _, value in series],
        mode="lines",
        line={"color": colour, "width": 1.8},
        hovertemplate="%{x|%H:%M:%S} · %{y:.3g} " + unit + "<extra></extra>",
    )
    axis = {"gridcolor": colours.grid, "zeroline": False, "fixedrange": True, "tickangle": 0}
    fig.update_layout(
        **layout(
            colours,
            height=128,
            margin={"l": 34, "r": 12, "t": 20, "b": 22},
            uirevision="pending",
            xaxis={
                **axis,
                "nticks": 4,
                "tickformat": "%H:%M",
                "showgrid": False,
                "linecolor": colours.line,
                "showline": True,
            },
            yaxis={**axis, "range": [0, top / scale * 1.12], "nticks": 4},
            annotations=[
                {
                    "text": unit,
                    "x": 0,
                    "xref": "paper",
                    "xanchor": "right",
                    "xshift": -6,
                    "y": 1,
                    "yref": "paper",
                    "yanchor": "bottom",
                    "yshift": 4,
                    "showarrow": False,
                    "font": {"size": 11},
                }
            ],
        )
    )
    return fig


def _pending_then(point: PartitionPoint, each: float | None) -> float | None:
    start, end, tiered = point.earliest_pending_upload_offset, point.log_end_offset, point.latest_tiered_offset
    if (start is None or start < 0) and tiered is not None and tiered >= 0:
        start = tiered + 1
    if start is None or start < 0 or end is None or each is None:
        return None
    return max(0, end - start) * each


def _unit(top: float) -> tuple[str, float]:
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if top >= scale:
            return unit, scale
    return "B", 1.0


def _tiered_end(row: PartitionRow) -> int | None:
    return None if row.latest_tiered_offset is None else row.latest_tiered_offset + 1


def _range(start: int | None, end: int | None, size: int | None, *, none: str = "empty") -> str:
    if start is None or end is None:
        return f"? · {fmt.size(size)}"
    if end <= start:
        return none
    return f"{fmt.offset_range(start, end)} · {fmt.size(size)}"


def _pending(row: PartitionRow, pending: int | None, status: str) -> Cell:
    start, end = pending_limits.pending_start(row), row.log_end_offset
    if start is None or end is None:
        return Cell(f"? {pending_limits.pending_unknown_cause(row)}", css="eb-quiet")
    if end <= start:
        return Cell("all copied")
    text = f"{fmt.offset_range(start, end)} · {fmt.size(pending)}{pending_limits.inferred_note(row)}"
    return Cell(text, css=f"eb-{status}" if status else "")


def _past_watermark(row: PartitionRow) -> str:
    if row.high_watermark is None or row.log_end_offset is None:
        return "? not known how much is past the high watermark"
    count = max(0, row.log_end_offset - row.high_watermark)
    return f"{fmt.count(count)} records past the high watermark, not yet eligible"
