"""Simulated runs carry out the code that runs in production, not a model of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

import pytest

from tests.effort import effort
from tests.simulation.covered import LEFT_OUT, Covered, Lines, function_lines, missed_by_all
from tests.simulation.run import simulate

# A run whose lines are counted takes some four times as long: 200 take about five minutes of two cores.
SEEDS: Final = effort(range(1, 3), range(1, 201), check=range(1, 2))
# Of the lines inside functions of the log, remote and replica packages, without what `covered.LEFT_OUT` names.
PART_MIN: Final = effort(0.5, 0.9)
CHUNK: Final = 10


def missed_by(seeds: Iterable[int]) -> Lines:
    lines = Covered()
    with lines:
        for seed in seeds:
            simulate(seed)
    return lines.missed


@pytest.mark.timeout(effort(120, 1_800))
def test_the_simulation_carries_out_nine_tenths_of_the_log_and_of_tiered_replication(record_property: Any) -> None:
    chunks = [SEEDS[at : at + CHUNK] for at in range(0, len(SEEDS), CHUNK)]
    if len(chunks) == 1:
        missed = missed_by(chunks[0])
    else:
        with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as pool:
            missed = missed_by_all(pool.map(missed_by, chunks))
    total = sum(map(len, function_lines().values()))
    part = 1 - sum(map(len, missed.values())) / total
    record_property("seeds", len(SEEDS))
    record_property("lines", total)
    record_property("part", round(part, 4))
    assert part >= PART_MIN, f"{part:.1%}; python -m tests.simulation 1 {len(SEEDS)} --covered names the lines"


def test_what_is_left_out_of_the_count_is_there() -> None:
    paths = {path.rpartition("backend/engine/")[2].removesuffix(".py").replace("/", ".") for path in function_lines()}
    for name in LEFT_OUT:
        module, _, function = name.partition(":")
        assert (module in paths) is bool(function), name
