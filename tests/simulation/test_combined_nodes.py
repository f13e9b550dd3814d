"""Three nodes that are broker and controller lose a disk while all are down, and are whole again, with one image."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.effort import effort
from tests.simulation.combined_nodes import Ending, simulate_combined_nodes

# In these the active controller once applied a command twice, and its partition epochs parted from all others'.
FIRST = (320, 420, 697, 956)
SEEDS = [*FIRST, *range(1, effort(24, 3_000, check=9))]
LINES_TOLD = 30


@pytest.mark.timeout(effort(300, 3_600))
def test_all_nodes_are_in_sync_again_and_see_the_same(record_property: Any) -> None:
    endings: Counter[Ending] = Counter()
    for seed in SEEDS:
        result, ending = simulate_combined_nodes(seed)
        assert result.ok, (
            f"seed {seed}: {result.violation}\n"
            f"replay it with python -m tests.simulation {seed} --combined-nodes; it ended with\n"
            + "\n".join(result.lines[-LINES_TOLD:])
        )
        endings[ending] += 1
    record_property("seeds", len(SEEDS))
    # The runs were worth looking at.
    assert set(endings) == set(Ending)
