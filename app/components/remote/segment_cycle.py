"""The life cycle of remote segments: how many are in each state, how long each step takes. Rows → markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pandas as pd

from app.components.partition.lineage_verdicts import JudgedSegment, LineageStanding
from app.components.shared import format as fmt
from app.components.shared import markup
from backend.store.queries.partitions import SegmentRow
from backend.store.queries.remote_log import CycleTotals
from backend.tiering.segment_state import DELETE_OVERDUE_MS, SegmentState

STEPS: Final = ("copy", "kept", "delete")


@dataclass(frozen=True, slots=True)
class StepDuration:
    """Median and p99 of a step over ``count`` segments; None: none of them has made it."""

    count: int
    median_ms: int | None
    p99_ms: int | None


@dataclass(frozen=True, slots=True)
class Box:
    """One state: what stands in it, and what is wrong there."""

    title: str
    figure: str
    unit: str
    note: str
    status: str | None = None


def totals_of(segments: Sequence[SegmentRow]) -> CycleTotals:
    """The sums over these segments, as the pipeline makes them over a partition's."""
    sums: dict[str, int] = {}
    for state, name in zip(
        SegmentState, ("copy_started", "copy_finished", "delete_started", "delete_finished"), strict=True
    ):
        there = [row.segment_size_bytes for row in segments if row.state is state]
        sums[f"{name}_segments"], sums[f"{name}_bytes"] = len(there), sum(there)
    failed = [
        row.segment_size_bytes
        for row in segments
        if row.state is SegmentState.DELETE_SEGMENT_FINISHED and row.copy_failed
    ]
    sums["failed_copy_segments"], sums["failed_copy_bytes"] = len(failed), sum(failed)
    return CycleTotals(partitions=len({(r.topic, r.partition) for r in segments}), illegal_events=0, **sums)


def steps(segments: Iterable[SegmentRow]) -> dict[str, StepDuration]:
    """The durations of the copy, of the time in the remote tier, and of the deletion, of those that were there.

    Leftovers of failed copies are removed at once, and say nothing about how long deletions take.
    """
    rows = [row for row in segments if not row.copy_failed]
    spans: dict[str, list[tuple[int | None, int | None]]] = {
        "copy": [(row.copy_started_ms, row.copy_finished_ms) for row in rows],
        "kept": [(row.copy_finished_ms, row.delete_started_ms) for row in rows],
        "delete": [(row.delete_started_ms, row.delete_finished_ms) for row in rows],
    }
    return {name: _step(intervals) for name, intervals in spans.items()}


