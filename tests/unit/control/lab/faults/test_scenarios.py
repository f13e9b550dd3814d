"""Every scenario of the lab can be begun, watched and read about."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.links import NAMES
from backend.control.lab.faults import fault_scripts as scripts
from backend.control.lab.faults.fault_lab import NO_FAULT_TARGET, FaultLab
from backend.control.lab.faults.scenarios import BY_SLUG, SCENARIOS, Cure
from backend.control.operations.operation_errors import Conflict

RUNBOOKS = Path(__file__).resolve().parents[5] / "docs" / "runbooks"


@pytest.mark.parametrize("slug", list(BY_SLUG))
def test_a_scenario_has_a_script_a_page_to_watch_and_a_runbook(slug: str) -> None:
    scenario = BY_SLUG[slug]
    assert slug in scripts.INJECT
    assert scenario.watch_page in NAMES
    assert scenario.runbook is None or (RUNBOOKS / f"{scenario.runbook}.md").is_file()
    assert 60 <= scenario.heals_after_s <= 900
    assert (scenario.cure is Cure.ITSELF) == (slug in scripts.ENDS_BY_ITSELF)


def test_the_scenarios_are_those_of_the_design_and_the_scripts_have_no_others() -> None:
    assert set(scripts.INJECT) == {scenario.slug for scenario in SCENARIOS}
    assert set(scripts.TAKES_BROKER) | set(scripts.BROKERS_NEEDED) <= set(scripts.INJECT)


def test_without_brokers_of_its_own_the_lab_breaks_nothing() -> None:
    lab = FaultLab(gateway=None, fault_target=None, busy=lambda: False)  # type: ignore[arg-type]  # never asked
    assert (lab.refusal, lab.killable) == (NO_FAULT_TARGET, [])
    with pytest.raises(Conflict, match="without --process-per-broker"):
        lab.inject("store-away", None, "ann")
    with pytest.raises(Conflict, match="nothing to heal"):
        lab.clear()
