"""The matrix as tests of the soak: one test an incident, on rigs that incidents of one form share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.incidents.catalogue import INCIDENTS
from tests.incidents.expectations import Incident, Where
from tests.incidents.results import commit_id
from tests.incidents.runs import Rigs, in_order, play, report

QUIET = "quiet-hour"
# The longest, but for the quiet hour: cluster-away with its 2 minutes, on a rig that is made for it.
TIMEOUT_S = 1_200


def incidents_of(where: Where) -> list[Incident]:
    """All but the quiet hour and its short form."""
    return in_order([incident for incident in INCIDENTS if not incident.name.startswith("quiet-")], where)


def rigs_of(where: Where) -> Iterator[Rigs]:
    with Rigs(where) as rigs:
        yield rigs


def played_as_it_should_be(incident: Incident, where: Where, rigs: Rigs) -> None:
    result = play(incident, where, rigs, commit_id())
    if result.not_played:
        pytest.skip(result.not_played)
    assert result.passed, report(result)
