"""Disks are lost, one at a time, while their nodes are down: no acknowledged record is, and planted bugs show."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.effort import effort
from tests.simulation.lost_disks_planted import PLANTED, LostDisksPlanted, followers_cut_what_was_acknowledged
from tests.simulation.run import simulate

SEEDS = effort(8, 500, check=3)
# A bug needs its faults in the right order; today each first seed has them.
SEEDS_MAX = 20
LINES_TOLD = 30


@pytest.mark.timeout(effort(300, 1_800))
def test_nothing_acknowledged_is_lost_with_one_disk_at_a_time(record_property: Any) -> None:
    faults: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        result = simulate(seed, lost_disks=True)
        assert result.ok, (
            f"seed {seed}: {result.violation}\n"
            f"replay it with python -m tests.simulation {seed} --lost-disks; it ended with\n"
            + "\n".join(result.lines[-LINES_TOLD:])
        )
        faults.update(result.faults)
    lost = faults["disk lost"], faults["disk lost, all down"]
    record_property("seeds", SEEDS)
    record_property("disks lost", sum(lost))
    # The runs were worth looking at.
    assert sum(lost) > SEEDS / 2
    assert all(lost)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__)
@pytest.mark.timeout(300)
def test_a_planted_bug_is_found(planted: LostDisksPlanted, monkeypatch: pytest.MonkeyPatch) -> None:
    followers_cut_what_was_acknowledged(monkeypatch)
    planted.plant(monkeypatch)
    outcomes = []
    for seed in range(planted.seed, planted.seed + SEEDS_MAX):
        result = simulate(seed, lost_disks=True, faults=planted.faults)
        outcomes.append(f"{seed}: {result.violation}")
        if result.violation is not None:
            break
    # Messages of the checkers that may see it first: committed records are gone, or others stand in their place.
    assert result.checker in ("AcknowledgedSurvive", "ReplicasAgree", "NeverBack"), outcomes