def _step(spans: Iterable[tuple[int | None, int | None]]) -> StepDuration:
    # Two brokers may report the two ends of a step, and their clocks may differ.
    durations = sorted(max(0, end - start) for start, end in spans if start is not None and end is not None)
    if not durations:
        return StepDuration(0, None, None)
    return StepDuration(
        len(durations), durations[(len(durations) - 1) // 2], durations[-(-99 * len(durations) // 100) - 1]
    )


def boxes(totals: CycleTotals, *, hung: int, dangling: int, oldest_delete_ms: int | None, judging_ms: int) -> list[Box]:
    """The four states. ``oldest_delete_ms``: when the oldest deletion that is still open began.

    Leftovers of failed copies are none of the deletions: they were never remote, so nothing was reclaimed.
    """
    failed = totals.failed_copy_segments
    apart = f" · {fmt.count(failed)} failed cop{'y' if failed == 1 else 'ies'} apart" if failed else ""
    problems = [f"{fmt.count(n)} {word}" for n, word in ((hung, "hung"), (dangling, "dangling")) if n]
    overdue_ms = 0 if oldest_delete_ms is None else judging_ms - oldest_delete_ms
    late = overdue_ms > DELETE_OVERDUE_MS
    return [
        Box(
            "Copy started",
            fmt.count(totals.copy_started_segments),
            _segments(totals.copy_started_segments),
            " · ".join(problems) or "none hung",
            ("critical" if hung else "warning") if problems else "ok",
        ),
        Box(
            "Copy finished",
            fmt.count(totals.copy_finished_segments),
            fmt.size(totals.copy_finished_bytes),
            f"in {fmt.count(totals.partitions)} partition{'' if totals.partitions == 1 else 's'}",
        ),
        Box(
            "Delete started",
            fmt.count(totals.delete_started_segments),
            fmt.size(totals.delete_started_bytes),
            f"the oldest for {fmt.duration(overdue_ms / 1000)}" if late else "none overdue",
            "warning" if late else "ok",
        ),
        Box(
            "Delete finished",
            fmt.count(totals.reclaimed_segments),
            _segments(totals.reclaimed_segments),
            f"{fmt.size(totals.reclaimed_bytes)} reclaimed{apart}",
        ),
    ]


def cycle_html(drawn: Sequence[Box], taken: dict[str, StepDuration]) -> str:
    """Four boxes, arrows with the times between them."""
    parts = [_box_html(drawn[0])]
    for box, name in zip(drawn[1:], STEPS, strict=True):
        parts += [_arrow_html(name, taken[name]), _box_html(box)]
    return f'<div class="eb-cycle">{"".join(parts)}</div>'


def _box_html(box: Box) -> str:
    css = f" eb-cycle-{box.status}" if box.status in ("critical", "warning") else ""
    sign = f"{markup.mark(box.status)} " if box.status else ""
    note = f'<div class="eb-cycle-note eb-{box.status or "quiet"}">{sign}{markup.text(box.note)}</div>'
    if box.status == "ok":
        note = f'<div class="eb-cycle-note eb-quiet">{sign}{markup.text(box.note)}</div>'
    return (
        f'<div class="eb-cycle-box{css}"><div>{markup.text(box.title)}</div>'
        f"<div><b>{markup.text(box.figure)}</b> {markup.text(box.unit)}</div>{note}</div>"
    )


def _arrow_html(name: str, step: StepDuration) -> str:
    label = {"copy": "copying", "kept": "kept", "delete": "deleting"}[name]
    if step.median_ms is None or step.p99_ms is None:
        above, below = "?", "none ended yet"
    else:
        above, below = fmt.duration(step.median_ms / 1000), f"p99 {fmt.duration(step.p99_ms / 1000)}"
    hint = f"{label}: median and p99 of {fmt.count(step.count)} segments"
    return (
        f'<div class="eb-cycle-arrow" title="{markup.text(hint)}"><span>{markup.text(f"{label} {above}")}</span>'
        f'<i aria-hidden="true"></i><span>{markup.text(below)}</span></div>'
    )


def rows(drawn: Sequence[Box], taken: dict[str, StepDuration]) -> pd.DataFrame:
    """The same as a table."""
    after: list[StepDuration | None] = [taken[name] for name in STEPS] + [None]
    return pd.DataFrame(
        {
            "state": [box.title for box in drawn],
            "segments": [box.figure for box in drawn],
            "bytes or unit": [box.unit for box in drawn],
            "note": [box.note for box in drawn],
            "time in the step after, median": [_time(step.median_ms if step else None) for step in after],
            "p99": [_time(step.p99_ms if step else None) for step in after],
            "of segments": [None if step is None else step.count for step in after],
        }
    )


def _time(value_ms: int | None) -> str:
    return "" if value_ms is None else fmt.duration(value_ms / 1000)


def _segments(count: int) -> str:
    return "segment" if count == 1 else "segments"


# --- overlaps and gaps ---


def gaps(verdicts: Sequence[JudgedSegment], log_start: int | None) -> list[tuple[int, int]]:
    """Offsets ``[a, b)`` between finished copies of the lineage that no copy holds; those below log start are no loss.

    Segments that were not checked count as held.
    """
    held = sorted(
        (verdict.segment.start_offset, verdict.segment.next_offset)
        for verdict in verdicts
        if verdict.lineage_standing in (LineageStanding.IN_LINEAGE, LineageStanding.NOT_CHECKED)
    )
    missing, reached = [], -1
    for (_, end), (start, _) in pairwise(held):
        reached = max(reached, end, log_start or 0)
        if start > reached:
            missing.append((reached, start))
    return missing


def verdict_pills(verdicts: Sequence[JudgedSegment], missing: Sequence[tuple[int, int]] | None) -> str:
    """In lineage, overlaps, outside, gaps; ``missing`` None: gaps are not computed for this selection."""
    inside = sum(verdict.lineage_standing is LineageStanding.IN_LINEAGE for verdict in verdicts)
    overlapping = sum(verdict.overlaps for verdict in verdicts)
    outside = [verdict for verdict in verdicts if verdict.lineage_standing is LineageStanding.OUTSIDE]
    unchecked = sum(verdict.lineage_standing is LineageStanding.NOT_CHECKED for verdict in verdicts)
    pills = [markup.pill(f"{fmt.count(inside)} in lineage", "ok")] if inside else []
    if unchecked:
        pills.append(markup.pill(f"lineage of {fmt.count(unchecked)} not judged", "notice"))
    if overlapping:
        pills.append(markup.pill(f"{fmt.count(overlapping)} overlap", "notice"))
    if outside:
        size = fmt.size(sum(verdict.segment.segment_size_bytes for verdict in outside))
        pills.append(markup.pill(f"{fmt.count(len(outside))} outside lineage · {size}", "warning"))
    orphaned = sum(verdict.orphaned for verdict in verdicts)
    if orphaned:
        hint = "A later copy took its place in the index of its epoch: retention never sees it"
        pills.append(markup.pill(f"{fmt.count(orphaned)} orphaned", "critical", title=hint))
    if missing is not None:
        for first, last in missing[:2]:
            pills.append(markup.pill(f"gap {fmt.offset_range(first, last)}", "critical"))
        if len(missing) > 2:
            pills.append(markup.pill(f"{fmt.count(len(missing) - 2)} more gaps", "critical"))
        if not missing and (inside or unchecked):
            pills.append(markup.pill("no gaps", "ok"))
    return f'<span class="eb-push"><span class="eb-pills">{"".join(pills)}</span></span>'
