"""Lives of a cluster under faults, each from one seed: no property is violated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tests.effort import SOAK, effort
from tests.simulation.run import Result, simulate

# A seed takes about half a second of one core.
SEEDS = effort(20, 5_000)
BATCH = effort(5, 250)


def play(seeds: Iterable[int]) -> Iterator[Result]:
    """The seeds one by one; in the long form on two cores."""
    if not SOAK:
        yield from map(simulate, seeds)
        return
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        yield from pool.map(simulate, seeds, chunksize=5)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BATCH))
@pytest.mark.timeout(effort(300, 1_800))
def test_acknowledged_records_survive_faults(first: int, record_property: Any) -> None:
    faults: Counter[str] = Counter()
    acknowledged = 0
    for result in play(range(first, first + BATCH)):
        assert result.ok, (
            f"seed {result.seed}: {result.violation}\n"
            f"replay it with python -m tests.simulation {result.seed}; it ended with\n" + "\n".join(result.lines[-30:])
        )
        faults.update(result.faults)
        acknowledged += result.acknowledged
    assert acknowledged
    assert faults
    record_property("seeds", BATCH)
    record_property("faults", sum(faults.values()))
    record_property("acknowledged", acknowledged)
