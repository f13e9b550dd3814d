"""The state that receivers are to have, and the number of open findings: pure decisions over one round's changes."""

from __future__ import annotations

from dataclasses import replace

from backend.control.alerts.notices import open_alerts, open_counts
from backend.control.findings.evaluate import Changes
from backend.store.maintenance_window import MaintenanceWindow, maintenance_until
from tests.unit.control.findings.rule_cases import rules
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, partition, replica, stored

THIN = rules(replicas=[replica(1, local_log_start_offset=999), replica(2)])["thin-leader"]
LOST = rules(partitions=[partition(leader=-1)])["offline"]


def window(**more: object) -> MaintenanceWindow:
    """An hour around now for everything."""
    row: dict[str, object] = {
        "id": 1,
        "begins_ms": NOW_MS - 30 * MINUTE_MS,
        "ends_ms": NOW_MS + 30 * MINUTE_MS,
        "slug": None,
        "topic": None,
        "broker_id": None,
        "reason": "new disks",
        "created_ms": 0,
        "created_by": "operator",
    }
    return MaintenanceWindow(**row | more)  # type: ignore[arg-type]


def test_the_state_has_what_opened_what_changed_and_what_stayed_and_not_what_closed() -> None:
    other = replace(THIN, object="orders-1")
    findings = [stored(THIN, 1), stored(other, 2)]
    changes = Changes(opened=[LOST], kept=[(findings[0], replace(THIN, severity="critical"))], closed=[findings[1]])
    alerts = open_alerts(findings, changes, {}, (), NOW_MS)
    assert {key: (n.severity, n.opened_ms) for key, n in alerts.open.items()} == {
        THIN.key: ("critical", NOW_MS - MINUTE_MS),
        LOST.key: ("critical", NOW_MS),
    }
    assert open_counts(alerts) == {("offline", "critical"): 1, ("thin-leader", "critical"): 1}


def test_what_is_muted_is_withheld_and_not_counted_until_the_silence_ends() -> None:
    changes = Changes(opened=[LOST])
    muted = open_alerts([], changes, {LOST.key: NOW_MS + 1}, (), NOW_MS)
    assert (dict(muted.open), muted.withheld, open_counts(muted)) == ({}, frozenset({LOST.key}), {})
    assert open_alerts([], changes, {LOST.key: NOW_MS}, (), NOW_MS).open.keys() == {LOST.key}


def test_what_is_in_maintenance_is_withheld_as_well() -> None:
    alerts = open_alerts([stored(THIN)], Changes(opened=[LOST]), {}, [window(slug="offline")], NOW_MS)
    assert (set(alerts.open), set(alerts.withheld)) == ({THIN.key}, {LOST.key})


def test_a_window_covers_a_rule_a_pattern_of_topics_and_a_broker_while_it_holds() -> None:
    of_topic = window(topic="orders*", slug="copy-slow")
    assert of_topic.covers("copy-slow", "orders-eu", 1, NOW_MS)
    assert not of_topic.covers("copy-slow", "logs", 1, NOW_MS)
    assert not of_topic.covers("copy-slow", None, 1, NOW_MS), "what has no topic is in no window of topics"
    assert not of_topic.covers("offline", "orders", 1, NOW_MS)
    of_broker = window(broker_id=2)
    assert (of_broker.covers("x", None, 2, NOW_MS), of_broker.covers("x", None, 3, NOW_MS)) == (True, False)
    assert not of_broker.covers("x", None, 2, of_broker.ends_ms)
    assert not of_broker.covers("x", None, 2, of_broker.begins_ms - 1)


def test_of_several_windows_the_last_end_counts() -> None:
    windows = [window(ends_ms=NOW_MS + 1), window(ends_ms=NOW_MS + 9), window(broker_id=7, ends_ms=NOW_MS + 99)]
    assert maintenance_until(windows, "offline", "orders", None, NOW_MS) == NOW_MS + 9
    assert maintenance_until([], "offline", "orders", None, NOW_MS) is None
