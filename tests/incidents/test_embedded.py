"""Every incident of the catalogue on the embedded cluster, but for the quiet hour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.incidents.expectations import Incident, Where
from tests.incidents.runs import Rigs
from tests.incidents.whole import TIMEOUT_S, incidents_of, played_as_it_should_be, rigs_of

pytestmark = pytest.mark.timeout(TIMEOUT_S)


@pytest.fixture(scope="module")
def rigs() -> Iterator[Rigs]:
    yield from rigs_of(Where.EMBEDDED)


@pytest.mark.parametrize("incident", incidents_of(Where.EMBEDDED), ids=lambda incident: incident.name)
def test_it_is_found_and_nothing_else_is(rigs: Rigs, incident: Incident) -> None:
    played_as_it_should_be(incident, Where.EMBEDDED, rigs)
