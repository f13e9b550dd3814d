"""Findings on a living cluster that is really broken: what opens, what closes, what people do about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control.site import TIERED, ControlSite


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ControlSite]:
    """A site of its own, which the test may break."""
    with ControlSite(tmp_path) as made:
        yield made


def found(site: ControlSite, slug: str, *, state: str = "open") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = site.get(f"/v1/findings?slug={slug}&state={state}")["items"]
    return items


def opens(site: ControlSite, slug: str, *, timeout_s: float = 30) -> dict[str, Any]:
    """The one finding of this rule, once it is open."""
    items = site.wait_until(f"{slug} opens", lambda: found(site, slug), timeout_s)
    assert len(items) == 1, items
    item = items[0]
    assert item["sentence"]
    assert item["action"].endswith(".")
    assert item["evidence"]["sentence"].endswith(".")
    assert (item["closed_ms"], item["acknowledged_ms"]) == (None, None)
    return item


def closes(site: ControlSite, finding: dict[str, Any], *, timeout_s: float = 30) -> None:
    path = f"/v1/findings/{finding['id']}"
    slug = finding["slug"]
    site.wait_until(f"{slug} closes", lambda: site.get(path)["finding"]["closed_ms"] is not None, timeout_s)
    closed = site.get(path)["finding"]
    assert closed["opened_ms"] <= closed["seen_ms"] <= closed["closed_ms"]
    assert finding["id"] not in [item["id"] for item in found(site, slug)]


def test_a_broker_that_dies_is_found_and_its_return_closes_the_finding(own: ControlSite) -> None:
    own.create_topic("solo", partitions=1, replicas=1)
    own.wait_until("it is seen", lambda: own.partitions("solo"))
    leader = own.partitions("solo")[0]["leader"]
    if leader == 1:
        pytest.skip("the controller's broker leads it, which this test must not stop")
    own.cluster.kill_broker(leader)
    away = opens(own, "broker-away")
    assert (away["object"], away["severity"], away["broker_id"]) == (f"broker {leader}", "critical", leader)
    lost = opens(own, "offline")
    assert (lost["object"], lost["topic"], lost["partition"]) == ("solo-0", "solo", 0)
    assert own.get(f"/v1/findings/{lost['id']}")["runbook"] == "docs/runbooks/offline.md"
    own.cluster.start_broker(leader)
    closes(own, away)
    closes(own, lost)
