"""One partition in short: rates, why local data stays, how deep replicas reach, events in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.components.follower import replica_phases
from app.components.partition import partition_heatmap, partition_ledger, partition_summary, partition_table
from app.components.partition.lineage_verdicts import LeaderChain, judge
from app.components.partition.offset_history import figure as history_figure
from app.theme import DARK, LIGHT
from backend.store.queries.partition_detail import EngineEventRow, SegmentEventRow
from backend.tiering.segment_state import SegmentState
from tests.ui.conftest import plain
from tests.unit.app.partition_rows import NOW_MS, partition_row, point, replica_row, segment_row, topic_row

HUNG = segment_row(
    700, 800, state=SegmentState.COPY_SEGMENT_STARTED, copy_started_ms=NOW_MS - 9_000_000, copy_finished_ms=None
)


# --- rates and pending ---


def test_rates_are_bytes_between_the_first_and_the_last_point() -> None:
    points = [point(60_000, 400, latest_tiered_offset=99), point(0, 1000, latest_tiered_offset=699)]
    seen = partition_summary.rates(partition_row(), points, NOW_MS)
    assert seen.produced_bytes_s == pytest.approx(600 * 10 / 60)
    assert seen.copied_bytes_s == pytest.approx(600 * 10 / 60)
    assert not seen.still_since_before


def test_a_copy_that_stands_still_says_for_how_long() -> None:
    points = [
        point(90_000, 400, latest_tiered_offset=99),
        point(60_000, 500),
        point(30_000, 800),
        point(0, 1000),
    ]
    assert partition_summary.rates(partition_row(), points, NOW_MS).copy_still_ms == 90_000
    still = partition_summary.rates(partition_row(), points[1:], NOW_MS)
    assert (still.copied_bytes_s, still.copy_still_ms, still.still_since_before) == (0.0, 60_000, True)
    shown = plain(partition_summary.facts_html(partition_row(), topic_row(), still))
    assert "0 B/s for over 1 m" in shown


@pytest.mark.parametrize(
    ("points", "changed"),
    [
        ([], {}),
        ([point(60_000, None), point(0, 1000)], {}),
        ([point(5_000, 900), point(0, 1000)], {}),
        ([point(60_000, 900), point(0, 1000)], {"local_log_bytes": None}),
    ],
)
def test_a_rate_that_is_not_known_is_a_question_mark(points: list[Any], changed: dict[str, Any]) -> None:
    row = partition_row(**changed)
    seen = partition_summary.rates(row, points, NOW_MS)
    assert seen == partition_summary.PartitionRates()
    assert "Produce rate ? no history yet" in plain(partition_summary.facts_html(row, topic_row(), seen))


def test_pending_then_is_known_only_where_its_offsets_are() -> None:
    points = [
        point(3, 1000),
        point(2, None),
        point(1, 900, earliest_pending_upload_offset=-1),
        point(0, 800, earliest_pending_upload_offset=None, latest_tiered_offset=-1),
    ]
    assert [value for _, value in partition_summary.pending_series(partition_row(), points)] == [
        3000.0,
        None,
        2000.0,
        None,
    ]


def test_pending_picture_breaks_where_it_is_not_known() -> None:
    fig = partition_summary.pending_figure([(0, 2e9), (1000, None), (2000, 3e9)], "critical", LIGHT, None)
    assert list(fig.data[0].y) == [2.0, None, 3.0]
    assert fig.data[0].line.color == LIGHT.critical
    assert fig.layout.yaxis.range[0] == 0


# --- why local data is not deleted ---


def test_reasons_name_what_is_not_copied_and_what_may_go() -> None:
    lines = partition_summary.why_local(partition_row(local_log_bytes=9000), topic_row(**{"segment.bytes": "1000"}))
    assert lines == [
        "5.4 kB not copied yet",
        "of it up to 1.0 kB in the active segment, copied once it rolls",
        "10 records past the high watermark, not yet eligible",
        "1.6 kB more may go at the next retention check",
    ]


def test_reasons_say_when_nothing_has_to_go() -> None:
    lines = partition_summary.why_local(partition_row(), topic_row(**{"local.retention.bytes": "8000"}))
    assert lines[-1] == "3.0 kB below local retention: nothing has to go by size"


def test_reasons_name_a_topic_that_does_not_copy() -> None:
    lines = partition_summary.why_local(partition_row(), topic_row(**{"remote.log.copy.disable": "true"}))
    assert lines[0] == "Copying is disabled for this topic: local data follows total retention."


def test_what_is_not_known_is_said_with_its_cause() -> None:
    row = partition_row(earliest_pending_upload_offset=-1, pending_reason="leader_does_not_know", high_watermark=None)
    assert partition_summary.why_local(row, None) == [
        "? not known what is not copied yet: the leader does not know yet",
        "? not known how much is past the high watermark",
    ]
    assert partition_summary.retention_text(row, None) == "? settings not read yet"


def test_summary_never_writes_zero_for_unknown() -> None:
    unknown = partition_row(
        log_start_offset=None,
        local_log_start_offset=None,
        latest_tiered_offset=None,
        earliest_pending_upload_offset=None,
        high_watermark=None,
        log_end_offset=None,
        local_log_bytes=None,
        remote_log_bytes=None,
        ledger_bytes=None,
        error="Broker 1 does not answer.",
    )
    shown = plain(partition_summary.facts_html(unknown, None, partition_summary.PartitionRates()))
    assert "Remote ? · ? Local ? · ? Pending ? Broker 1 does not answer." in shown
    assert not re.search(r"\b0\b", shown)


def test_pills_tell_a_hung_copy_a_missing_leader_and_who_is_out() -> None:
    row = partition_row(leader=-1, isr=[2])
    shown = plain(partition_summary.pills_html(row, [HUNG], 1000, NOW_MS, outside=2))
    assert shown == "▲ Copy hung ◆ 2 outside lineage ▲ No leader ◆ In sync 1 of 3"
    quiet = plain(partition_summary.pills_html(partition_row(), [], None, NOW_MS))
    assert quiet == "● Leader b1 ✓ In sync 3 of 3"


# --- replicas ---


def test_depth_comes_from_when_the_log_end_passed_the_local_start() -> None:
    points = [point(100_000, 400), point(50_000, 600), point(0, 1000)]
    assert replica_phases.local_depth_ms(replica_row(), [], points, NOW_MS) == 75_000


def test_depth_beyond_history_comes_from_remote_timestamps() -> None:
    segments = [segment_row(400, 500, max_timestamp_ms=NOW_MS - 9_000_000)]
    segments.append(segment_row(500, 600, max_timestamp_ms=NOW_MS - 5_000_000))
    replica = replica_row(local_log_start_offset=550)
    assert replica_phases.local_depth_ms(replica, segments, [point(60_000, 900)], NOW_MS) == 7_000_000


@pytest.mark.parametrize(
    ("changed", "depth"),
    [
        ({"local_log_start_offset": None}, None),
        ({"log_end_offset": None}, None),
        ({"log_end_offset": 500}, 0),
        ({}, None),
    ],
)
def test_depth_is_unknown_rather_than_guessed(changed: dict[str, Any], depth: int | None) -> None:
    assert replica_phases.local_depth_ms(replica_row(**changed), [], [], NOW_MS) == depth


def test_follower_with_little_local_data_is_thin_the_leader_never() -> None:
    points = [point(7_200_000, 400), point(3_700_000, 600), point(600_000, 950), point(0, 1000)]
    thin = replica_row(2, local_log_start_offset=960)
    empty = replica_row(3, local_log_start_offset=0, log_end_offset=0)
    states = replica_phases.states(partition_row(), [replica_row(), thin, empty], [], points, NOW_MS)
    assert [state.thin for state in states] == [False, True, False]
    shown = plain(replica_phases.table_html(states, 5, NOW_MS))
    assert "2 ✓ In sync 1 m exact ◆ 8 m thin 0 5.0 kB" in shown
    assert "1 leader ✓ Leads epoch 5" in shown


def test_inferred_phase_shows_its_confidence_and_evidence() -> None:
    follower = replica_row(
        3,
        phase="DELAYED",
        in_isr=False,
        phase_source="inferred",
        log_end_offset=800,
        evidence={
            "rule": "log-end-still",
            "sentence": "Its log end has stood at 800 for 9 s while the leader is ahead.",
            "confidence": "medium",
            "behind": 200,
            "epochs": "inferred",
            "fetch_offset": -1,
        },
    )
    states = replica_phases.states(partition_row(), [replica_row(), follower], [], [], NOW_MS)
    assert states[1].behind == 200
    assert states[1].status == "critical"
    shown = plain(replica_phases.evidence_html(states, NOW_MS))
    expected = "Its log end has stood at 800 for 9 s while the leader is ahead. behind 200"
    assert shown == f"Broker 3 {expected} inferred, medium confidence"


def test_replica_that_does_not_answer_is_unknown_in_every_column() -> None:
    silent = replica_row(
        3,
        phase=None,
        phase_since_ms=None,
        phase_source="inferred",
        log_end_offset=None,
        local_log_bytes=None,
        evidence={"sentence": "Broker 3 does not answer."},
    )
    states = replica_phases.states(partition_row(), [silent], [], [], NOW_MS)
    assert "3 ◆ ? not known ? inferred ? ? ?" in plain(replica_phases.table_html(states, 5, NOW_MS))
    assert "Broker 3 does not answer." in plain(replica_phases.evidence_html(states, NOW_MS))


def test_offsets_table_asks_only_the_leader_for_what_only_it_can_tell() -> None:
    replicas = [replica_row(), replica_row(2, latest_tiered_offset=-1, log_end_offset=None)]
    shown = plain(replica_phases.offsets_html(partition_row(), replicas, ""))
    assert "Latest tiered, incl. 699 none -5" in shown
    assert "Earliest pending upload 700 -6" in shown
    assert "Last stable ? -1, committed" in shown
    assert "Log end 1\u202f000 ? -1 as replica" in shown.replace("1 000", "1\u202f000")


def test_an_inferred_pending_offset_and_an_open_transaction_are_told_as_such() -> None:
    row = partition_row(earliest_pending_upload_offset=None, last_stable_offset=650)
    shown = plain(replica_phases.offsets_html(row, [replica_row()], ""))
    assert "Earliest pending upload 700 · inferred -5 + 1" in shown
    assert "Last stable 650 -1, committed" in shown


# --- ledger and events ---


def _clock(at_ms: int | None) -> str:
    return "?" if at_ms is None else str(at_ms - NOW_MS)


def test_ledger_lists_the_newest_segment_first_with_its_standing() -> None:
    chain = LeaderChain(((3, 0), (5, 400)), 0, 1000)
    odd = segment_row(350, 450, leader_epochs=[[4, 350]])
    table = partition_ledger.frame(judge([segment_row(0, 300), odd, HUNG], chain), _clock)
    assert list(table["first offset"]) == [700, 350, 0]
    assert list(table["lineage"]) == ["copying", "outside lineage: leader goes 3 → 5 here", "in lineage"]
    assert list(table["took"]) == ["", "2 s", "2 s"]
    assert list(table["epochs"]) == ["5", "4", "3"]


def test_tables_write_numbers_as_the_rest_of_the_page() -> None:
    rows = [partition_row(local_log_bytes=None, log_end_offset=9_402_911)]
    written = partition_table.shown(rows).to_html()
    assert "9\u202f402\u202f911" in written
    assert "7.0 kB" in written
    assert ">?<" in written
    assert ">0<" not in written.split("log start")[0]


def test_table_says_why_something_is_not_known() -> None:
    assert partition_table.note(partition_row()) == ""
    assert partition_table.note(partition_row(error="Broker 1 does not answer.")) == "Broker 1 does not answer."
    unknown = partition_row(earliest_pending_upload_offset=-1, pending_reason="leader_does_not_know")
    assert partition_table.note(unknown) == "the leader does not know yet"


def _engine(type_: str, at_ms: int = 0, **body: Any) -> EngineEventRow:
    return EngineEventRow(type_, 3, at_ms, body)


@pytest.mark.parametrize(
    ("event", "words", "bad"),
    [
        (
            _engine("phase", phase="FETCHING", target_offset=700, evidence={"reason": "built"}),
            "fetching from offset 700: built",
            False,
        ),
        (_engine("phase", phase="DELAYED", target_offset=None, evidence=None), "stuck", True),
        (
            _engine("copy", outcome="failed", start=0, end=99, bytes=1000, error="no such bucket"),
            "copy failed [0, 100), 1.0 kB: no such bucket",
            True,
        ),
        (_engine("delete", outcome="finished", start=None, end=None), "delete finished", False),
        (
            _engine("aux_state", step="read_indexes", outcome="failed", offset=5, error="404"),
            "remote state, read indexes: failed at offset 5: 404",
            True,
        ),
        (
            _engine("rlmm_ready", metadata_partition=13, ready=True),
            "remote log metadata read up to the end, partition 13",
            False,
        ),
        (_engine("leader", leader=3, leader_epoch=9), "leads from epoch 9 on", False),
        (_engine("something_new"), "something new", False),
    ],
)
def test_events_of_the_engine_read_as_sentences(event: EngineEventRow, words: str, bad: bool) -> None:
    (listed_event,) = partition_ledger.newest_events([event], [])
    assert (listed_event.what, listed_event.bad) == (words, bad)


def _remote(state: int, **changed: Any) -> SegmentEventRow:
    values: dict[str, Any] = {
        "kind": 0 if state == 0 else 1,
        "segment_id": "abc",
        "state": state,
        "broker_id": 3,
        "event_timestamp_ms": 10,
        "start_offset": 0 if state == 0 else None,
        "end_offset": 99 if state == 0 else None,
        "legal": True,
        "illegal_reason": None,
    }
    return SegmentEventRow(**(values | changed))


def test_what_both_sources_tell_is_told_once() -> None:
    engine = [_engine("copy", 5, outcome="started", segment_id="abc", start=0, end=99, bytes=10)]
    events = partition_ledger.newest_events(engine, [_remote(0), _remote(1)])
    assert [event.what for event in events] == ["copy finished, segment abc", "copy started [0, 100), 10 B"]


def test_an_event_against_the_life_cycle_is_shown_as_such() -> None:
    (event,) = partition_ledger.newest_events([], [_remote(1, legal=False, illegal_reason="no start was seen")])
    assert event.bad
    assert event.what == "copy finished, segment abc, not followed: no start was seen"
    (deleted,) = partition_ledger.newest_events([], [_remote(2, kind=2, segment_id=None)])
    assert deleted.what == "deletion of the partition finished"


def test_events_are_the_newest_first_and_limited() -> None:
    events = partition_ledger.newest_events([_engine("leader", at, leader_epoch=at) for at in range(300)], [])
    assert len(events) == 200
    assert events[0].at_ms == 299


# --- pictures ---


@pytest.mark.parametrize(
    ("pending", "limit", "step"),
    [
        (None, 100, None),
        (0, 100, 0),
        (49, 100, 0),
        (50, 100, 3),
        (65, 100, 4),
        (80, 100, 5),
        (100, 100, 6),
        (10**12, None, 2),
        (10**8, None, 1),
    ],
)
def test_heatmap_steps_follow_the_topics_limit(pending: int | None, limit: int | None, step: int | None) -> None:
    assert partition_heatmap.step(pending, limit) == step


def test_heatmap_puts_96_cells_in_a_row_and_topics_apart() -> None:
    rows = [partition_row(topic="a", partition=number) for number in range(100)]
    rows += [partition_row(topic="b", partition=number, log_end_offset=None) for number in range(2)]
    cells, bands = partition_heatmap.arrange(rows, {})
    assert [(band.topic, band.first, band.last) for band in bands] == [("a", 0, 1), ("b", 3, 3)]
    assert (cells[96].row, cells[96].column) == (1, 0)
    assert cells[100].step is None
    fig = partition_heatmap.figure(cells, bands, DARK)
    assert list(fig.data[1].text) == ["?", "?"]
    assert len(fig.data[2].customdata) == 102


def test_offset_history_breaks_where_it_is_not_known_and_never_draws_minus_one() -> None:
    points = [point(2000, 900, latest_tiered_offset=-1), point(1000, None), point(0, 1000)]
    fig = history_figure(points, NOW_MS - 2000, NOW_MS, 2_000, LIGHT, None)
    lines = {line.name: list(line.y) for line in fig.data}
    assert lines["log end"] == [900, None, 1000]
    assert lines["tiered to"] == [None, 700, 700]


def test_offset_history_draws_no_line_over_minutes_without_samples_but_over_a_quiet_one() -> None:
    points = [point(age_ms, 900) for age_ms in (14 * 60_000 + 2_000, 14 * 60_000, 62_000, 0)]
    fig = history_figure(points, NOW_MS - 3_600_000, NOW_MS, 2_000, LIGHT, None)
    [log_end] = [line for line in fig.data if line.name == "log end"]
    assert list(log_end.y) == [900, 900, None, 900, 900]
    assert list(log_end.x) == sorted(log_end.x)
