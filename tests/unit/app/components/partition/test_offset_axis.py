"""Positions on an axis of offsets; no label covers another."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.components.partition.offset_axis import CHAR_PX, PLOT_PX, Axis, OffsetMarker, Placed, place, tick_text, ticks

AXIS = Axis(8_000_000, 9_400_000)


def test_ranges_are_cut_at_the_edges() -> None:
    axis = Axis(100, 200)
    assert axis.span(0, 50) is None
    assert axis.span(200, 300) is None
    assert axis.span(150, 150) is None
    assert axis.span(50, 150) == (0, 50)
    assert axis.span(150, 900) == (50, 50)


@given(st.integers(0, 10**15), st.integers(1, 10**15), st.integers(2, 12))
def test_ticks_are_few_round_and_on_the_axis(start: int, length: int, most: int) -> None:
    axis = Axis(start, start + length)
    result = ticks(axis, most)
    assert len(result) <= most + 1
    assert all(axis.start <= at <= axis.end for at, _ in result)
    assert len({words for _, words in result}) == len(result)


@pytest.mark.parametrize(
    ("value", "step", "words"),
    [
        (8_400_000, 200_000, "8.4 M"),
        (8_000_000, 1_000_000, "8 M"),
        (9_402_000, 200, "9\u202f402\u202f000"),
        (0, 5, "0"),
        (950, 50, "950"),
        (120_000, 20_000, "120 k"),
    ],
)
def test_ticks_are_short_unless_the_step_is_fine(value: int, step: int, words: str) -> None:
    assert tick_text(value, step) == words


def _interval(label: Placed) -> tuple[float, float]:
    at, width = label.percent / 100 * PLOT_PX, max(len(label.marker.name), len(label.marker.value)) * CHAR_PX
    return (at - width, at) if label.left else (at, at + width)


def test_neighbours_stand_at_both_sides_of_their_line() -> None:
    tiered = OffsetMarker("Latest tiered", "9 120 447 incl.", 9_120_448, left=True)
    pending = OffsetMarker("Earliest pending upload", "9 120 448", 9_120_448)
    first, second = place([tiered, pending], Axis(8_000_000, 10_000_000))
    assert (first.level, first.left) == (0, True)
    assert (second.level, second.left) == (0, False)


def test_labels_near_the_end_stand_at_the_left() -> None:
    (end,) = place([OffsetMarker("Log end", "9 400 000", 9_400_000)], AXIS)
    assert end.left


@given(st.lists(st.integers(8_000_000, 9_400_000), min_size=1, max_size=5))
def test_labels_never_cover_one_another(offsets: list[int]) -> None:
    placed = place([OffsetMarker("Some offset", "9 000 000", offset) for offset in sorted(offsets)], AXIS)
    for label, other in combinations(placed, 2):
        if label.level == other.level:
            (a, b), (c, d) = _interval(label), _interval(other)
            assert b <= c or d <= a
