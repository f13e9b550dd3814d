"""The notices that are sent, and the number of open findings: pure decisions over one round's changes."""

from __future__ import annotations

from dataclasses import replace

from backend.control.alerts.notices import NoticeEvent, notices, open_counts
from backend.control.findings.evaluate import Changes
from tests.unit.control.findings.sights import NOW_MS, partition, replica, stored
from tests.unit.control.findings.test_rules import rules

THIN = rules(replicas=[replica(1, local_log_start_offset=999), replica(2)])["thin-leader"]
LOST = rules(partitions=[partition(leader=-1)])["offline"]


def test_what_opens_closes_and_grows_worse_is_told_and_what_stays_is_not() -> None:
    worse = replace(THIN, severity="critical")
    changes = Changes(opened=[LOST], kept=[(stored(THIN, 2), worse)], closed=[stored(THIN, 3)])
    assert [(n.event, n.slug, n.severity) for n in notices(changes, {}, NOW_MS)] == [
        (NoticeEvent.OPENED, "offline", "critical"),
        (NoticeEvent.CHANGED, "thin-leader", "critical"),
        (NoticeEvent.CLOSED, "thin-leader", "warning"),
    ]
    assert notices(Changes(kept=[(stored(THIN), THIN)]), {}, NOW_MS) == []


def test_nobody_is_told_of_what_is_muted_until_the_silence_ends() -> None:
    changes = Changes(opened=[LOST])
    assert notices(changes, {LOST.key: NOW_MS + 1}, NOW_MS) == []
    assert len(notices(changes, {LOST.key: NOW_MS}, NOW_MS)) == 1


def test_open_findings_are_counted_as_they_are_after_the_round() -> None:
    other = replace(THIN, object="orders-1")
    findings = [stored(THIN, 1), stored(other, 2)]
    changes = Changes(opened=[LOST], kept=[(findings[0], replace(THIN, severity="critical"))], closed=[findings[1]])
    assert open_counts(findings, changes, {}, NOW_MS) == {("offline", "critical"): 1, ("thin-leader", "critical"): 1}
    assert open_counts(findings, changes, {THIN.key: NOW_MS + 1}, NOW_MS) == {("offline", "critical"): 1}
