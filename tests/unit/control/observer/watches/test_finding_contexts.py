"""Up to when the ledger is complete: a pipeline that works again has not read yet what it missed."""

from __future__ import annotations

from typing import Any

import pytest

from backend.store.ledger_completeness import ledger_ms
from backend.store.queries.health import ProcessHealth

NOW_MS = 1_000_000


def pipeline(detail: dict[str, Any] | None, age_ms: int = 1_000) -> ProcessHealth:
    return ProcessHealth("pipeline", 1, 0, NOW_MS - age_ms, 2_000, "running", None, detail, 1, age_ms)


@pytest.mark.parametrize(
    ("detail", "age_ms", "known_ms"),
    [
        ({"lag_records": 0, "lag_ms": 0}, 1_000, NOW_MS),
        ({"lag_records": 0, "lag_ms": 0}, 45_000, NOW_MS - 45_000),
        ({"lag_records": 9, "lag_ms": 4_000}, 1_000, NOW_MS - 5_000),
        # It has just started, or was thawed: nobody has told how far it is.
        ({"lag_records": None, "lag_ms": None}, 1_000, NOW_MS - 60_000),
        ({"lag_records": 700, "lag_ms": None}, 1_000, NOW_MS - 60_000),
        # It cannot ask its brokers now; nothing waited ten seconds ago.
        ({"lag_records": None, "lag_ms": None, "caught_up_ms": NOW_MS - 10_000}, 1_000, NOW_MS - 10_000),
        (None, 1_000, NOW_MS),
        (None, 45_000, NOW_MS - 45_000),
    ],
)
def test_the_ledger_is_known_as_far_as_the_pipeline_has_read(
    detail: dict[str, Any] | None, age_ms: int, known_ms: int
) -> None:
    assert ledger_ms(pipeline(detail, age_ms), NOW_MS, NOW_MS - 60_000) == known_ms
