"""The rules file: YAML that names every incident and only numbers that /metrics has."""

from __future__ import annotations

import re

import yaml

from backend.control.alerts.prometheus_rules import OPEN_METRIC, rules_file
from backend.control.findings.catalogue import SLUGS, runbook


def test_every_incident_has_one_alert_with_its_runbook() -> None:
    (group,) = yaml.safe_load(rules_file())["groups"]
    rules = group["rules"]
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) == len(SLUGS) + 2
    slugs = {match[1]: rule for rule in rules if (match := re.search(r'slug="([a-z-]+)"', rule["expr"]))}
    assert set(slugs) == set(SLUGS)
    assert all(rule["annotations"]["runbook"] == runbook(slug) for slug, rule in slugs.items())
    assert {name for rule in rules for name in re.findall(r"ebbline_\w+", rule["expr"])} == {
        OPEN_METRIC,
        "ebbline_cluster_up",
    }
