"""Findings as rows: all of them, and what the product does not see."""

from __future__ import annotations

from app.components.cluster import finding_rows
from app.components.cluster.alerts import Alert
from tests.unit.app.components.cluster.test_alerts import finding


def test_every_finding_is_a_row_with_what_to_do_and_its_cause() -> None:
    away = finding("broker-away", "broker 3", action="Start it again.")
    explained = finding("offline", "orders-0", cause_slug="broker-away", cause_object="broker 3")
    muted = finding("copy-slow", "orders-1", muted_until_ms=9)
    blind = Alert("pipeline-down", "ebbline", "critical", "It is down", "Remote figures stand still. Since noon.")
    frame = finding_rows.frame([away, explained, muted], lambda at_ms: f"at {at_ms}", [blind])
    assert list(frame["object"]) == ["ebbline", "broker 3", "orders-0", "orders-1"]
    assert frame["why"].iloc[0] == "Remote figures stand still. Since noon."
    assert frame["do"].iloc[1] == "Start it again."
    assert list(frame["explained by"]) == ["", "", "broker-away of broker 3", ""]
    assert list(frame["muted until"]) == ["", "", "", "at 9"]
    assert frame["since"].iloc[1] == f"at {away.opened_ms}"
