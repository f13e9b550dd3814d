"""The rules on the page Config: their holds, severities, what they explain, and what a form changes."""

from __future__ import annotations

from typing import Any

import pytest

from app.components.config import rule_catalogue
from app.components.config.rule_catalogue import RuleSettingLine
from backend.control.http.rule_catalogue import rule_answers
from tests.ui.conftest import plain

RULES: list[dict[str, Any]] = [rule.model_dump(mode="json") for rule in rule_answers()]
ANSWER: dict[str, Any] = {
    "catalogue": RULES,
    "holds": [
        {"slug": "broker-away", "case": None, "for_s": 4.0, "default_s": 4.0, "reason": "Silent for <b>long."},
        {"slug": "broker-away", "case": "of all", "for_s": 3.0, "default_s": 3.0, "reason": "One message."},
    ],
    "rules": [
        {"slug": "copy-slow", "topics": "logs-*", "for_s": 60.0, "severity": None, "off": False},
        {"slug": "set-aside", "topics": None, "for_s": None, "severity": "critical", "off": True},
    ],
}


def test_every_rule_is_a_line_and_those_that_are_set_come_first() -> None:
    rules = rule_catalogue.lines(ANSWER)
    assert len(rules) == len(RULES)
    assert [rule.slug for rule in rules[:2]] == ["copy-slow", "set-aside"]
    assert rule_catalogue.clause(rules) == f"{len(RULES)} rules · 2 are set, shown first"
    assert rule_catalogue.clause(rule_catalogue.lines(ANSWER | {"rules": []})) == f"{len(RULES)} rules"
    assert rule_catalogue.lines({"run": None}) == []


def test_a_line_says_hold_severity_state_and_what_it_explains() -> None:
    html = rule_catalogue.html(rule_catalogue.lines(ANSWER))
    shown = plain(html)
    assert "copy-slow Copying falls behind logs-* 60 s as the rule says on Anywhere: delete-lag, local-debt" in shown
    assert "set-aside Replica folders are kept that nobody uses all as the rule says ▲ Critical off" in shown
    assert (
        "broker-away A broker does not answer all 4 s 3 s of all as the rule says on Of its broker: below-min-isr, "
        in shown
    )
    assert "Silent for <b>" not in html
    assert "Anywhere, while it cannot be seen: copy-dangling, " in shown
    assert "; Anywhere, where it is not allowed: pipeline-behind, pipeline-down" in shown


def test_the_table_twin_has_a_row_for_each_pattern() -> None:
    frame = rule_catalogue.frame(rule_catalogue.lines(ANSWER))
    slow = frame[frame["rule"] == "copy-slow"]
    assert list(slow["topics"]) == ["all", "logs-*"]
    assert slow["hold_s"].iloc[1] == 60.0
    away = frame[frame["rule"] == "broker-away"].iloc[0]
    assert (away["default_holds"], away["why_those_holds"]) == ("4 s; 3 s of all", "Silent for <b>long. One message.")


@pytest.mark.parametrize(
    ("now", "chosen", "values"),
    [
        (RuleSettingLine(), RuleSettingLine(), {}),
        (RuleSettingLine(), RuleSettingLine(hold_s=0.0), {"for_s": 0.0}),
        (RuleSettingLine(60.0, "notice", True), RuleSettingLine(), {"for_s": None, "severity": None, "off": None}),
        (RuleSettingLine(60.0), RuleSettingLine(60.0, "critical", True), {"severity": "critical", "off": True}),
    ],
)
def test_only_what_differs_is_sent_and_what_is_emptied_is_as_the_rule_says(
    now: RuleSettingLine, chosen: RuleSettingLine, values: dict[str, Any]
) -> None:
    assert rule_catalogue.changes(now, chosen) == values
