"""A broker that ends after each start, on a real cluster: from the third time on one finding, which lasts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.control.findings import thresholds
from backend.control.findings.thresholds import Thresholds
from tests.control.site import ControlSite


def findings_of(site: ControlSite, *, state: str = "open") -> list[dict[str, Any]]:
    """The findings about broker 3 being away, the newest first."""
    items: list[dict[str, Any]] = site.get(f"/v1/findings?slug=broker-away&state={state}")["items"]
    return [item for item in items if item["object"] == "broker 3"]


def test_a_broker_that_comes_and_goes_is_one_finding_until_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "DEFAULTS", replace(Thresholds(), broker_lived_s=8.0))
    with ControlSite(tmp_path, brokers=3) as site:
        for times in (1, 2, 3):
            site.cluster.kill_broker(3)
            site.wait_until(f"broker 3 is away, time {times}", lambda: findings_of(site))
            site.cluster.start_broker(3)
            if times < 3:
                site.wait_until(f"broker 3 is back, time {times}", lambda: not findings_of(site))
        (third,) = site.wait_until(
            "broker 3 comes and goes", lambda: [f for f in findings_of(site) if "comes and goes" in f["sentence"]]
        )
        assert "away 3 times" in third["evidence"]["sentence"]
        assert "another start changes nothing" in third["action"]
        site.wait_until("it ends once broker 3 stays", lambda: not findings_of(site))
        assert len(findings_of(site, state="closed")) == 3
