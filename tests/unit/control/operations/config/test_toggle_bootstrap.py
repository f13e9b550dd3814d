"""The toggle's matrix, checks, lines and way back, over every combination of levels."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from backend.control.operations.config.config_precedence import effective, with_change
from backend.control.operations.config.toggle_bootstrap import (
    SETTING,
    ToggleBootstrap,
    ToggleInputs,
    checks,
    cli,
    diff_lines,
    effective_matrix,
    level_now,
)
from backend.control.operations.lifecycle.plan_draft import CheckOutcome
from backend.protocol.config_enums import ConfigSource

ESTIMATE = {"blocked": 0, "stale": False}
VALUES = (None, "true", "false")


def inspect(own: str | None = None, default: str | None = None) -> dict[str, Any]:
    return {
        "levels": {
            "DYNAMIC_BROKER_CONFIG": own,
            "DYNAMIC_DEFAULT_BROKER_CONFIG": default,
            "STATIC_BROKER_CONFIG": None,
            "DEFAULT_CONFIG": "false",
        }
    }


def snapshot(default: str | None = None, **brokers: dict[str, Any]) -> dict[str, Any]:
    return {"cluster_default": default, "brokers": {name.removeprefix("b"): broker for name, broker in brokers.items()}}


@pytest.mark.parametrize(("own", "default", "static"), list(product(VALUES, VALUES, VALUES)))
def test_the_first_level_that_is_set_wins(own: str | None, default: str | None, static: str | None) -> None:
    levels = {
        "DYNAMIC_BROKER_CONFIG": own,
        "DYNAMIC_DEFAULT_BROKER_CONFIG": default,
        "STATIC_BROKER_CONFIG": static,
        "DEFAULT_CONFIG": "false",
    }
    wins = next(value for value in (own, default, static, "false") if value is not None)
    assert effective(levels).value == wins
    assert effective(with_change(levels, ConfigSource.DYNAMIC_BROKER_CONFIG, "true")).value == "true"


def test_a_brokers_own_false_keeps_it_out_of_the_cluster_default() -> None:
    state = snapshot(b1=inspect(), b2=inspect(own="false"))
    rows = effective_matrix(ToggleInputs(enable=True), state)
    assert [(row["broker_id"], row["before"], row["after"]) for row in rows] == [
        (1, "false", "true"),
        (2, "false", "false"),
    ]
    plan_checks = {check.name: check for check in checks(ToggleInputs(enable=True), state, rows, ESTIMATE)}
    assert plan_checks["own-values"].outcome is CheckOutcome.WARNING
    assert "Broker 2" in plan_checks["own-values"].sentence


def test_one_broker_changes_only_itself() -> None:
    inputs = ToggleInputs(scope="broker", broker_id=2, enable=True)
    rows = effective_matrix(inputs, snapshot(b1=inspect(), b2=inspect()))
    assert [row["after"] for row in rows] == ["false", "true"]
    assert cli(inputs).endswith(f"--entity-name 2 --alter --add-config {SETTING}=true")


def test_the_lines_are_those_of_the_dialog() -> None:
    inputs = ToggleInputs(enable=True)
    state = snapshot(b1=inspect())
    lines = diff_lines(inputs, level_now(inputs, state), effective_matrix(inputs, state))
    assert lines == [
        f"− {SETTING} = false (default)",
        f"+ {SETTING} = true (cluster default, no restart)",
    ]


@pytest.mark.parametrize("default", VALUES)
@pytest.mark.parametrize("enable", [None, True, False])
def test_the_way_back_leads_to_where_it_began(default: str | None, enable: bool | None) -> None:
    inputs = ToggleInputs(enable=enable)
    before = snapshot(default, b1=inspect(default=default))
    after = snapshot(inputs.value, b1=inspect(default=inputs.value))
    back = ToggleInputs.model_validate(ToggleBootstrap().revert_inputs(inputs, before))
    assert back.value == default
    assert effective_matrix(back, after)[0]["after"] == effective_matrix(inputs, before)[0]["before"]


def test_a_change_that_changes_nothing_is_refused() -> None:
    state = snapshot("true", b1=inspect(default="true"))
    inputs = ToggleInputs(enable=True)
    plan_checks = checks(inputs, state, effective_matrix(inputs, state), ESTIMATE)
    assert (plan_checks[0].name, plan_checks[0].outcome) == ("change", CheckOutcome.REFUSED)


@pytest.mark.parametrize(
    ("problem", "inputs", "outcome"),
    [
        ("unsupported", ToggleInputs(scope="broker", broker_id=2, enable=True), CheckOutcome.REFUSED),
        ("unsupported", ToggleInputs(enable=True), CheckOutcome.WARNING),
        ("unreachable", ToggleInputs(scope="broker", broker_id=2, enable=True), CheckOutcome.REFUSED),
        ("unreachable", ToggleInputs(enable=True), CheckOutcome.WARNING),
    ],
)
def test_a_broker_that_is_too_old_or_away_stops_its_own_change_only(
    problem: str, inputs: ToggleInputs, outcome: CheckOutcome
) -> None:
    state = snapshot(b1=inspect(), b2={"levels": None, "problem": problem})
    plan_checks = checks(inputs, state, effective_matrix(inputs, state), ESTIMATE)
    name = "support" if problem == "unsupported" else "reach"
    assert next(check.outcome for check in plan_checks if check.name == name) is outcome


def test_a_cluster_without_the_setting_is_refused() -> None:
    state = snapshot(b1={"levels": None, "problem": "unsupported"})
    inputs = ToggleInputs(enable=True)
    plan_checks = checks(inputs, state, effective_matrix(inputs, state), ESTIMATE)
    assert plan_checks[0].outcome is CheckOutcome.REFUSED
    assert "4.3" in plan_checks[0].sentence


def test_blocked_partitions_are_a_warning_only_when_something_is_turned_on() -> None:
    state = snapshot("true", b1=inspect(default="true"))
    off = ToggleInputs(enable=False)
    names = {c.name for c in checks(off, state, effective_matrix(off, state), {"blocked": 3, "stale": False})}
    assert "blocked-partitions" not in names
    on, state = ToggleInputs(enable=True), snapshot(b1=inspect())
    names = {c.name for c in checks(on, state, effective_matrix(on, state), {"blocked": 3, "stale": False})}
    assert "blocked-partitions" in names


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"enable": "yes"},
        {"enable": 1},
        {"enable": True, "scope": "broker"},
        {"enable": True, "broker_id": 1},
        {"enable": True, "scope": "galaxy"},
        {"enable": True, "surprise": 1},
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ToggleInputs.model_validate(inputs)
