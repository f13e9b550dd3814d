"""The picture of a race's lag as data."""

from __future__ import annotations

from typing import Any

import pytest

from app.components.lab import bootstrap_race
from app.theme import LIGHT


def race(flag: bool, *behind: tuple[int, int], log_end: int = 1_000) -> dict[str, Any]:
    """``behind`` are (ms after it was asked for, offsets behind)."""
    positions = [{"at_ms": 5_000 + at_ms, "local_start": 0, "log_end": log_end - lag} for at_ms, lag in behind]
    return {"flag": flag, "began_ms": 5_000, "log_end": log_end, "positions": positions, "phases": []}


def figure(*races: dict[str, Any]) -> Any:
    return bootstrap_race.lag_figure({"races": list(races), "leader_log": None}, LIGHT)


def test_who_has_joined_stays_at_nothing_while_the_other_runs() -> None:
    drawn = figure(race(False, (0, 1_000), (4_000, 300)), race(True, (0, 1_000), (700, 0)))
    off, on = drawn.data
    assert (list(off.x), list(off.y)) == ([0.0, 4.0], [1_000, 300])
    assert (list(on.x), list(on.y)) == ([0.0, 0.7, 4.0], [1_000, 0, 0])
    assert list(drawn.layout.xaxis.range) == [0, 4.0]


@pytest.mark.parametrize(("off_behind", "apart"), [(0, True), (20, True), (500, False)])
def test_labels_stand_at_the_right_and_never_on_each_other(off_behind: int, apart: bool) -> None:
    drawn = figure(race(False, (0, 1_000), (4_000, off_behind)), race(True, (0, 1_000), (700, 0)))
    off, on = drawn.layout.annotations
    assert (off.text, on.text) == (f"flag off, {off_behind}", "flag on, 0")
    assert {(label.xref, label.x, label.xanchor) for label in (off, on)} == {("paper", 1, "left")}
    assert (off.yshift == bootstrap_race.LABEL_PX) is apart
    assert on.yshift is None


def test_a_race_that_told_nothing_yet_is_an_empty_chart() -> None:
    drawn = figure()
    assert not drawn.layout.annotations
    assert list(drawn.layout.xaxis.range) == [0, 1]
