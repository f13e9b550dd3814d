"""The catalogue fits together: names, slugs, labels, causes, steps that a rig can do, reasons for what is left out."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest

from backend.control.findings.catalogue import SLUGS
from tests.incidents.catalogue import INCIDENTS
from tests.incidents.expectations import EXPLAINS, NEW_SLUGS, SEVERITIES, Incident, Where
from tests.incidents.rigs import Rig
from tests.incidents.steps import PAUSE, Phase

KNOWN = {*SLUGS, *NEW_SLUGS}
PLAYED = [incident for incident in INCIDENTS if incident.on]


def test_each_name_stands_for_one_incident() -> None:
    assert [name for name, times in Counter(incident.name for incident in INCIDENTS).items() if times > 1] == []
    assert len(INCIDENTS) >= 60


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_slugs_severities_and_causes_exist(incident: Incident) -> None:
    for expected in incident.expected:
        assert set(expected.slug.split("|")) <= KNOWN
        assert {*expected.severity.split("|"), expected.at_worst or SEVERITIES[0]} <= set(SEVERITIES)
        assert expected.objects
        assert expected.says
        assert expected.action
        if expected.under:
            assert expected.slug in EXPLAINS[expected.under]
            assert expected.under in {other.slug for other in incident.expected}
    for allowed in incident.allowed:
        assert allowed.slug in KNOWN
        assert allowed.severity in SEVERITIES
        assert allowed.because


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_where_it_is_not_played_has_a_reason(incident: Incident) -> None:
    assert incident.why_not.keys() == set(Where) - incident.on


@pytest.mark.parametrize("incident", PLAYED, ids=lambda incident: incident.name)
def test_steps_can_be_carried_out_by_a_rig(incident: Incident) -> None:
    phases = [step.phase for step in incident.steps]
    assert phases == sorted(phases, key=list(Phase).index), "prepared, then broken, then mended"
    assert Phase.BREAK in phases
    for step in incident.steps:
        if step.operation == PAUSE:
            assert step.arguments.keys() == {"seconds"}
            continue
        operation = getattr(Rig, step.operation)
        inspect.signature(operation).bind(None, **step.arguments)


@pytest.mark.parametrize("incident", PLAYED, ids=lambda incident: incident.name)
def test_times_count_from_labels_that_stand_at_one_step(incident: Incident) -> None:
    labels = Counter(step.label for step in incident.steps if step.label)
    for expected in incident.expected:
        for label in filter(None, (expected.since, expected.cleared_from)):
            assert labels[label] == 1, label
        if expected.cleared_within_s is not None and not expected.cleared_from:
            assert Phase.MEND in {step.phase for step in incident.steps}


def test_every_explanation_is_of_a_known_cause() -> None:
    assert EXPLAINS.keys() <= KNOWN
    assert {slug for explained in EXPLAINS.values() for slug in explained} - {"*"} <= KNOWN


def test_the_quick_ones_are_played_on_the_embedded_cluster_of_the_common_form() -> None:
    quick = [incident for incident in INCIDENTS if incident.quick]
    assert len(quick) >= 3
    assert len({incident.form for incident in quick}) == 1
    assert all(Where.EMBEDDED in incident.on and not incident.spoils for incident in quick)
