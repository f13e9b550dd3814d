"""The lines of "Needs attention": which findings stand there, in which order, and where they lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.components.cluster.alerts import DRAWN_MAX, EXPLAINED_MAX, Alert, not_drawn, problems, summary
from app.components.cluster.health_text import BROKERS_SILENT, Blindness
from backend.store.maintenance_window import MaintenanceWindow
from backend.store.queries.overview import FindingRow
from tests.unit.app.overview_rows import NOW_MS


def finding(slug: str, object_: str = "orders-0", severity: str = "warning", **more: Any) -> FindingRow:
    row: dict[str, Any] = {"slug": slug, "object": object_, "severity": severity, "sentence": "Something."}
    row |= {
        "evidence": {"sentence": "Why."},
        "action": "Do.",
        "opened_ms": NOW_MS - 38_000,
        "seen_ms": NOW_MS,
        "closed_ms": None,
    }
    return FindingRow(**row | more)


def shown(
    *findings: FindingRow, blindness: Sequence[Blindness] = (), windows: Sequence[MaintenanceWindow] = ()
) -> list[Alert]:
    return problems(blindness, findings, windows, NOW_MS)


def test_without_a_finding_nothing_needs_attention() -> None:
    assert shown() == []
    assert summary([]) == ""


def test_a_finding_is_shown_in_its_words() -> None:
    [alert] = shown(finding("copy-hung", severity="critical", topic="orders", partition=0))
    assert (alert.severity, alert.title, alert.detail, alert.action) == ("critical", "Something.", "Why.", "Do.")
    assert alert.age_ms == 38_000
    assert (alert.link, alert.partition) == ("Open copy", "orders-0")
    assert shown(finding("thin-leader", evidence=None))[0].detail == ""
    assert shown(finding("thin-leader", severity="a severity of a later version"))[0].severity == "warning"


def test_a_finding_that_is_not_seen_now_says_when_it_was() -> None:
    [alert] = shown(finding("divergence", seen_ms=NOW_MS - 25_001))
    assert alert.detail == "Why. Last seen 25 s ago."
    [alert] = shown(finding("divergence", seen_ms=NOW_MS - 25_000))
    assert alert.detail == "Why."


def test_a_finding_leads_to_its_partition_or_to_the_page_where_one_acts() -> None:
    about: dict[str, Any] = {"topic": "orders", "partition": 3}
    assert [(a.link, a.partition) for a in shown(finding("thin-leader", **about))] == [("Open partition", "orders-3")]
    assert [(a.page, a.section) for a in shown(finding("set-aside", "broker 1"))] == [("config", "brokers")]
    assert [(a.page, a.link) for a in shown(finding("elr-off", "cluster"))] == [("", "")]


def test_blindness_is_first_and_is_said_once() -> None:
    blind = [
        Blindness("pipeline-down", "warning", "Pipeline down.", "Old.", "No Java."),
        Blindness(BROKERS_SILENT, "warning", "1 of 3", ""),
    ]
    result = shown(finding("pipeline-down", "pipeline"), finding("broker-away", "broker 2"), blindness=blind)
    assert [alert.slug for alert in result] == ["pipeline-down", "broker-away"]
    assert (result[0].title, result[0].detail) == ("Pipeline down", "Old. No Java.")


def test_a_cluster_that_does_not_answer_is_one_row() -> None:
    """It explains that nothing is sampled; muted it does not, and somebody has to see that nothing is live."""
    blind = [
        Blindness("samples-stale", "critical", "Not live since 12:00.", "The observer has no newer offsets."),
        Blindness("pipeline-waiting", "warning", "The pipeline waits.", "The ledger does not grow."),
    ]
    away = finding("cluster-away", "cluster", "critical")
    assert [alert.slug for alert in shown(away, blindness=blind)] == ["cluster-away"]
    muted = finding("cluster-away", "cluster", "critical", muted_until_ms=NOW_MS + 1)
    assert [alert.slug for alert in shown(muted, blindness=blind)] == ["samples-stale", "pipeline-waiting"]


def test_findings_beyond_the_last_row_have_a_link() -> None:
    many = [finding("offline", f"orders-{number}") for number in range(DRAWN_MAX + 7)]
    assert not_drawn(shown(*many)) == "7 more in the table, in Activity and `ebbline findings` →"
    assert not_drawn(shown(*many[:DRAWN_MAX])) is None


def test_a_muted_finding_is_not_shown_until_its_silence_ends() -> None:
    assert shown(finding("copy-hung", muted_until_ms=NOW_MS + 1)) == []
    assert len(shown(finding("copy-hung", muted_until_ms=NOW_MS))) == 1


def test_an_explained_finding_stands_under_its_cause() -> None:
    of_2 = {"cause_slug": "broker-away", "cause_object": "broker 2"}
    explained = [
        finding("below-min-isr", f"orders-{number}", topic="orders", partition=3, **of_2) for number in range(14)
    ]
    worst = finding("offline", severity="critical", **of_2)
    of_5 = finding("offline", cause_slug="broker-away", cause_object="broker 5")
    causes = [finding("broker-away", "broker 2"), finding("broker-away", "broker 5"), finding("elr-off", "cluster")]
    rows = shown(*explained, worst, of_5, *causes)
    assert [(row.object, row.explained_count) for row in rows] == [("broker 2", 15), ("broker 5", 1), ("cluster", 0)]
    first = rows[0].explained
    assert [row.slug for row in first] == ["offline", *["below-min-isr"] * (EXPLAINED_MAX - 1)]
    assert (first[1].link, first[1].partition) == ("Open partition", "orders-3")


def test_the_worst_come_first_and_are_counted() -> None:
    result = shown(
        finding("thin-leader", severity="notice"), finding("broker-away"), finding("offline", severity="critical")
    )
    assert [alert.severity for alert in result] == ["critical", "warning", "notice"]
    assert summary(result) == "2 problems, 1 notice · worst first"
    assert summary(result[:1]) == "1 problem"


def test_a_finding_in_maintenance_is_shown_last_with_its_end_and_who_took_it() -> None:
    window = MaintenanceWindow(1, NOW_MS - 1, NOW_MS + 3_600_000, None, "ord*", None, "new disks", 0, "ada")
    covered = finding("offline", severity="critical", topic="orders", partition=0, id=7, acknowledged_by="ada")
    other = finding("thin-leader", "logs-3", severity="notice", topic="logs", id=8)
    first, last = shown(covered, other, windows=[window])
    assert (first.slug, last.slug) == ("thin-leader", "offline")
    assert last.detail == "Why. In maintenance for 1 h more. ada looks after it."
    assert (last.finding_id, last.taken_by, last.covered) == (7, "ada", True)
    assert (first.finding_id, first.taken_by, first.covered) == (8, "", False)


def test_the_finding_of_missing_rights_takes_the_place_of_the_blind_spot_which_nobody_can_mute() -> None:
    blind = [Blindness("rights-missing", "critical", "Rights are missing.", "Not seen.")]
    assert [alert.object for alert in shown(blindness=blind)] == ["ebbline"]
    (alert,) = shown(finding("rights-missing", "cluster"), blindness=blind)
    assert alert.object == "cluster"
    assert shown(finding("rights-missing", "cluster", muted_until_ms=10**15), blindness=blind) == []


def test_an_observer_that_is_silent_is_one_row() -> None:
    blind = [Blindness("samples-stale", "critical", "Not live.", "Old.")]
    assert [alert.slug for alert in shown(finding("observer-down", "observer"), blindness=blind)] == ["samples-stale"]
