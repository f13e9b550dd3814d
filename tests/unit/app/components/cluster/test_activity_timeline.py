"""Activity as data: incidents, moments, the audit's filter and its file."""

from __future__ import annotations

from typing import Any

from app.components.cluster import activity_timeline, audit_table
from app.theme import LIGHT
from backend.store.queries.activity import BrokerEvent
from backend.store.queries.audit import AuditRow
from backend.store.queries.overview import FindingRow
from tests.unit.app.partition_rows import NOW_MS

HOUR_MS = 3_600_000
SINCE_MS = NOW_MS - HOUR_MS


def entry(**more: Any) -> AuditRow:
    values: dict[str, Any] = {
        "id": 1,
        "at_ms": NOW_MS - 60_000,
        "actor": "ops-1",
        "role": "operator",
        "action": "execute toggle_bootstrap",
        "object": "broker 5",
        "diff": None,
        "reason": "trial",
        "operation_id": 91,
        "cli": None,
        "result": "verified",
        "detail": None,
    }
    return AuditRow(**(values | more))


def finding(slug: str, opened_ms: int, closed_ms: int | None = None, severity: str = "critical") -> FindingRow:
    return FindingRow(slug, "orders-7", opened_ms, severity, f"{slug} <b>", None, NOW_MS, closed_ms)


def event(kind: str, **body: Any) -> BrokerEvent:
    return BrokerEvent(NOW_MS - 5_000, kind, 2, "orders", 7, body)


def test_incidents_are_clipped_to_the_window_and_open_ones_end_now() -> None:
    bars = activity_timeline.bars(
        [finding("copy-hung", SINCE_MS - 9, None), finding("old", SINCE_MS - 99, SINCE_MS - 1)], SINCE_MS, NOW_MS
    )
    assert [(bar.row, bar.start_ms, bar.end_ms) for bar in bars] == [("Copy hung", SINCE_MS, NOW_MS)]


def test_moments_are_leader_changes_failures_and_actions() -> None:
    events = [
        event("leader", leader_epoch=3),
        event("rlmm_ready", metadata_partition=1),
        event("copy", outcome="failed", error="disk"),
    ]
    timeline_ticks = activity_timeline.ticks([entry(), entry(at_ms=SINCE_MS - 1)], events, SINCE_MS)
    assert [mark.row for mark in timeline_ticks] == ["Leader changes", "Failed on brokers", "Operator actions"]
    assert timeline_ticks[2].text == "ops-1: execute toggle bootstrap on broker 5, verified"


def test_the_figure_has_the_worst_incidents_on_top_and_escapes_their_words() -> None:
    bars = activity_timeline.bars(
        [finding("slow", SINCE_MS, severity="warning"), finding("copy-hung", SINCE_MS)], SINCE_MS, NOW_MS
    )
    refused = activity_timeline.ticks([entry(result="refused")], [], SINCE_MS)
    figure = activity_timeline.figure(bars, refused, SINCE_MS, NOW_MS, LIGHT, None)
    assert list(figure.layout.yaxis.ticktext[:2]) == ["Copy hung", "Slow"]
    assert all("<b>" not in text for text in figure.data[0].customdata)
    acted = next(trace for trace in figure.data if trace.name == activity_timeline.ACTIONS)
    assert acted.marker.line.color == (LIGHT.warning,)


def test_no_kind_of_incident_is_left_out_and_open_ones_come_first() -> None:
    past = [finding(f"past-{number}", SINCE_MS, closed_ms=NOW_MS - 1_000, severity="critical") for number in range(6)]
    bars = activity_timeline.bars([*past, finding("slow", SINCE_MS, severity="notice")], SINCE_MS, NOW_MS)
    figure = activity_timeline.figure(bars, [], SINCE_MS, NOW_MS, LIGHT, None)
    assert figure.layout.yaxis.ticktext[0] == "Slow"
    assert figure.layout.yaxis.ticktext[5] == "2 further kinds"
    assert len(figure.data[0].customdata) == 7
    assert set(figure.data[0].y) == set(range(6))
    # A row for one further kind has its name.
    figure = activity_timeline.figure(bars[1:], [], SINCE_MS, NOW_MS, LIGHT, None)
    assert figure.layout.yaxis.ticktext[5] == "Past 5"


def test_the_audit_is_found_by_person_object_plan_and_result() -> None:
    rows = [entry(), entry(actor="vera", result="refused", operation_id=None)]
    assert audit_table.select(rows, "", None) == rows
    assert audit_table.select(rows, "VERA broker", None) == rows[1:]
    assert audit_table.select(rows, "plan 91", None) == rows[:1]
    assert audit_table.select(rows, "#91", "refused") == []
    assert audit_table.select(rows, "toggle bootstrap", None) == rows


def test_the_end_of_a_silence_is_a_time_for_people() -> None:
    change = {"object": "orders-0", "name": "muted_until_ms", "before": None, "after": "1795873525907"}
    [text] = audit_table.rows([entry(diff={"changes": [change]})])["change"]
    assert text == "not set → 2026-11-28 13:45 UTC"


def test_the_file_holds_no_formulas() -> None:
    text = audit_table.csv([entry(reason="=HYPERLINK(1)", object="-1+2")])
    assert "'=HYPERLINK(1)" in text
    assert "'-1+2" in text
    assert ",=" not in text
