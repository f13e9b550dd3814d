"""Every interval is found from each of its moments, and from no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backend.tiering.intervals import MOMENT_MAX, OPEN_NODE, ancestors, fork_node, moment

small = st.integers(1, 70)
moments = st.integers(1, MOMENT_MAX)


def is_indexed(from_ms: int, to_ms: int, at_ms: int) -> bool:
    """As the index is asked."""
    before, after = ancestors(at_ms)
    node = fork_node(from_ms, to_ms)
    return (node in before and to_ms > at_ms) or (node in after and from_ms <= at_ms)


@given(small, small, small)
def test_an_interval_is_found_at_its_own_moments_only(bound_ms: int, other_bound_ms: int, at_ms: int) -> None:
    from_ms, to_ms = min(bound_ms, other_bound_ms), max(bound_ms, other_bound_ms)
    assert is_indexed(from_ms, to_ms, at_ms) == (from_ms <= at_ms < to_ms)


@given(moments, moments, moments)
def test_it_is_so_for_real_times_too(bound_ms: int, other_bound_ms: int, at_ms: int) -> None:
    from_ms, to_ms = min(bound_ms, other_bound_ms), max(bound_ms, other_bound_ms)
    assert is_indexed(from_ms, to_ms, at_ms) == (from_ms <= at_ms < to_ms)
    if from_ms < to_ms:
        assert from_ms <= fork_node(from_ms, to_ms) < to_ms
    assert fork_node(from_ms, to_ms) != OPEN_NODE


@given(moments)
def test_a_moment_has_few_ancestors_and_none_twice(at_ms: int) -> None:
    before, after = ancestors(at_ms)
    nodes = before + after
    assert len(nodes) == len(set(nodes)) <= 43
    assert all(node <= at_ms for node in before)
    assert all(node > at_ms for node in after)


def test_times_that_no_clock_should_say_are_brought_into_range() -> None:
    assert (moment(-1), moment(0), moment(5), moment(2**63 - 1)) == (1, 1, 5, MOMENT_MAX)
