"""Followers as data: when one is stuck, and the stretches of its phases."""

from __future__ import annotations

from typing import Any

import pytest

from app.components.follower import follower_table, phase_timeline, stuck_follower
from app.components.partition.partition_ledger import engine_event_text
from app.theme import DARK, LIGHT, Palette
from backend.store.queries.followers import Follower, FollowerPhaseEvent, PhaseChange
from tests.unit.app.partition_rows import NOW_MS, replica_row

MINUTE_MS = 60_000
SINCE_MS = NOW_MS - 20 * MINUTE_MS


def follower(phase: str | None = "FETCHING", age_ms: int = MINUTE_MS, **more: Any) -> Follower:
    values = {"role": "follower", "in_isr": phase == "IN_SYNC", "phase": phase, "phase_since_ms": NOW_MS - age_ms}
    return Follower(replica_row(5, **{**values, **more}), 1, 1200, True)


def phase_event(age_ms: int, phase: str, **more: Any) -> FollowerPhaseEvent:
    return FollowerPhaseEvent(NOW_MS - age_ms, {"phase": phase, **more})


def change(age_ms: int, phase: str | None, **more: Any) -> PhaseChange:
    values: dict[str, Any] = {"phase_since_ms": NOW_MS - age_ms, "phase_source": "inferred", "before_ms": None}
    return PhaseChange(NOW_MS - age_ms, phase, **(values | more))


