"""The rules file: YAML that names every incident and only numbers that /metrics has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from backend.control.alerts.prometheus_rules import BLIND_FOR, OPEN_METRIC, OWN_ALERTS, rules_file
from backend.control.findings.catalogue import SLUGS, runbook

ROOT = Path(__file__).parents[4]
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
        "ebbline_receiver_up",
        "ebbline_rounds_judged",
    }


def test_the_product_s_own_blindness_has_alerts() -> None:
    expressions = {own.name: own.expression for own in OWN_ALERTS}
    assert expressions["EbblineAway"] == "absent(ebbline_cluster_up)"
    assert expressions["EbblineReceiverAway"] == "ebbline_receiver_up == 0"


def test_no_alert_of_our_own_fires_beside_that_of_a_finding() -> None:
    """A cluster, database, pipeline or observer that is away is a finding, as absent as they with a dead backend."""
    for up in ("database_up", "pipeline_up", "brokers_answer", "cluster_up =="):
        assert not any(up in own.expression for own in OWN_ALERTS)
    assert {"observer-down", "cluster-away", "database-away", "pipeline-down"} <= set(SLUGS)


def test_alerts_of_our_own_have_a_page_that_exists_and_names_them() -> None:
    (group,) = yaml.safe_load(rules_file(PUBLIC_URL))["groups"]
    for rule in group["rules"][: len(OWN_ALERTS)]:
        path = rule["annotations"]["runbook"].rsplit("?", 1)[-1]
        path = f"docs/runbooks/{path.removeprefix('runbook=')}.md" if path.startswith("runbook=") else path
        page, _, anchor = path.partition("#")
        text = (ROOT / page).read_text()
        assert rule["alert"] in text
        assert not anchor or f"### {rule['alert']}\n" in text
        assert anchor in ("", rule["alert"].lower())


def test_the_page_about_alerts_says_which_are_our_own_and_how_long_they_wait() -> None:
    text = (ROOT / "docs/alerts.md").read_text().split("## Prometheus")[1]
    named = set(re.findall(r"`(Ebbline[A-Z]\w+)`", text)) - {"EbblineCopyHung"}
    assert named == {own.name for own in OWN_ALERTS}
    assert f"`for: {BLIND_FOR}`" in text


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
