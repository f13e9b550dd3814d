"""Lives of a metadata quorum under faults, each from one seed: Raft's promises hold, and planted bugs break them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tests.effort import SOAK, effort
from tests.simulation.quorum_planted import PLANTED, Plant
from tests.simulation.quorum_run import simulate_quorum

SEEDS = effort(60, 2_000, check=12)
BATCH = effort(15, 250, check=3)
# Two leaders of one epoch need two candidates that meet: one in a hundred lives has them.
SEEDS_MAX = 300
Played = tuple[str | None, list[str], dict[str, int]]


def play(seed: int) -> Played:
    result, run = simulate_quorum(seed)
    figures = {
        "acknowledged": result.acknowledged,
        "leaders": len(run.checkers.leaders),
        "snapshots loaded": run.snapshots_loaded,
        "gaps": run.checkers.gaps,
        **result.faults,
    }
    return result.violation, result.lines[-30:], figures


def plays(seeds: range) -> list[Played]:
    """In the long form on two cores."""
    if not SOAK:
        return [play(seed) for seed in seeds]
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(play, seeds, chunksize=5))


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BATCH))
@pytest.mark.timeout(effort(300, 1_800))
def test_a_quorum_keeps_its_promises_whatever_ends_between_two_effects(first: int, record_property: Any) -> None:
    figures: Counter[str] = Counter()
    seeds = range(first, first + BATCH)
    for seed, (violation, lines, counted) in zip(seeds, plays(seeds), strict=True):
        assert violation is None, f"seed {seed}: {violation}\nit ended with\n" + "\n".join(lines)
        figures.update(counted)
    # The lives were worth looking at.
    assert figures["acknowledged"] > 10 * BATCH
    assert figures["leaders"] > BATCH
    assert figures["snapshots loaded"] > BATCH / 10
    assert figures["ended between effects"] > BATCH
    for name, value in figures.items():
        record_property(name, value)


@pytest.mark.parametrize(("plant", "promise", "first"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_bug_is_found(plant: Plant, promise: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    broken: list[str | None] = []
    for seed in range(first, first + SEEDS_MAX):
        # One broken promise may show as another first.
        broken.append(simulate_quorum(seed)[0].checker)
        if promise in broken:
            return
    pytest.fail(f"none of {SEEDS_MAX} seeds shows {promise} broken, they show {set(broken)}")


def test_a_seed_gives_the_same_life_again() -> None:
    hashes = {simulate_quorum(7)[0].trace_hash for _ in range(2)}
    assert len(hashes) == 1
