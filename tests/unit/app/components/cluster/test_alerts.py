"""The rules behind "Needs attention": when each speaks, how badly, and when it keeps silent."""

from __future__ import annotations

from typing import Any

import pytest

from app.components.cluster import alerts
from app.components.cluster.alerts import Alert, problems
from app.components.cluster.health_text import BROKERS_SILENT, Blindness
from backend.store.queries.overview import FindingRow
from backend.tiering.pending import PendingReason
from backend.tiering.segment_state import SegmentState
from tests.unit.app.overview_rows import NOW_MS, broker, disk, facts, ledger, partition, replica, segment, topic

MINUTE_MS = 60_000


def only(**more: Any) -> Alert:
    """The one problem these facts give."""
    [problem] = problems(facts(**more))
    return problem


def test_a_healthy_cluster_has_no_problem() -> None:
    assert problems(facts()) == []


def test_a_copy_is_hung_beyond_three_times_its_p99_and_a_minute() -> None:
    key = ("orders", 0)
    assert problems(facts(open_segments=[segment(age_ms=MINUTE_MS)], p99_ms={key: 1_000})) == []
    assert problems(facts(open_segments=[segment(age_ms=5 * MINUTE_MS)], p99_ms={key: 2 * MINUTE_MS})) == []
    alert = only(open_segments=[segment(age_ms=175 * MINUTE_MS)], p99_ms={key: 48_000})
    assert (alert.slug, alert.severity, alert.partition) == ("copy-hung", "critical", "orders-0")
    assert alert.title == "Copy hung: orders-0 on broker 1"
    assert alert.detail == "Open for 2 h 55 m, 219× its p99"


def test_a_copy_without_a_known_p99_is_hung_after_a_minute_and_says_what_is_not_known() -> None:
    assert only(open_segments=[segment(age_ms=MINUTE_MS + 1)]).detail == "Open for 1 m, p99 not known yet"


@pytest.mark.parametrize(
    ("row", "now"),
    [
        (partition(leader=2), "broker 2 leads now"),
        (partition(topic_id="a later topic"), "broker 1 leads now"),
        (partition("other"), "its partition is gone"),
    ],
)
def test_a_copy_whose_author_does_not_lead_any_more_is_dangling(row: Any, now: str) -> None:
    alert = only(open_segments=[segment(age_ms=2 * MINUTE_MS)], partitions=[row])
    assert (alert.slug, alert.severity) == ("copy-dangling", "notice")
    assert alert.detail.endswith(now)


def test_the_ledger_is_judged_as_of_when_it_was_known() -> None:
    late = segment(age_ms=10 * MINUTE_MS)
    assert problems(facts(open_segments=[late], ledger_ms=NOW_MS - 9 * MINUTE_MS - 30_000)) == []


@pytest.mark.parametrize(
    ("phase", "for_ms", "severity", "slug"),
    [
        ("FETCHING", 5_000, "notice", "follower-behind"),
        ("FETCHING", MINUTE_MS, "warning", "follower-behind"),
        ("WAITING_FOR_METADATA", 5_000, "notice", "follower-behind"),
        ("WAITING_FOR_METADATA", MINUTE_MS, "critical", "follower-stuck"),
        ("DELAYED", MINUTE_MS, "critical", "follower-stuck"),
        ("FAILED", 1_000, "critical", "follower-stuck"),
        (None, MINUTE_MS, "warning", "follower-behind"),
        ("A phase of a later version", MINUTE_MS, "warning", "follower-behind"),
    ],
)
def test_followers_are_stuck_only_in_phases_without_progress(
    phase: str | None, for_ms: int, severity: str, slug: str
) -> None:
    alert = only(replicas_behind=[replica(phase=phase, phase_since_ms=NOW_MS - for_ms)])
    assert (alert.severity, alert.slug) == (severity, slug)


def test_a_followers_evidence_is_told_in_its_words() -> None:
    replica_row = replica(
        phase="DELAYED", phase_since_ms=NOW_MS - 8 * MINUTE_MS, evidence={"sentence": "3 attempts failed."}
    )
    assert only(replicas_behind=[replica_row]).detail == "3 attempts failed. For 8 m."
    assert only(replicas_behind=[replica()]).detail == "Fetching, not in the ISR. For 5 s."


def test_pending_beyond_local_retention_is_told_unless_its_copy_is_hung() -> None:
    limited = [topic(local_retention_bytes="150")]
    alert = only(topics=limited)
    assert (alert.slug, alert.severity) == ("copy-slow", "warning")
    assert alert.detail == "200 B not uploaded; local retention is 150 B, so nothing local can go"
    both = problems(facts(topics=limited, open_segments=[segment(age_ms=2 * MINUTE_MS)]))
    assert [problem.slug for problem in both] == ["copy-hung"]


def test_a_deletion_is_overdue_after_a_minute() -> None:
    state = SegmentState.DELETE_SEGMENT_STARTED
    assert problems(facts(open_segments=[segment(state=state, delete_started_ms=NOW_MS - 59_000)])) == []
    alert = only(open_segments=[segment(state=state, delete_started_ms=NOW_MS - 2 * MINUTE_MS)])
    assert (alert.slug, alert.detail) == ("delete-lag", "100 B asked to be removed 2 m ago")


