"""The directories of the voters as the log names them, from record to record."""

from __future__ import annotations

import pytest
from immutables import Map

from backend.engine.raft.voter_directories import VoterDirectoryHistory

OLD, NEW, OTHER = (bytes(15) + name for name in (b"o", b"n", b"x"))


@pytest.mark.parametrize(
    ("records", "superseded"),
    [
        ([{1: OTHER}], False),
        ([{2: OLD}], False),
        ([{2: OLD}, {2: NEW}], True),
        # Two voters' directories were noted at one moment, and the second record left the first one out.
        ([{2: OLD}, {1: OTHER}], False),
        ([{2: OLD}, {2: NEW}, {1: OTHER}], True),
    ],
)
def test_a_directory_is_superseded_by_another_one_and_by_nothing_else(
    records: list[dict[int, bytes]], superseded: bool
) -> None:
    history = VoterDirectoryHistory()
    for offset, directories in enumerate(records):
        history.add(offset, Map(directories))
    assert history.is_superseded(2, OLD) is superseded
