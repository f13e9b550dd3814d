"""A few incidents on one embedded cluster, for each `make test`: they keep their order and lose their long pauses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.incidents.catalogue import INCIDENTS
from tests.incidents.expectations import Incident, Where
from tests.incidents.judge import judge
from tests.incidents.player import Player
from tests.incidents.results import result_of
from tests.incidents.rigs import Rig
from tests.incidents.runs import new_rig, report

QUICK = [incident for incident in INCIDENTS if incident.quick]
pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder: Path = tmp_path_factory.mktemp("incidents")
    made = new_rig(Where.EMBEDDED, folder, QUICK[0].form)
    yield made
    made.close()


@pytest.mark.parametrize("incident", QUICK, ids=lambda incident: incident.name)
def test_it_is_found_and_nothing_else_is(rig: Rig, incident: Incident) -> None:
    timeline = Player(rig, incident, quick=True).play()
    verdict = judge(incident, timeline)
    rig.tidy()
    assert verdict.passed, report(result_of(incident, Where.EMBEDDED, "", verdict))
