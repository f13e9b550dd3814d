"""Lives of a cluster under faults, each from one seed: the second share of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.effort import effort
from tests.simulation.seeds import SOAK_TIMEOUT_S, play_share


@pytest.mark.timeout(effort(900, SOAK_TIMEOUT_S))
def test_no_property_is_violated_whatever_fails(record_property: Any) -> None:
    play_share(1, record_property)