def test_silent_fenced_and_full_brokers_are_told() -> None:
    away = broker(2, reachable=False, error="Connection refused.", seen_ms=NOW_MS - 9_000)
    alert = only(brokers=[broker(1), away, broker(3)], partitions=[partition(leader=2)])
    assert alert.title == "Broker 2 does not answer"
    assert alert.detail == "Silent for 9 s. Connection refused. Leads 1 partition."
    assert only(brokers=[broker(1, fenced=True)]).slug == "broker-fenced"
    full = only(brokers=[broker(1, log_dirs=[disk(0.96)])])
    assert (full.title, full.severity) == ("Disk 96% full: broker 1", "critical")
    offline = only(brokers=[broker(1, log_dirs=[disk(0.1, error="KAFKA_STORAGE_ERROR")])])
    assert (offline.slug, offline.detail) == ("disk-offline", "KAFKA_STORAGE_ERROR")


def test_a_partition_without_leader_is_critical() -> None:
    alert = only(partitions=[partition(leader=-1, isr=[3])])
    assert (alert.severity, alert.title) == ("critical", "No leader: orders-0")
    assert "Last in sync: broker 3." in alert.detail


def test_leaders_that_still_read_metadata_are_noticed_once_a_broker() -> None:
    unknown: dict[str, Any] = {
        "pending_reason": PendingReason.LEADER_DOES_NOT_KNOW,
        "earliest_pending_upload_offset": -1,
    }
    alert = only(partitions=[partition(index=index, **unknown) for index in range(3)])
    assert (alert.slug, alert.severity, alert.object) == ("metadata-loading", "notice", "broker 1")
    assert "for 3 partitions" in alert.detail


@pytest.mark.parametrize(
    ("replication", "brokers", "unsafe"), [(1, 3, True), (2, 2, False), (1, 1, False), (3, 5, False)]
)
def test_the_metadata_topic_needs_three_replicas_or_as_many_as_there_are_brokers(
    replication: int, brokers: int, unsafe: bool
) -> None:
    row = topic(alerts.METADATA_TOPIC, replication=replication)
    result = problems(facts(topics=[row], brokers=[broker(number) for number in range(brokers)]))
    assert [alert.slug for alert in result] == (["metadata-unsafe"] if unsafe else [])


def test_quarantined_records_and_illegal_events_are_told() -> None:
    result = problems(facts(ledger=ledger(quarantined_records=1, illegal_events=4)))
    assert [alert.title for alert in result] == [
        "1 record of __remote_log_metadata quarantined",
        "4 events against the segment life cycle",
    ]


def test_blindness_is_first_and_a_silent_broker_is_told_once() -> None:
    blind = [
        Blindness("pipeline-down", "warning", "Pipeline down.", "Old.", "No Java."),
        Blindness(BROKERS_SILENT, "warning", "1 of 3", ""),
    ]
    result = problems(facts(blindness=blind, brokers=[broker(1, reachable=False)]))
    assert [alert.slug for alert in result] == ["pipeline-down", "broker-away"]
    assert (result[0].title, result[0].detail) == ("Pipeline down", "Old. No Java.")


def test_a_stored_finding_replaces_the_rule_of_the_same_thing() -> None:
    stored = FindingRow("copy-hung", "orders-0", 0, "warning", "Stored.", {"sentence": "Why."}, NOW_MS, None)
    alert = only(open_segments=[segment(age_ms=9 * MINUTE_MS)], findings=[stored])
    assert (alert.title, alert.detail, alert.severity) == ("Stored.", "Why.", "warning")


def test_a_stored_finding_leads_to_its_partition() -> None:
    about: dict[str, Any] = {"topic": "orders", "partition": 3}
    stored = FindingRow("thin-leader", "orders-3", 0, "warning", "Thin.", None, NOW_MS, None, **about)
    assert only(findings=[stored]).partition == "orders-3"


def test_a_muted_finding_is_not_shown_and_no_rule_speaks_for_it() -> None:
    late = [segment(age_ms=9 * MINUTE_MS)]
    muted = FindingRow("copy-hung", "orders-0", 0, "critical", "Hung.", None, NOW_MS, None, muted_until_ms=NOW_MS + 1)
    assert problems(facts(open_segments=late, findings=[muted])) == []
    over = FindingRow("copy-hung", "orders-0", 0, "critical", "Hung.", None, NOW_MS, None, muted_until_ms=NOW_MS)
    assert only(open_segments=late, findings=[over]).title == "Hung."


def test_the_worst_come_first_and_are_counted() -> None:
    result = problems(
        facts(
            replicas_behind=[replica(), replica(broker_id=3, phase="FAILED")],
            brokers=[broker(1, fenced=True)],
        )
    )
    assert [alert.severity for alert in result] == ["critical", "warning", "notice"]
    assert alerts.summary(result) == "2 problems, 1 notice · worst first"
    assert alerts.summary(result[:1]) == "1 problem"
    assert alerts.summary([]) == ""
