"""Each checker finds the bug that is planted for it."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTED, Planted
from tests.simulation.run import simulate

# A run meets a bug when its faults come together in the right way; today each first seed does, and an engine that
# takes its time otherwise may need another.
SEEDS_MAX = 20


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__)
def test_a_planted_bug_is_found(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    outcomes = []
    for seed in range(planted.seed, planted.seed + SEEDS_MAX):
        result = simulate(seed, faults=planted.faults, unclean=planted.unclean)
        outcomes.append(f"{seed}: {result.violation}")
        if result.violation is not None:
            break
    assert result.checker == planted.checker, outcomes


def test_every_checker_has_a_planted_bug() -> None:
    from tests.simulation.checkers import all_checkers
    from tests.simulation.world import World

    assert {type(checker).__name__ for checker in all_checkers(World(1))} == {planted.checker for planted in PLANTED}
