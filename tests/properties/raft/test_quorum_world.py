"""Raft's promises, under random loss, reorder, duplicates, cuts, crashes at every effect, and snapshots."""

from __future__ import annotations

import pytest

from backend.engine.raft.quorum_state import NOBODY
from tests.effort import effort
from tests.properties.raft.world import Violation, World

SEEDS = effort(25, 2_000)
STEPS = 400


def play(seed: int, steps: int = STEPS, bugs: frozenset[str] = frozenset(), nodes: int = 3) -> World:
    world = World(seed, nodes=nodes, bugs=bugs)
    for number in range(steps):
        world.step()
        if number % 100 == 0:
            world.check_logs_match()
    return world


def test_one_leader_an_epoch_and_nothing_committed_is_ever_lost() -> None:
    elections = commits = installed = 0
    for seed in range(SEEDS):
        world = play(seed, nodes=5 if seed % 10 == 9 else 1 if seed % 25 == 24 else 3)
        elections += world.elections
        commits += len(world.committed)
        installed += world.snapshots_installed
    # The worlds were worth looking at.
    assert elections > SEEDS
    assert commits > 5 * SEEDS
    assert installed > SEEDS / 20


def test_a_quorum_that_is_left_in_peace_elects_a_leader_and_catches_everybody_up() -> None:
    for seed in range(effort(6, 500)):
        world = play(seed, 300)
        world.heal()
        for _ in range(600):
            world.step()
            world.cut = frozenset()
        leader = world.leader()
        assert leader != NOBODY, f"seed {seed}"
        states = [node.state for node in world.nodes.values()]
        assert {state.epoch for state in states if state is not None} == {world.nodes[leader].state.epoch}  # type: ignore[union-attr]  # all run
        assert len(world.committed) > world.nodes[leader].disk.end - 60
        for node in world.nodes.values():
            assert node.disk.end > world.nodes[leader].disk.end - 60, f"seed {seed}"


@pytest.mark.parametrize(
    "bug",
    # The other bugs are planted in the simulator.
    ["forgets its vote", "votes for any log", "never flushes"],
)
def test_a_planted_bug_is_found(bug: str) -> None:
    for seed in range(400):
        try:
            play(seed, 600, bugs=frozenset({bug}))
        except (Violation, AssertionError):
            return
    pytest.fail(f"no seed shows that a node {bug}")
