"""Each scenario of KIP-405 plays as its transcript says, in both modes of overlapping segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.kip_405 import OVERLAPS, SCENARIOS, golden_path, transcript


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_scenario_plays_as_its_transcript_says(tmp_path: Path, name: str, overlap: str) -> None:
    assert transcript(name, overlap, tmp_path) == golden_path(name, overlap).read_text()
