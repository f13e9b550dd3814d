"""The form of a maintenance window: begin, end or length, rule, topics, broker, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from app.components.cluster import maintenance_form
from app.components.cluster.maintenance_form import MINUTE_MS, MaintenanceInput
from backend.control.http.alert_models import MINUTES_MAX, MaintenanceBody
from tests.unit.app.overview_rows import NOW_MS

NOW = MaintenanceInput(None, 120, None, None, "", None, "new disks")
LATER_MS = NOW_MS + 90 * MINUTE_MS


@pytest.mark.parametrize(
    ("given", "begins_ms", "minutes"),
    [
        (NOW, None, 120),
        (replace(NOW, begins_ms=LATER_MS), LATER_MS, 120),
        (replace(NOW, minutes=None, ends_ms=NOW_MS + 10 * MINUTE_MS), None, 10),
        # It ends a moment later, never earlier.
        (replace(NOW, minutes=None, ends_ms=NOW_MS + 10 * MINUTE_MS + 1), None, 11),
        (replace(NOW, begins_ms=LATER_MS, minutes=None, ends_ms=LATER_MS + 30 * MINUTE_MS), LATER_MS, 30),
    ],
)
def test_the_request_has_begin_and_length(given: MaintenanceInput, begins_ms: int | None, minutes: int) -> None:
    assert maintenance_form.refusal(given, NOW_MS) == ""
    body = maintenance_form.body(given, NOW_MS)
    assert (body["begins_ms"], body["minutes"]) == (begins_ms, minutes)
    MaintenanceBody.model_validate(body)


def test_the_request_has_rule_topics_and_broker() -> None:
    body = maintenance_form.body(replace(NOW, slug="copy-slow", topic="logs-*", broker_id=0), NOW_MS)
    scope = MaintenanceBody.model_validate(body)
    assert (scope.slug, scope.topic, scope.broker_id, scope.reason) == ("copy-slow", "logs-*", 0, "new disks")
    everything = maintenance_form.body(NOW, NOW_MS)
    assert (everything["slug"], everything["topic"], everything["broker_id"]) == (None, None, None)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (replace(NOW, reason=""), "Give a reason first."),
        (replace(NOW, topic="a b"), "The pattern has letters, digits, and . _ - * ? [ ]."),
        (replace(NOW, minutes=None), "Say when it ends."),
        (replace(NOW, minutes=None, ends_ms=NOW_MS), "It would have ended already: give a later end."),
        (replace(NOW, begins_ms=NOW_MS - 121 * MINUTE_MS), "It would have ended already: give a later end."),
        (
            replace(NOW, begins_ms=LATER_MS, minutes=None, ends_ms=LATER_MS - 1),
            "It would have ended already: give a later end.",
        ),
        (
            replace(NOW, minutes=None, ends_ms=NOW_MS + (MINUTES_MAX + 1) * MINUTE_MS),
            "A window is thirty days long at most.",
        ),
    ],
)
def test_what_the_api_would_refuse_is_said_first(given: MaintenanceInput, sentence: str) -> None:
    assert maintenance_form.refusal(given, NOW_MS) == sentence


def test_limits_are_those_of_the_api() -> None:
    assert maintenance_form.MINUTES_MAX == MINUTES_MAX
    assert max(maintenance_form.LENGTHS.values()) <= MINUTES_MAX


def test_a_time_of_the_form_is_in_the_zone_of_the_page() -> None:
    clock = datetime(2026, 7, 1, 12, 0)
    assert maintenance_form.epoch_ms(None, None) is None
    assert maintenance_form.epoch_ms(clock, None) == 1_782_907_200_000
    assert maintenance_form.epoch_ms(clock, ZoneInfo("Europe/Berlin")) == 1_782_900_000_000
