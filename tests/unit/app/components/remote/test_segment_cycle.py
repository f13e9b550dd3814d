"""The life cycle of segments as data: totals, steps, verdicts, gaps, open copies, pictures."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from app.components.partition.lineage_verdicts import JudgedSegment, LineageStanding
from app.components.remote import open_copies, segment_cycle, segment_ledger
from app.theme import DARK, LIGHT, Palette
from backend.store.queries.partitions import SegmentRow
from backend.tiering.segment_state import SegmentState
from tests.unit.app.partition_rows import NOW_MS, partition_row, segment_row

MINUTE_MS = 60_000


def started(age_ms: int, **more: Any) -> SegmentRow:
    return segment_row(
        0,
        100,
        **{
            "state": SegmentState.COPY_SEGMENT_STARTED,
            "copy_started_ms": NOW_MS - age_ms,
            "copy_finished_ms": None,
            **more,
        },
    )


def judged_segment(
    start: int, following: int, lineage_standing: LineageStanding = LineageStanding.IN_LINEAGE
) -> JudgedSegment:
    return JudgedSegment(segment_row(start, following), lineage_standing)


def test_totals_are_the_sums_of_each_state() -> None:
    rows = [segment_row(0, 100), segment_row(100, 300), started(5)]
    totals = segment_cycle.totals_of(rows)
    assert (totals.copy_finished_segments, totals.copy_finished_bytes) == (2, 3000)
    assert (totals.copy_started_segments, totals.delete_started_segments, totals.partitions) == (1, 0, 1)


def test_steps_are_median_and_p99_of_those_that_ended() -> None:
    rows = [segment_row(0, 1, copy_started_ms=0, copy_finished_ms=ms) for ms in (10, 20, 30, 40, 1000)]
    step_durations = segment_cycle.steps([*rows, started(7)])
    assert step_durations["copy"] == segment_cycle.StepDuration(5, 30, 1000)
    assert step_durations["delete"] == segment_cycle.StepDuration(0, None, None)


def test_what_failed_copies_left_is_neither_reclaimed_nor_a_deletion() -> None:
    """A store refused 4,856 copies, and 130 segments expired: Kafka ends both with a deletion."""
    gone = {"state": SegmentState.DELETE_SEGMENT_FINISHED, "delete_started_ms": NOW_MS - 100}
    failed = segment_row(0, 100, **gone, copy_finished_ms=None, delete_finished_ms=NOW_MS)
    expired = segment_row(100, 300, **gone, delete_finished_ms=NOW_MS - 60)
    totals = segment_cycle.totals_of([expired, *[failed] * 4])
    *_, last = segment_cycle.boxes(totals, hung=0, dangling=0, oldest_delete_ms=None, judging_ms=NOW_MS)
    assert (last.figure, last.unit, last.note) == ("1", "segment", "2.0 kB reclaimed · 4 failed copies apart")
    assert segment_cycle.steps([expired, *[failed] * 4])["delete"] == segment_cycle.StepDuration(1, 40, 40)
    *_, only_expired = segment_cycle.boxes(
        segment_cycle.totals_of([expired]), hung=0, dangling=0, oldest_delete_ms=None, judging_ms=NOW_MS
    )
    assert only_expired.note == "2.0 kB reclaimed"


def test_a_step_told_by_two_clocks_is_never_negative() -> None:
    step_durations = segment_cycle.steps([segment_row(0, 1, copy_started_ms=50, copy_finished_ms=40)])
    assert step_durations["copy"].median_ms == 0


def test_boxes_say_what_is_hung_and_overdue() -> None:
    totals = segment_cycle.totals_of([started(5)])
    first, _, third, _ = segment_cycle.boxes(
        totals, hung=2, dangling=1, oldest_delete_ms=NOW_MS - 5 * MINUTE_MS, judging_ms=NOW_MS
    )
    assert (first.note, first.status) == ("2 hung · 1 dangling", "critical")
    assert (third.note, third.status) == ("the oldest for 5 m", "warning")
    calm = segment_cycle.boxes(totals, hung=0, dangling=0, oldest_delete_ms=None, judging_ms=NOW_MS)
    assert [box.status for box in calm] == ["ok", None, "ok", None]
    html = segment_cycle.cycle_html(calm, segment_cycle.steps([]))
    assert "none ended yet" in html


@pytest.mark.parametrize(
    ("ranges", "log_start", "expected"),
    [
        ([(0, 100), (100, 200)], 0, []),
        ([(0, 100), (150, 200)], 0, [(100, 150)]),
        ([(0, 100), (150, 200)], 150, []),  # below log start nothing is lost
        ([(0, 100), (150, 200)], 120, [(120, 150)]),
        ([(0, 300), (100, 200), (300, 400)], 0, []),  # an overlap is no gap
        ([], 0, []),
    ],
)
def test_gaps_lie_between_copies_that_hold_the_log(
    ranges: list[tuple[int, int]], log_start: int, expected: list[tuple[int, int]]
) -> None:
    assert segment_cycle.gaps([judged_segment(*offsets) for offsets in ranges], log_start) == expected


def test_a_segment_outside_the_lineage_holds_nothing() -> None:
    rows = [judged_segment(0, 100), judged_segment(100, 200, LineageStanding.OUTSIDE), judged_segment(200, 300)]
    assert segment_cycle.gaps(rows, 0) == [(100, 200)]
    html = segment_cycle.verdict_pills(rows, [(100, 200)])
    assert "1 outside lineage" in html
    assert "gap [100, 200)" in html


def test_open_copies_are_hung_dangling_or_usual() -> None:
    rows = [
        started(10_000),
        started(20 * MINUTE_MS, segment_id="hung"),
        started(30 * MINUTE_MS, segment_id="gone", copy_broker_id=9),
        started(40 * MINUTE_MS, segment_id="lost", topic="other"),
        started(50 * MINUTE_MS, segment_id="failed", superseded=True),
    ]
    copies = open_copies.judge(rows, [partition_row()], {("orders", 7): MINUTE_MS}, NOW_MS)
    assert [(copy.segment.segment_id, copy.kind) for copy in copies] == [
        ("failed", open_copies.DANGLING),
        ("lost", open_copies.DANGLING),
        ("gone", open_copies.DANGLING),
        ("hung", open_copies.HUNG),
        ("s0", open_copies.NORMAL),
    ]
    assert [copy.why for copy in copies[1:3]] == ["its partition is gone", "broker 1 leads now"]
    assert copies[0].why == "it failed, or a later copy began"
    assert copies[3].ratio == 20
    assert copies[1].ratio is None


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_open_copies_without_a_p99_are_in_the_table_and_not_in_the_figure(colours: Palette) -> None:
    copies = open_copies.judge(
        [started(10_000), started(9_000, topic="new", topic_id="n")], [], {("orders", 7): MINUTE_MS}, NOW_MS
    )
    figure = open_copies.figure(copies, colours)
    assert sum(len(trace.x) for trace in figure.data) == 1
    assert len(open_copies.rows(copies)) == 2
    assert list(figure.layout.yaxis.ticktext) == ["orders"]
    assert figure.data[0].marker.color == colours.remote


def test_names_of_topics_are_escaped_and_cut_in_the_figure() -> None:
    row = started(10_000, topic="<b>" + "x" * 40)
    figure = open_copies.figure(open_copies.judge([row], [], {(row.topic, 7): MINUTE_MS}, NOW_MS), LIGHT)
    [name] = figure.layout.yaxis.ticktext
    assert name.startswith("&lt;b>")
    assert name.endswith("…")


def svg_of(row: SegmentRow, **more: Any) -> str:
    uri = segment_ledger.picture(row, 1000, 1000, LIGHT, **{"hung": False, **more})
    return b64decode(uri.removeprefix("data:image/svg+xml;base64,")).decode()


def test_the_picture_of_a_life_has_a_part_for_each_step() -> None:
    kept = svg_of(segment_row(0, 1))
    assert (kept.count("<rect"), LIGHT.local in kept, LIGHT.remote in kept) == (2, True, True)
    deleted = svg_of(segment_row(0, 1, delete_started_ms=NOW_MS - 9, delete_finished_ms=NOW_MS))
    assert deleted.count("<rect") == 3
    assert LIGHT.critical in svg_of(started(9), hung=True)
    assert LIGHT.critical not in svg_of(started(9))


def test_the_ledger_is_filtered_by_state_and_words_newest_event_first() -> None:
    rows = [
        judged_segment(0, 100),
        JudgedSegment(
            segment_row(100, 200, last_event_ms=NOW_MS, segment_id="zz"), LineageStanding.IN_LINEAGE, overlaps=True
        ),
        JudgedSegment(started(5), LineageStanding.COPYING),
        judged_segment(200, 300, LineageStanding.OUTSIDE),
    ]
    first = segment_ledger.select(rows, None)
    assert first[0].segment.segment_id == "zz"
    assert len(first) == 4
    hanging = JudgedSegment(replace(started(5), segment_id="hh"), LineageStanding.COPYING)
    worst_first = segment_ledger.select([*rows, hanging], None, hung={"hh"})
    assert [segment.segment.segment_id for segment in worst_first][:2] == ["hh", "zz"]
    assert len(segment_ledger.select(rows, segment_ledger.STARTED)) == 1
    assert len(segment_ledger.select(rows, segment_ledger.OUTSIDE)) == 1
    assert [segment.overlaps for segment in segment_ledger.select(rows, segment_ledger.OVERLAPS)] == [True]
    assert len(segment_ledger.select(rows, None, "ORDERS-7 z")) == 1
