"""How far the pipeline is: whether its ledger may lack something."""

from __future__ import annotations

from typing import Any

import pytest

from backend.store.queries.health import ProcessHealth
from backend.store.queries.pipeline import BEHIND_MS, is_behind


def pipeline(detail: dict[str, Any] | None, *, age_ms: int = 1_000, state: str = "running") -> ProcessHealth:
    return ProcessHealth("pipeline", 1, 0, 0, 2_000, state, None, detail, 0, age_ms)


@pytest.mark.parametrize(
    ("process", "behind"),
    [
        (pipeline({"lag_records": 0, "lag_ms": 0}), False),
        # Some records arrived since its last batch, as ever.
        (pipeline({"lag_records": 5, "lag_ms": BEHIND_MS - 1_000}), False),
        (pipeline({"lag_records": 5, "lag_ms": BEHIND_MS}), True),
        (pipeline({"lag_records": 5, "lag_ms": None}), True),
        (pipeline({"lag_records": None, "lag_ms": None}), True),
        (pipeline(None), True),
        (pipeline({"lag_records": 0, "lag_ms": 0}, age_ms=6_001), True),
        (pipeline({"lag_records": 0, "lag_ms": 0}, state="failed"), True),
        (None, True),
    ],
)
def test_the_pipeline_is_behind_unless_it_says_otherwise(process: ProcessHealth | None, behind: bool) -> None:
    assert is_behind(process) is behind
