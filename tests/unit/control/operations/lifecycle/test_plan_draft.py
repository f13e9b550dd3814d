"""The life of a plan as a table, and how a plan notices that the cluster has changed."""

from __future__ import annotations

import pytest

from backend.control.formatting import grouped, in_bytes
from backend.control.operations.lifecycle.plan_draft import differences
from backend.control.operations.lifecycle.plan_states import FINISHED, LEGAL, OPEN, REVERTIBLE, PlanState, sources
from backend.store.tables import operation


def test_the_table_names_every_state_once() -> None:
    assert set(LEGAL) == set(PlanState)
    assert set(PlanState) == {state for following in LEGAL.values() for state in following} | {PlanState.DRAFT}


def test_every_state_leads_to_an_end_and_no_state_to_itself() -> None:
    for state in PlanState:
        assert state not in LEGAL[state]
        seen, frontier = set[PlanState](), {state}
        while frontier:
            seen |= frontier
            frontier = {following for plan_state in frontier for following in LEGAL[plan_state]} - seen
        assert seen & FINISHED, state


def test_nothing_is_sent_before_it_was_requested_and_a_refused_plan_is_over() -> None:
    assert sources(PlanState.REQUESTED) == {PlanState.CHECKED}
    assert sources(PlanState.ACCEPTED) == {PlanState.REQUESTED}
    assert LEGAL[PlanState.REFUSED] == frozenset()


def test_only_what_may_have_changed_something_can_be_reverted() -> None:
    assert sources(PlanState.REVERTED) == REVERTIBLE
    assert not REVERTIBLE & (OPEN | {PlanState.DRAFT, PlanState.CHECKED, PlanState.REFUSED})


def test_the_column_can_hold_every_state() -> None:
    assert max(len(state) for state in PlanState) <= (getattr(operation.c.state.type, "length", None) or 100)


def test_differences_name_the_place_and_both_values() -> None:
    before = {"brokers": {"1": {"levels": {"A": None}}}, "x": [1, 2]}
    now = {"brokers": {"1": {"levels": {"A": "true"}}, "2": {}}, "x": [1, 2]}
    result = differences(before, now)
    assert "brokers.1.levels.A: was not set, is true" in result
    assert any(text.startswith("brokers.2") for text in result)
    assert differences(before, before) == []


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_960, "1.0 MB"),
        (143_000_000_000, "143 GB"),
        (3_900_000_000_000, "3.9 TB"),
        (5_000_000_000_000_000_000, "5000 PB"),
    ],
)
def test_bytes_are_written_as_the_pages_write_them(size_bytes: int, text: str) -> None:
    assert in_bytes(size_bytes) == text


def test_counts_are_grouped_with_narrow_spaces() -> None:
    assert grouped(9_120_447) == "9\u202f120\u202f447"
