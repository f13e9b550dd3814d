"""Each scenario of KIP-405 plays as its transcript says, in both modes of overlapping segments."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.scenarios.kip_405 import SCENARIOS, golden_path, transcript

# Without a change of leaders no two segments hold the same offset.
WITHOUT_OVERLAPS = ("1-new-empty-follower", "1-new-empty-follower-last-tiered", "2-out-of-sync-follower")
PLAYS = [
    (name, overlap)
    for name in SCENARIOS
    for overlap in ("kip", "kafka")
    if overlap == "kip" or name not in WITHOUT_OVERLAPS
]


@pytest.mark.parametrize(("name", "overlap"), PLAYS)
def test_the_scenario_plays_as_its_transcript_says(tmp_path: Path, name: str, overlap: str) -> None:
    played = transcript(name, overlap, tmp_path).splitlines()
    written = golden_path(name, overlap).read_text().splitlines()
    assert played == written, "\n".join(unified_diff(written, played, "transcript", "played", lineterm=""))