def spans(stretches: tuple[phase_timeline.Stretch, ...]) -> list[tuple[str, int, int]]:
    """Phases with their ends in minutes before now."""
    return [
        (stretch.phase, (NOW_MS - stretch.start_ms) // MINUTE_MS, (NOW_MS - stretch.end_ms) // MINUTE_MS)
        for stretch in stretches
    ]


@pytest.mark.parametrize(
    ("phase", "age_ms", "attempts", "stuck"),
    [
        ("FETCHING", 60 * MINUTE_MS, None, False),
        ("IN_SYNC", 60 * MINUTE_MS, None, False),
        ("DELAYED", 60 * MINUTE_MS, 2, False),
        ("DELAYED", 1_000, 3, True),
        ("DELAYED", 29_000, None, False),
        ("DELAYED", 31_000, None, True),
        ("WAITING_FOR_METADATA", 5_000, None, False),
        ("WAITING_FOR_METADATA", 31_000, None, True),
        ("FAILED", 1_000, None, True),
        (None, 60 * MINUTE_MS, None, False),
    ],
)
def test_stuck_is_three_failed_attempts(phase: str | None, age_ms: int, attempts: int | None, stuck: bool) -> None:
    evidence = None if attempts is None else {"attempts": attempts}
    in_phase = follower(phase, age_ms, evidence=evidence)
    assert (stuck_follower.why_stuck(in_phase.replica, NOW_MS) is not None) is stuck


def test_stretches_are_what_the_broker_told_to_the_window() -> None:
    events = [
        phase_event(30 * MINUTE_MS, "TRUNCATING"),
        phase_event(10 * MINUTE_MS, "BUILDING_REMOTE_AUX"),
        phase_event(5 * MINUTE_MS, "FETCHING"),
    ]
    stretches = phase_timeline.stretches(follower(), events, [], SINCE_MS, NOW_MS)
    assert spans(stretches) == [("TRUNCATING", 20, 10), ("BUILDING_REMOTE_AUX", 10, 5), ("FETCHING", 5, 0)]
    assert {stretch.source for stretch in stretches} == {"exact"}


def test_repeated_attempts_are_one_stretch_with_their_count() -> None:
    events = [phase_event(6 * MINUTE_MS, "DELAYED", attempts=1), phase_event(4 * MINUTE_MS, "DELAYED", attempts=3)]
    delayed = follower("DELAYED", 6 * MINUTE_MS, evidence={"attempts": 3})
    stretches = phase_timeline.stretches(delayed, events, [], SINCE_MS, NOW_MS)
    assert spans(stretches) == [("DELAYED", 6, 0)]
    assert stretches[0].attempts == 3
    assert phase_timeline.row(delayed, stretches, NOW_MS).outcome == "stuck · attempt 3"


def test_the_newest_sample_has_the_last_word() -> None:
    stretches = phase_timeline.stretches(
        follower("IN_SYNC", MINUTE_MS), [phase_event(5 * MINUTE_MS, "FETCHING")], [], SINCE_MS, NOW_MS
    )
    assert spans(stretches) == [("FETCHING", 5, 1), ("IN_SYNC", 1, 0)]


def test_without_events_samples_tell_and_a_phase_never_begins_before_the_sample_without_it() -> None:
    changes = [
        change(15 * MINUTE_MS, "IN_SYNC"),
        # The phase says that it began before, but a sample since then had another.
        change(8 * MINUTE_MS, "FETCHING", before_ms=NOW_MS - 9 * MINUTE_MS, phase_since_ms=NOW_MS - 19 * MINUTE_MS),
        change(2 * MINUTE_MS, None, before_ms=NOW_MS - 2 * MINUTE_MS - 1),
    ]
    stretches = phase_timeline.stretches(follower(None), [], changes, SINCE_MS, NOW_MS)
    assert [stretch.phase for stretch in stretches] == ["IN_SYNC", "FETCHING", "?"]
    assert stretches[1].start_ms == NOW_MS - 9 * MINUTE_MS + 1
    assert {stretch.source for stretch in stretches} == {"inferred"}


def test_the_way_into_the_isr_is_measured() -> None:
    events = [
        phase_event(18 * MINUTE_MS, "IN_SYNC"),
        phase_event(12 * MINUTE_MS, "TRUNCATING"),
        phase_event(11 * MINUTE_MS, "FETCHING"),
        phase_event(7 * MINUTE_MS, "IN_SYNC"),
    ]
    in_sync = follower("IN_SYNC", 7 * MINUTE_MS)
    stretches = phase_timeline.stretches(in_sync, events, [], SINCE_MS, NOW_MS)
    assert phase_timeline.row(in_sync, stretches, NOW_MS).outcome == "in sync after 5 m"


def test_a_follower_that_nothing_is_known_of_is_unknown_and_not_fine() -> None:
    unknown = follower(None)
    stretches = phase_timeline.stretches(unknown, [], [], SINCE_MS, NOW_MS)
    assert [stretch.phase for stretch in stretches] == ["?"]
    assert phase_timeline.row(unknown, stretches, NOW_MS).outcome == "? not known"


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_the_figure_draws_each_phase_in_its_colour_and_pattern(colours: Palette) -> None:
    delayed = follower("DELAYED", 6 * MINUTE_MS, evidence={"attempts": 3}, topic="<b>")
    events = [phase_event(9 * MINUTE_MS, "BUILDING_REMOTE_AUX"), phase_event(6 * MINUTE_MS, "DELAYED", attempts=3)]
    row = phase_timeline.row(delayed, phase_timeline.stretches(delayed, events, [], SINCE_MS, NOW_MS), NOW_MS)
    figure = phase_timeline.figure([row], SINCE_MS, NOW_MS, [(NOW_MS - MINUTE_MS, "plan #9")], colours, None)
    looks = {trace.name: (trace.marker.color, trace.marker.pattern.shape) for trace in figure.data}
    assert looks == {"building remote state": (colours.remote, "/"), "stuck": (colours.critical, "x")}
    assert [label.text for label in figure.layout.annotations] == ["▲ stuck · attempt 3", "plan #9"]
    assert figure.layout.yaxis.ticktext[0].startswith("&lt;b>-7")
    assert list(figure.data[1].x) == [6 * MINUTE_MS]


def test_head_counts_followers_out_of_sync() -> None:
    assert follower_table.counts_text({}, 0) == "no follower is known"
    assert follower_table.counts_text({"IN_SYNC": 4}, 0) == "all 4 in sync"
    assert follower_table.counts_text({"IN_SYNC": 4, "DELAYED": 1, None: 1}, 1) == "2 of 6 not in sync · 1 stuck"


def test_why_shows_rule_evidence_and_the_failed_attempts() -> None:
    evidence = {"attempts": 3, "target_offset": 782, "reason": "index <gone>"}
    delayed = follower("DELAYED", 6 * MINUTE_MS, evidence=evidence)
    attempt = phase_event(MINUTE_MS, "DELAYED", attempts=3, target_offset=782, evidence={"reason": "index <gone>"})
    html = follower_table.why_html(delayed, [attempt], lambda at_ms: "08:00", NOW_MS)
    assert "3 attempts failed one after the other" in html
    assert "It is 200 records behind broker 1" in html
    assert html.count("ndex &lt;gone&gt;") == 2
    assert "<gone>" not in html


def test_numbers_of_the_list_are_grouped_and_what_does_not_apply_is_empty() -> None:
    styler = follower_table.shown([follower(log_end_offset=None), follower(log_end_offset=0)], lambda _: "", NOW_MS)
    html = styler.to_html()
    assert "1\u202f200" in html
    assert "<NA>" not in html
    assert "&lt;NA&gt;" not in html


def passing(attempts: int, reason: str = "the leader answered UNKNOWN_TOPIC_ID (broker 3)") -> dict[str, Any]:
    return {"attempts": attempts, "evidence": {"reason": reason}}


@pytest.mark.parametrize(
    ("phase", "body", "usual"),
    [
        ("DELAYED", passing(1), True),
        ("DELAYED", passing(2, "the leader answered NOT_LEADER_OR_FOLLOWER (broker 1)"), True),
        ("DELAYED", passing(3), False),
        ("DELAYED", passing(1, "the leader answered KAFKA_STORAGE_ERROR (broker 3)"), False),
        ("FETCHING", passing(1), False),
        ("FAILED", passing(1, "the leader has a newer epoch than 4; waiting for its metadata"), True),
        ("FAILED", passing(1), False),
        ("DELAYED", {}, False),
    ],
)
def test_what_kafka_asks_again_for_is_no_failure_until_it_stays(phase: str, body: dict[str, Any], usual: bool) -> None:
    assert stuck_follower.is_ordinary_retry({"phase": phase, **body}) is usual


def test_a_usual_retry_is_no_red_stretch_and_no_failed_attempt() -> None:
    events = [phase_event(9 * MINUTE_MS, "FETCHING"), phase_event(8 * MINUTE_MS, "DELAYED", **passing(1))]
    events.append(phase_event(7 * MINUTE_MS, "IN_SYNC"))
    stretches = phase_timeline.stretches(follower("IN_SYNC", 7 * MINUTE_MS), events, [], SINCE_MS, NOW_MS)
    assert spans(stretches) == [("FETCHING", 9, 7), ("IN_SYNC", 7, 0)]
    shown = follower_table.why_html(follower("IN_SYNC"), events, str, NOW_MS)
    assert "Failed attempts" not in shown
    assert "Asked again once while a topic" in shown
    assert engine_event_text("phase", events[1].body)[1] is False
