"""Holds of rules: one table declares the defaults, and `for_s` replaces them in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.evaluate import candidates
from backend.control.findings.holds import BY_AGE, HOLDS, default_for_ms, holds_in_force
from backend.control.findings.still_offsets import PartitionStill, StillOffset
from backend.control.findings.thresholds import THRESHOLDS, RuleSetting, RuleSettings
from tests.unit.control.findings.rule_cases import CASES, DELETING
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, attempt, context, partition, segment

DECLARED = {slug: {hold.for_ms for hold in HOLDS if hold.slug == slug} for slug in SLUGS}
IN_SECONDS = {
    slug: {entry.default * 1000 for entry in THRESHOLDS if (entry.slug, entry.unit) == (slug, "s")} for slug in SLUGS
}


def test_the_table_is_about_rules_that_there_are_and_has_a_reason_for_each_case() -> None:
    assert {hold.slug for hold in HOLDS} | BY_AGE <= SLUGS.keys()
    assert len({(hold.slug, hold.case) for hold in HOLDS}) == len(HOLDS)
    assert [hold for hold in HOLDS if not hold.reason.endswith(".") or hold.for_ms <= 0] == []


@pytest.mark.parametrize("slug", sorted(CASES))
def test_no_rule_holds_for_a_time_that_no_table_declares(slug: str) -> None:
    for facts, _ in CASES[slug]:
        for candidate in candidates(context(**facts)).values():
            if candidate.slug == slug and candidate.for_ms:
                assert candidate.for_ms in DECLARED[slug] | IN_SECONDS[slug]


def deletes(age_ms: int) -> dict[str, Any]:
    return {"open_segments": [segment(delete_started_ms=NOW_MS - age_ms, **DELETING)]}


def copies(age_ms: int, **more: Any) -> dict[str, Any]:
    return {"open_segments": [segment(age_ms=age_ms, **more)]}


def fails(age_ms: int) -> dict[str, Any]:
    """A partition of each of two brokers, three times."""
    rows = [partition(index=number, leader=1 + number) for number in (0, 1)]
    ages = (1, age_ms // 2, age_ms)
    attempts = [attempt(age, index=n, broker_id=1 + n) for n in (0, 1) for age in ages]
    return {"partitions": rows, "failed_attempts": attempts}


def transaction(age_ms: int) -> dict[str, Any]:
    still = StillOffset(800, NOW_MS - age_ms)
    return {"still": {("orders", 0): PartitionStill("id-orders", still, still)}}


@pytest.mark.parametrize("for_s", [5, 300])
@pytest.mark.parametrize(
    ("slug", "facts"),
    [
        ("delete-lag", deletes),
        ("copy-hung", copies),
        ("copy-dangling", lambda age_ms: copies(age_ms, topic="gone")),
        ("copy-dangling", lambda age_ms: copies(age_ms, superseded=True)),
        ("copy-failing", fails),
        ("transaction-open", transaction),
    ],
)
def test_a_hold_that_is_measured_by_age_is_replaced_in_both_directions(slug: str, facts: Any, for_s: int) -> None:
    settings = RuleSettings((RuleSetting(slug, for_ms=for_s * 1000),))

    def raised(age_ms: int) -> list[int]:
        given = candidates(context(**facts(age_ms), rule_settings=settings))
        return [candidate.for_ms for candidate in given.values() if candidate.slug == slug]

    assert raised(for_s * 1000 - 2) == []
    assert raised(for_s * 1000 + 1) == [0], "it is not held once more"


def test_a_hold_in_force_is_that_of_the_settings_or_the_default() -> None:
    settings = RuleSettings((RuleSetting("leader-skew", for_ms=1_000), RuleSetting("thin-leader", "logs-*", for_ms=5)))
    shown = {(hold.slug, hold.case): for_ms for hold, for_ms in holds_in_force(settings)}
    assert {for_ms for (slug, _), for_ms in shown.items() if slug == "leader-skew"} == {1_000}
    assert shown["thin-leader", ""] == default_for_ms("thin-leader") == 15_000
    assert len(shown) == len(HOLDS)


def test_an_age_of_a_minute_is_the_default() -> None:
    assert ("delete-lag", "orders-0") in candidates(context(**deletes(MINUTE_MS + 1)))
    assert ("delete-lag", "orders-0") not in candidates(context(**deletes(MINUTE_MS)))
