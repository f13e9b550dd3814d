"""From round to round: what opens, what stays, what closes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from backend.control.findings.catalogue import SLUGS, FindingRule
from backend.control.findings.disk_rates import rates, remember
from backend.control.findings.evaluate import (
    MORE,
    OBJECTS_MAX,
    SEEN_INTERVAL_MS,
    WITH_CRITICAL_MAX,
    candidates,
    evaluate,
    limited,
)
from backend.control.findings.finding_context import Candidate, FindingContext
from backend.store.queries.findings import OPEN_MAX
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, broker, context, disk, replica, stored

BASE = Candidate(
    slug="rule", object="orders-0", severity="warning", sentence="So it is", why="Because.", action="Do something."
)


def saying(*raised: Candidate) -> list[FindingRule]:
    def rule(_: FindingContext) -> Iterable[Candidate]:
        return raised

    return [rule]


def test_what_is_so_opens_and_what_is_no_longer_so_closes() -> None:
    opened = evaluate(context(), [], {}, saying(BASE))
    assert (opened.opened, opened.kept, opened.closed) == ([BASE], [], [])
    finding = stored(BASE)
    still = evaluate(context(), [finding], opened.waiting, saying(BASE))
    assert (still.opened, still.kept, still.closed) == ([], [], [])
    assert not still.worth_a_look
    gone = evaluate(context(), [finding], still.waiting, saying())
    assert (gone.opened, gone.closed) == ([], [finding])
    assert gone.worth_a_look


def test_a_finding_opens_only_after_it_has_been_so_for_long_enough_without_a_break() -> None:
    slow = replace(BASE, for_ms=MINUTE_MS)
    first = evaluate(context(), [], {}, saying(slow))
    assert first.opened == []
    almost = evaluate(context(at_ms=NOW_MS + MINUTE_MS - 1), [], first.waiting, saying(slow))
    assert almost.opened == []
    assert evaluate(context(at_ms=NOW_MS + MINUTE_MS), [], almost.waiting, saying(slow)).opened == [slow]
    broken = evaluate(context(at_ms=NOW_MS + 1), [], almost.waiting, saying())
    assert evaluate(context(at_ms=NOW_MS + MINUTE_MS), [], broken.waiting, saying(slow)).opened == []


HOUR_MS = 60 * MINUTE_MS


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_wall_clock_that_is_set_neither_opens_nor_delays_a_finding(jump_ms: int) -> None:
    slow = replace(BASE, for_ms=MINUTE_MS)
    waiting = evaluate(context(monotonic_ms=5_000), [], {}, saying(slow)).waiting
    for step_ms in range(2_000, MINUTE_MS, 2_000):
        jumped = context(at_ms=NOW_MS + jump_ms + step_ms, monotonic_ms=5_000 + step_ms)
        changes = evaluate(jumped, [], waiting, saying(slow))
        assert changes.opened == [], step_ms
        waiting = changes.waiting
    due = context(at_ms=NOW_MS + jump_ms + MINUTE_MS, monotonic_ms=5_000 + MINUTE_MS)
    assert evaluate(due, [], waiting, saying(slow)).opened == [slow]


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_follower_that_is_stuck_stays_so_when_the_wall_clock_is_set(jump_ms: int) -> None:
    """Its log end was last seen to move by the clock of before."""
    lagging = replica(2, in_isr=False, phase="DELAYED", log_end_offset=0)
    facts = {"replicas": [replica(1), lagging, replica(3)], "moved_ms": {("orders", 0, 2): NOW_MS - 2_000}}
    before = evaluate(context(**facts, monotonic_ms=0), [], {})
    after = evaluate(context(**facts, at_ms=NOW_MS + jump_ms, monotonic_ms=30_000), [], before.waiting)
    assert ([c.slug for c in before.opened], [c.slug for c in after.opened]) == ([], ["follower-stuck"])


def test_what_is_seen_is_written_although_the_clock_was_set_back() -> None:
    finding = stored(BASE)
    assert evaluate(context(at_ms=NOW_MS - HOUR_MS), [finding], {}, saying(BASE)).kept == [(finding, BASE)]


def test_what_is_open_stays_open_after_a_restart_without_waiting_again() -> None:
    slow = replace(BASE, for_ms=MINUTE_MS)
    after = evaluate(context(), [stored(slow)], {}, saying(slow))
    assert (after.opened, after.closed) == ([], [])


def test_what_changed_is_written_at_once_and_what_stays_now_and_then() -> None:
    finding = stored(BASE)
    worse = replace(BASE, severity="critical")
    changed = evaluate(context(), [finding], {}, saying(worse))
    assert changed.kept == [(finding, worse)]
    assert changed.worth_a_look
    other_numbers = replace(BASE, why="Because, for longer.")
    assert evaluate(context(at_ms=NOW_MS + SEEN_INTERVAL_MS - 1), [finding], {}, saying(other_numbers)).kept == []
    due = evaluate(context(at_ms=NOW_MS + SEEN_INTERVAL_MS), [finding], {}, saying(other_numbers))
    assert due.kept == [(finding, other_numbers)]
    assert not due.worth_a_look


def test_a_cause_that_explains_one_more_says_so_at_once() -> None:
    away = replace(BASE, slug="broker-away", object="broker 3", severity="critical", broker_id=3)
    voter = replace(BASE, slug="voter-away", object="voter 3", broker_id=3)
    leaderless = replace(BASE, slug="offline", severity="critical", depends_on=frozenset({3}))
    first = evaluate(context(), [], {}, saying(away, voter))
    open_now = [stored(candidate) for candidate in first.opened]
    assert evaluate(context(), open_now, first.waiting, saying(away, voter)).kept == []
    more = evaluate(context(), open_now, first.waiting, saying(away, voter, leaderless))
    assert ["1 partition without a leader" in candidate.why for _, candidate in more.kept] == [True]


def test_a_graver_finding_takes_the_place_of_the_milder_one() -> None:
    mild = replace(BASE, slug="mild")
    grave = replace(BASE, slug="grave", for_ms=MINUTE_MS, replaces="mild")
    first = evaluate(context(), [], {}, saying(mild, grave))
    assert first.opened == [mild]
    later = evaluate(context(at_ms=NOW_MS + MINUTE_MS), [stored(mild)], first.waiting, saying(mild, grave))
    assert later.opened == [grave]
    assert [finding.slug for finding in later.closed] == ["mild"]


def test_of_the_same_rule_and_object_the_first_counts() -> None:
    assert candidates(context(), saying(BASE, replace(BASE, sentence="Again"))) == {("rule", "orders-0"): BASE}


def many(number: int, **more: Any) -> list[Candidate]:
    return [replace(BASE, object=f"orders-{i}", **more) for i in range(number)]


MORE_KEY = ("rule", MORE)


def test_a_rule_gives_five_hundred_objects_at_most_and_the_worst_of_them() -> None:
    worst = replace(BASE, object="worst", severity="critical")
    result = limited(candidates(context(), saying(*many(OBJECTS_MAX + 41), worst)))
    assert len(result) == OBJECTS_MAX + 1
    assert ("rule", "worst") in result
    more = result[MORE_KEY]
    assert (more.severity, more.facts["count"]) == ("warning", 42)
    assert more.why.startswith("42 more of this kind: orders-499, orders-500, ")


def test_what_is_explained_is_counted_by_its_cause_and_not_again() -> None:
    explained = {c.key: c for c in many(OBJECTS_MAX + 1, cause=("broker-away", "broker 3"))}
    assert len(limited(explained)) == OBJECTS_MAX


def test_an_open_finding_does_not_close_when_another_needs_its_place() -> None:
    before = many(OBJECTS_MAX)
    findings = [stored(c, number) for number, c in enumerate(before)]
    worse = [replace(c, object=f"worse {c.object}", severity="critical") for c in before]
    changes = evaluate(context(), findings, {}, saying(*worse, *before))
    assert changes.closed == []
    assert [c.severity for c in changes.opened] == ["critical"] * OBJECTS_MAX, "what is critical has places besides"
    milder = [replace(c, object=f"as bad {c.object}") for c in before]
    changes = evaluate(context(), findings, {}, saying(*milder, *before))
    assert (changes.closed, [c.key for c in changes.opened]) == ([], [MORE_KEY])
    again = evaluate(context(), [*findings, stored(changes.opened[0], 999)], {}, saying(*milder, *before))
    assert (again.opened, again.closed) == ([], [])
    ended = evaluate(context(), [*findings, stored(changes.opened[0], 999)], {}, saying(*before))
    assert [finding.object for finding in ended.closed] == [MORE]


def test_findings_of_one_rule_have_an_upper_limit_whatever_they_are() -> None:
    critical = many(5 * OBJECTS_MAX, severity="critical")
    assert len(limited({c.key: c for c in critical})) == WITH_CRITICAL_MAX + 1
    assert len(SLUGS) * (WITH_CRITICAL_MAX + 1) <= OPEN_MAX


def test_a_disks_rate_is_known_after_ten_minutes_and_forgets_what_is_older_than_half_an_hour() -> None:
    history = remember({}, [broker(1, log_dirs=[disk(0.1)])], 0)
    for minute in range(1, 10):
        history = remember(history, [broker(1, log_dirs=[disk(0.1 + minute / 1000)])], minute * MINUTE_MS)
        assert rates(history) == {}
    history = remember(history, [broker(1, log_dirs=[disk(0.11)])], 10 * MINUTE_MS)
    assert rates(history) == {(1, "/data"): 60.0}  # 10 of 1,000 bytes in ten minutes
    for minute in range(11, 60):
        history = remember(history, [broker(1, log_dirs=[disk(0.11)])], minute * MINUTE_MS)
    assert rates(history) == {(1, "/data"): 0.0}
    assert len(history[1, "/data"]) == 31


def test_a_disk_that_is_not_there_any_more_is_forgotten() -> None:
    history = remember({}, [broker(1), broker(2)], 0)
    assert set(remember(history, [broker(2)], MINUTE_MS)) == {(2, "/data")}
