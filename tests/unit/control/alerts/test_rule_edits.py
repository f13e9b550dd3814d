"""Changes of rules in the alerts file: what people wrote stays, and what is in force is what was asked for."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from backend.control.alerts.rule_edits import RuleEdit, RuleEditError, edited
from backend.control.alerts.rule_tables import read_rules

TEXT = """# Ours, since the outage in March.
[receivers.team]
url = "env:TEAM_URL"  # a secret

[rules.copy-slow]
for_s = 60  # nights are slow

[[rules.follower-stuck]]
topics = "logs-*"
stuck_s = 300

[rules.set-aside]
off = true
"""


def rules(text: str) -> dict[str, list[tuple[str | None, Any]]]:
    """Settings by rule, in their order."""
    result: dict[str, list[tuple[str | None, Any]]] = {}
    for s in read_rules(tomllib.loads(text).get("rules", {})).settings:
        values = {"for_ms": s.for_ms, "severity": s.severity, "off": s.off or None, **s.thresholds}
        result.setdefault(s.slug, []).append((s.topics, {k: v for k, v in values.items() if v is not None}))
    return result


def test_a_value_is_changed_in_its_place_and_comments_stay() -> None:
    text = edited(TEXT, RuleEdit("copy-slow", values={"for_s": 90.0, "severity": "notice"}))
    assert rules(text)["copy-slow"] == [(None, {"for_ms": 90_000, "severity": "notice"})]
    assert "for_s = 90  # nights are slow" in text
    for kept in ("# Ours, since the outage in March.", 'url = "env:TEAM_URL"  # a secret', "[rules.set-aside]"):
        assert kept in text


def test_a_pattern_of_topics_counts_before_the_table_for_all() -> None:
    text = edited(TEXT, RuleEdit("copy-slow", "orders-*", {"severity": "critical"}))
    assert rules(text)["copy-slow"] == [("orders-*", {"severity": "critical"}), (None, {"for_ms": 60_000})]
    text = edited(text, RuleEdit("follower-stuck", values={"stuck_s": 45.0}))
    assert rules(text)["follower-stuck"] == [("logs-*", {"stuck_s": 300.0}), (None, {"stuck_s": 45.0})]
    text = edited(text, RuleEdit("follower-stuck", "logs-*", {"stuck_s": 400.0}))
    assert rules(text)["follower-stuck"] == [("logs-*", {"stuck_s": 400.0}), (None, {"stuck_s": 45.0})]


def test_a_table_that_says_nothing_any_more_goes() -> None:
    text = edited(TEXT, RuleEdit("set-aside", values={"off": None}))
    assert "set-aside" not in rules(text)
    text = edited(text, RuleEdit("follower-stuck", "logs-*", {"stuck_s": None}))
    text = edited(text, RuleEdit("copy-slow", values={"for_s": None}))
    assert rules(text) == {}
    assert "[receivers.team]" in text


def test_a_file_is_begun_and_taken_back() -> None:
    text = edited("", RuleEdit("disk-runway", values={"warning_share": 0.9}))
    assert rules(text) == {"disk-runway": [(None, {"disk_warning_share": 0.9})]}
    assert edited(text, RuleEdit("disk-runway", values={"warning_share": None})).strip() == ""


@pytest.mark.parametrize("text", ["rules = 1", "rules = {copy-slow = {for_s = 1}}", "[rules]\ncopy-slow = 3", "[rules"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(RuleEditError, match="edit the file by hand"):
        edited(text, RuleEdit("copy-slow", values={"for_s": 2.0}))
