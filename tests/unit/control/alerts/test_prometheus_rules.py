"""The rules file: YAML that names every incident and only numbers that /metrics has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from backend.control.alerts.prometheus_rules import OPEN_METRIC, OWN_ALERTS, rules_file
from backend.control.findings.catalogue import SLUGS, runbook

PROMTOOL = shutil.which("promtool")
PUBLIC_URL = "https://ebbline.example.org"


def test_every_incident_has_one_alert_with_its_runbook() -> None:
    (group,) = yaml.safe_load(rules_file())["groups"]
    rules = group["rules"]
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) == len(SLUGS) + len(OWN_ALERTS)
    slugs = {match[1]: rule for rule in rules if (match := re.search(r'slug="([a-z-]+)"', rule["expr"]))}
    assert set(slugs) == set(SLUGS)
    assert all(rule["annotations"]["runbook"] == runbook(slug) for slug, rule in slugs.items())
    assert {name for rule in rules for name in re.findall(r"ebbline_\w+", rule["expr"])} == {
        OPEN_METRIC,
        "ebbline_cluster_up",
        "ebbline_database_up",
        "ebbline_pipeline_up",
        "ebbline_receiver_up",
    }


def test_the_product_s_own_blindness_has_alerts() -> None:
    expressions = {own.name: own.expression for own in OWN_ALERTS}
    assert expressions["EbblineAway"] == "absent(ebbline_cluster_up)"
    assert expressions["EbblinePipelineAway"] == "ebbline_pipeline_up == 0"
    assert expressions["EbblineClusterDown"] == "ebbline_cluster_up == 0"


def test_runbooks_are_links_where_the_dashboard_has_an_address() -> None:
    (group,) = yaml.safe_load(rules_file(PUBLIC_URL))["groups"]
    links = {rule["annotations"].get("runbook_url") for rule in group["rules"]} - {None}
    assert links == {f"{PUBLIC_URL}/activity?runbook={slug}" for slug in SLUGS}


@pytest.mark.outside
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is unavailable: on Debian it is in the package prometheus")
@pytest.mark.parametrize("public_url", [None, PUBLIC_URL])
def test_promtool_takes_the_file(public_url: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ebbline.rules.yml"
    path.write_text(rules_file(public_url))
    checked = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(SLUGS) + len(OWN_ALERTS)} rules found" in checked.stdout
