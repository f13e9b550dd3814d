"""Many seeds on all cores, or a share of them as one test: no property is violated."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

from tests.effort import SOAK, effort
from tests.simulation.result import Result
from tests.simulation.run import simulate

# A seed takes some half a second of one core: 5,000 take about 25 minutes of two.
SEEDS: Final = effort(48, 5_000, check=4)
# As many test files play them, since a file is what one of pytest's workers gets.
SHARES: Final = 4
SOAK_TIMEOUT_S: Final = 1_800
# Of a seed with a violation.
LINES_TOLD: Final = 30


def play(seeds: Iterable[int]) -> Iterator[Result]:
    """The outcomes, seed by seed; in the long form on all cores, otherwise pytest's workers are on them already."""
    if not SOAK:
        yield from map(simulate, seeds)
        return
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    processes = max(1, (os.cpu_count() or 1) // beside)
    with ProcessPoolExecutor(max_workers=processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(simulate, seeds, chunksize=5)


def play_share(share: int, record_property: Any) -> None:
    """The seeds of one of the test files; tells every violation in the end, and how to see it again."""
    faults: Counter[str] = Counter()
    acknowledged, violations = 0, []
    seeds = range(1 + share, SEEDS + 1, SHARES)
    for result in play(seeds):
        if not result.ok:
            violations.append(
                f"seed {result.seed}: {result.violation}\n"
                f"replay it with python -m tests.simulation {result.seed}; it ended with\n"
                + "\n".join(result.lines[-LINES_TOLD:])
            )
        faults.update(result.faults)
        acknowledged += result.acknowledged
    record_property("seeds", len(seeds))
    record_property("violations", len(violations))
    record_property("faults", sum(faults.values()))
    record_property("acknowledged", acknowledged)
    assert not violations, "\n\n".join(violations)
    assert acknowledged
    assert faults
