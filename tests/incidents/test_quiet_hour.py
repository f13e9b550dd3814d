"""The quiet hour, on both clusters: nothing is found that is not there."""

from __future__ import annotations

import pytest

from tests.incidents.catalogue import INCIDENTS
from tests.incidents.expectations import Where
from tests.incidents.runs import Rigs
from tests.incidents.whole import QUIET, played_as_it_should_be

pytestmark = pytest.mark.timeout(6_000)


@pytest.mark.parametrize("where", Where)
def test_an_hour_of_ordinary_work_brings_no_finding(where: Where) -> None:
    (hour,) = (incident for incident in INCIDENTS if incident.name == QUIET)
    with Rigs(where) as rigs:
        played_as_it_should_be(hour, where, rigs)
