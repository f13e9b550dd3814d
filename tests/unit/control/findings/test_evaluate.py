"""From round to round: what opens, what stays, what closes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from backend.control.findings.catalogue import FindingRule
from backend.control.findings.disk_rates import rates, remember
from backend.control.findings.evaluate import OBJECTS_MAX, SEEN_INTERVAL_MS, candidates, evaluate
from backend.control.findings.finding_context import Candidate, FindingContext
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, broker, context, disk, stored

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


def test_a_rule_gives_five_hundred_objects_at_most_and_the_worst_of_them() -> None:
    many = [replace(BASE, object=f"orders-{number}") for number in range(OBJECTS_MAX)]
    worst = replace(BASE, object="worst", severity="critical")
    result = candidates(context(), saying(*many, worst))
    assert len(result) == OBJECTS_MAX
    assert ("rule", "worst") in result


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
