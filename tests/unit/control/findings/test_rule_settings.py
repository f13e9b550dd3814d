"""Settings of rules: thresholds with their reasons, holds, severities, rules that are off, all by topic."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.evaluate import evaluate
from backend.control.findings.remote_read_growth import ReadGrowth
from backend.control.findings.rule_settings import adjusted
from backend.control.findings.still_offsets import PartitionStill, StillOffset
from backend.control.findings.thresholds import (
    THRESHOLDS,
    RuleSetting,
    RuleSettings,
    Thresholds,
    in_force,
)
from tests.unit.control.findings.rule_cases import led_by_another, pipeline, rules
from tests.unit.control.findings.sights import (
    MINUTE_MS,
    NOW_MS,
    broker,
    context,
    disk,
    partition,
    replica,
    stored,
    topic,
)
from tests.unit.control.findings.test_evaluate import BASE, saying

FINDINGS = Path(__file__).parents[4] / "backend/control/findings"


def settings(*given: RuleSetting) -> RuleSettings:
    return RuleSettings(given)


def test_every_threshold_has_a_place_limits_and_a_reason() -> None:
    assert sorted(entry.field for entry in THRESHOLDS) == sorted(field.name for field in fields(Thresholds))
    assert len({(entry.slug, entry.name) for entry in THRESHOLDS}) == len(THRESHOLDS)
    for entry in THRESHOLDS:
        assert entry.slug in SLUGS
        assert entry.minimum <= entry.default <= entry.maximum
        assert entry.reason.endswith(".")


def test_the_first_table_that_fits_a_topic_counts() -> None:
    made = settings(
        RuleSetting("follower-stuck", topics="logs-*", thresholds={"stuck_s": 300.0}),
        RuleSetting("follower-stuck", thresholds={"stuck_s": 45.0}),
        RuleSetting("disk-runway", thresholds={"disk_warning_share": 0.5}),
    )
    assert [made.thresholds(topic).stuck_s for topic in ("logs-eu", "orders", None)] == [300.0, 45.0, 45.0]
    assert made.thresholds("logs-eu").disk_warning_share == 0.5
    assert RuleSettings().thresholds("logs-eu") == Thresholds()


def test_a_threshold_in_force_is_shown_for_all_topics_and_for_the_patterns_that_have_another() -> None:
    made = settings(RuleSetting("follower-stuck", topics="logs-*", thresholds={"stuck_s": 300.0}))
    shown = [(item.value, item.topics) for item in in_force(made) if item.entry.field == "stuck_s"]
    assert shown == [(30.0, None), (300.0, "logs-*")]
    assert len(list(in_force(RuleSettings()))) == len(THRESHOLDS)


def test_hold_severity_and_off_are_applied_to_the_candidates_of_any_rule() -> None:
    orders, logs = replace(BASE, topic="orders"), replace(BASE, object="logs-0", topic="logs")
    given = {candidate.key: candidate for candidate in (orders, logs)}
    quiet = adjusted(given, settings(RuleSetting("rule", topics="logs", off=True)))
    assert set(quiet) == {orders.key}
    changed = adjusted(given, settings(RuleSetting("rule", for_ms=MINUTE_MS, severity="critical")))
    assert {(c.for_ms, c.severity) for c in changed.values()} == {(MINUTE_MS, "critical")}
    assert adjusted(given, RuleSettings()) == given


def test_a_rule_that_is_switched_off_closes_what_it_had_opened() -> None:
    opened = evaluate(context(), [], {}, saying(BASE))
    assert opened.opened == [BASE]
    off = context(rule_settings=settings(RuleSetting("rule", off=True)))
    assert [f.slug for f in evaluate(off, [stored(BASE)], {}, saying(BASE)).closed] == ["rule"]


STUCK: dict[str, Any] = {"in_isr": False, "phase": "DELAYED", "log_end_offset": 0}
LAGGING = {
    "replicas": [replica(1), replica(2, **STUCK), replica(3)],
    "moved_ms": {("orders", 0, 2): NOW_MS - MINUTE_MS},
}


TIME_ONLY: dict[str, Any] = {
    "topics": {"orders": topic(segment_bytes="100", local_retention_bytes="-2", local_retention_ms="60000")}
}


def unmoved(age_ms: int, *, stable: bool = True) -> dict[tuple[str, int], PartitionStill]:
    """Offset 800 is the earliest pending one since then, and with `stable` the last stable one as well."""
    since = StillOffset(800, NOW_MS - age_ms)
    return {("orders", 0): PartitionStill("id-orders", since, since if stable else None)}


def reads(age_ms: int = 1_000, topic: str | None = "orders", **more: float) -> ReadGrowth:
    numbers = {"errors": 0.0, "requests": 0.0, "fetched_bytes": 0.0, "expired": 0.0}
    return ReadGrowth(NOW_MS - age_ms, NOW_MS - age_ms - 15_000, 1, topic, **numbers | more)


EXPIRED = [reads(age_ms, None, expired=3.0, requests=3.0) for age_ms in (16_000, 1_000)]


@pytest.mark.parametrize(
    ("slug", "facts", "setting"),
    [
        ("disk-runway", {"brokers": [broker(1, log_dirs=[disk(0.9)])]}, {"disk_warning_share": 0.95}),
        (
            "disk-runway",
            {"brokers": [broker(1, log_dirs=[disk(0.4)])], "disk_rates": {(1, "/data"): 100.0}},
            {"disk_warning_hours": 1.0},
        ),
        (
            "thin-leader",
            {"replicas": [replica(1, local_log_start_offset=999), replica(2)]},
            {"thin_records": 10_000.0},
        ),
        ("thin-leader", {"replicas": [replica(1, local_log_start_offset=800), replica(2)]}, {"thin_share": 0.1}),
        ("transaction-open", {"still": unmoved(MINUTE_MS)}, {"transaction_held_s": 61.0}),
        ("copy-slow", TIME_ONLY | {"still": unmoved(5 * MINUTE_MS, stable=False)}, {"copy_still_s": 301.0}),
        ("leader-skew", {"partitions": led_by_another(10, 6), "replicas": []}, {"skew_share": 0.4}),
        ("leader-skew", {"partitions": led_by_another(10, 6), "replicas": []}, {"skew_partitions": 11.0}),
        ("pipeline-behind", pipeline(detail={"lag_ms": 31_000, "lag_records": 9}), {"pipeline_lag_s": 31.0}),
        ("remote-read-failing", {"read_growth": [reads(errors=4.0, requests=4.0)]}, {"read_errors": 5.0}),
        ("remote-read-slow", {"read_growth": EXPIRED}, {"reads_expired": 7.0}),
    ],
)
def test_a_threshold_decides_whether_a_rule_speaks(slug: str, facts: dict[str, Any], setting: dict[str, float]) -> None:
    assert slug in rules(**facts)
    assert slug not in rules(**facts, rule_settings=settings(RuleSetting(slug, thresholds=setting)))


def test_a_threshold_of_time_is_how_long_a_rule_waits() -> None:
    assert rules(**LAGGING)["follower-stuck"].for_ms == 30_000
    patient = settings(RuleSetting("follower-stuck", topics="ord*", thresholds={"stuck_s": 300.0}))
    assert rules(**LAGGING, rule_settings=patient)["follower-stuck"].for_ms == 300_000
    others = settings(RuleSetting("follower-stuck", topics="logs", thresholds={"stuck_s": 300.0}))
    assert rules(**LAGGING, rule_settings=others)["follower-stuck"].for_ms == 30_000


def test_a_disk_is_critical_by_its_thresholds() -> None:
    facts = {"brokers": [broker(1, log_dirs=[disk(0.9)])]}
    assert rules(**facts)["disk-runway"].severity == "warning"
    strict = settings(RuleSetting("disk-runway", thresholds={"disk_critical_share": 0.9}))
    assert rules(**facts, rule_settings=strict)["disk-runway"].severity == "critical"


def test_a_move_waits_by_its_topic_s_threshold() -> None:
    moving = {
        "partitions": [partition(adding_replicas=(2,), replicas=(1, 2, 3), isr=(1, 3))],
        **LAGGING,
        "rule_settings": settings(RuleSetting("move-stalled", topics="orders", thresholds={"move_stalled_s": 7.0})),
    }
    assert rules(**moving)["move-stalled"].for_ms == 7_000


def test_every_threshold_is_read_by_a_rule() -> None:
    lines = [
        line
        for path in FINDINGS.rglob("*.py")
        if path.name != "thresholds.py"
        for line in path.read_text().splitlines()
    ]
    text = "\n".join(line for line in lines if not line.startswith("from "))
    assert [entry.field for entry in THRESHOLDS if not re.search(rf"\.{entry.field}\b", text)] == []
