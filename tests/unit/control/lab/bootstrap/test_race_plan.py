"""The parts of the race's topic add up for every size and share that is taken."""

from __future__ import annotations

import pytest

from backend.control.lab.bootstrap.race_plan import (
    BATCH_BYTES_MAX,
    PERCENT_MAX,
    PERCENT_MIN,
    PERCENT_STEP,
    SIZE_BYTES_MAX,
    SIZE_BYTES_MIN,
    BootstrapPlan,
    refusal,
)


@pytest.mark.parametrize("size_bytes", [SIZE_BYTES_MIN, 731_000_000, 2_000_000_000, SIZE_BYTES_MAX])
@pytest.mark.parametrize("percent", range(PERCENT_MIN, PERCENT_MAX + 1, PERCENT_STEP))
def test_the_parts_add_up(size_bytes: int, percent: int) -> None:
    assert refusal(size_bytes, percent) is None
    plan = BootstrapPlan(size_bytes, percent)
    assert plan.segment_bytes >= 1 << 20, "Kafka takes no smaller segments"
    assert 0 < plan.batch_bytes <= BATCH_BYTES_MAX
    # The first part of the local log is all that is left of the beginning when its segments are deleted.
    assert plan.slack_bytes + plan.tiered_bytes + plan.rest_bytes == size_bytes
    assert plan.rest_bytes > 0
    assert plan.total_bytes == plan.head_bytes + size_bytes - plan.slack_bytes
    # Closed segments end up to a batch early; all of that still fits into the active one while copies are waited for.
    closed = (plan.head_bytes + plan.tiered_bytes) // plan.segment_bytes
    assert plan.slack_bytes + closed * plan.batch_bytes < plan.segment_bytes * 90 // 100


@pytest.mark.parametrize(
    ("size_bytes", "percent", "sentence"),
    [
        (SIZE_BYTES_MIN - 1, 85, "The size is between"),
        (SIZE_BYTES_MAX + 1, 85, "The size is between"),
        (SIZE_BYTES_MIN, 0, "The tiered share"),
        (SIZE_BYTES_MIN, 100, "The tiered share"),
        (SIZE_BYTES_MIN, 86, "whole segments"),
    ],
)
def test_what_makes_no_race_is_refused_in_one_sentence(size_bytes: int, percent: int, sentence: str) -> None:
    result = refusal(size_bytes, percent)
    assert result is not None
    assert sentence in result
    assert result.endswith(".")
