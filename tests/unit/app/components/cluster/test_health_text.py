"""The head row and the alerts on the data's age and on ebbline's processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.components.cluster import health_text
from app.state import aged
from backend.store.queries.overview import FindingRow
from tests.unit.app.overview_rows import NOW_MS, broker, cluster, process, view

BROKERS = [broker(1), broker(2)]


def test_live_data_has_its_age_and_nothing_is_said_otherwise() -> None:
    pills = health_text.head_pills(view(), BROKERS, None)
    assert [(pill.label, pill.status) for pill in pills] == [
        ("Live · 1 s ago", "notice"),
        ("2/2 brokers · metadata +1 s", "ok"),
    ]
    assert health_text.blindness(view(), BROKERS, None) == []


def test_data_is_stale_after_ten_seconds_as_a_round_waits_for_brokers_that_hang() -> None:
    assert not health_text.stale(view(age_ms=10_000))
    assert health_text.stale(view(age_ms=10_001))
    assert health_text.stale(view(age_ms=None))


def test_a_silent_backend_is_named_with_since_when_and_the_age_of_what_is_shown() -> None:
    seen = view(
        process("backend", age_ms=60_000), process("observer", age_ms=60_000), process("pipeline"), age_ms=61_000
    )
    [blindness] = health_text.blindness(seen, BROKERS, None)
    assert (blindness.slug, blindness.status, blindness.title) == (
        "backend-down",
        "critical",
        "Backend down since 07:59:00.",
    )
    assert "Nothing can be changed now. Figures are 1 m 1 s old." in blindness.sentence
    labels = [pill.label for pill in health_text.head_pills(seen, BROKERS, None)]
    assert labels == ["Not live since 07:58:59", "?/2 brokers · metadata +1 s"]


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_process_that_said_goodbye_is_down_at_once_with_its_message(state: str) -> None:
    seen = view(process("backend"), process("pipeline", state=state, message="No Java 17 was found."))
    [blindness] = health_text.blindness(seen, BROKERS, None)
    assert blindness.title == "Pipeline down since 07:59:59."
    assert blindness.note == "No Java 17 was found."


def test_an_observer_without_answers_is_not_called_down() -> None:
    seen = view(process("backend"), process("observer"), process("pipeline"), age_ms=30_000)
    [blindness] = health_text.blindness(seen, BROKERS, None)
    assert blindness.slug == "samples-stale"
    assert blindness.title == "Not live since 07:59:30."


def test_backend_comes_before_pipeline_and_both_are_said() -> None:
    seen = view(process("pipeline", age_ms=60_000), process("backend", age_ms=60_000), age_ms=60_000)
    assert [blindness.slug for blindness in health_text.blindness(seen, BROKERS, None)] == [
        "backend-down",
        "pipeline-down",
    ]


def test_a_pipeline_that_lags_says_by_how_many_records() -> None:
    seen = view(process("backend"), process("pipeline", detail={"lag_records": 1_200}))
    assert health_text.head_pills(seen, BROKERS, None)[1].label == "2/2 brokers · metadata 1\u202f200 behind"


def test_a_waiting_pipeline_says_so_with_its_reason() -> None:
    seen = view(process("backend"), process("pipeline", state="waiting", message="No broker answers."))
    [blindness] = health_text.blindness(seen, BROKERS, None)
    assert (blindness.status, blindness.title, blindness.note) == (
        "notice",
        "The pipeline waits.",
        "No broker answers.",
    )
    long_ago = {"waiting_since_ms": NOW_MS - 31_000}
    seen = view(process("backend"), process("pipeline", state="waiting", message="No broker answers.", detail=long_ago))
    assert [blindness.status for blindness in health_text.blindness(seen, BROKERS, None)] == ["warning"]


def test_some_silent_brokers_are_counted() -> None:
    brokers = [broker(1), broker(2, reachable=False, error="Connection refused.")]
    [blindness] = health_text.blindness(view(), brokers, None)
    assert blindness.title == "1 of 2 brokers is silent."
    assert blindness.sentence == "Broker 2 did not answer."
    assert health_text.head_pills(view(), brokers, None)[1].status == "warning"


def _finding(slug: str, object_: str, severity: str, **more: Any) -> FindingRow:
    return FindingRow(slug, object_, NOW_MS, severity, "Something.", None, NOW_MS, None, **more)


def test_a_silent_broker_is_as_bad_here_as_its_finding_on_the_overview() -> None:
    brokers = [broker(1), broker(2, reachable=False)]

    def severities(*findings: FindingRow) -> list[str | None]:
        [blindness] = health_text.blindness(view(), brokers, None, findings)
        return [blindness.status, health_text.head_pills(view(), brokers, None, findings)[1].status]

    away = _finding("broker-away", "broker 2", "critical", broker_id=2)
    assert severities(away) == ["critical", "critical"]
    assert severities(replace(away, severity="notice")) == ["notice", "notice"]
    assert severities(replace(away, object="broker 1", broker_id=1)) == ["warning", "warning"]
    of_all = _finding("cluster-away", "cluster", "critical")
    assert severities(of_all) == ["critical", "critical"]
    explained = replace(away, severity="warning", cause_slug="last-leader-behind", cause_object="orders-0")
    assert severities(explained, _finding("offline", "orders-0", "critical")) == ["warning", "warning"]
    assert severities(explained, _finding("last-leader-behind", "orders-0", "critical")) == ["critical", "critical"]


def test_while_the_database_is_away_ages_grow_and_only_that_is_said() -> None:
    seen = aged(view(process("pipeline", age_ms=60_000)), NOW_MS + 40_000, "Connection refused.")
    [blindness] = health_text.blindness(seen, BROKERS, None)
    assert blindness.title == "Database away since 08:00:00."
    assert "was read 40 s ago" in blindness.sentence
    assert blindness.note == "Connection refused."
    assert seen.ages.offsets_ms == 41_000
    assert health_text.stale(seen)
    labels = [pill.label for pill in health_text.head_pills(seen, BROKERS, None)]
    assert labels == ["Not live since 07:59:59", "Database away"]


def test_a_database_that_takes_no_writes_is_said_instead_of_calling_down_who_cannot_give_a_sign_of_life() -> None:
    silent = (process(name, age_ms=40_000) for name in ("backend", "observer", "pipeline"))
    seen = view(*silent, age_ms=41_000, write_problem="The database is held by another program.")
    [blindness] = health_text.blindness(seen, BROKERS, None)
    assert (blindness.slug, blindness.status) == ("database-away", "critical")
    assert blindness.title == "The database takes no writes since 07:59:20."
    assert blindness.sentence.startswith("What is shown is 40 s old, and nothing can be changed now.")
    assert blindness.note == "The database is held by another program."
    labels = [pill.label for pill in health_text.head_pills(seen, BROKERS, None)]
    assert labels == ["Not live since 07:59:19", "Database takes no writes"]
    assert health_text.note_block(seen, True, "") == "The database takes no writes: a change could not be recorded."


def test_that_nobody_looked_while_the_database_went_away_is_said() -> None:
    seen = aged(view(), NOW_MS + 600_000, "Connection refused.", NOW_MS + 590_000)
    [blindness] = health_text.blindness(seen, BROKERS, None)
    assert blindness.title == "The database cannot be read."
    assert blindness.sentence.startswith("Nobody looked between 08:00:00 and 08:09:50. What is shown was read 10 m")


def test_the_backend_tells_since_when_the_database_is_away_also_when_no_page_was_open() -> None:
    noticed = aged(view(), NOW_MS + 600_000, "Connection refused.", NOW_MS + 590_000)
    [blindness] = health_text.blindness(replace(noticed, responded_ms=NOW_MS + 300_000), BROKERS, None)
    assert blindness.title == "Database away since 08:05:00."
    assert blindness.sentence.startswith("What is shown was read 10 m")
    [blindness] = health_text.blindness(replace(noticed, responded_ms=NOW_MS + 606_000), BROKERS, None)
    assert blindness.title == "The database cannot be read from here."
    assert blindness.sentence.startswith("It responds to the backend. ")


def test_a_page_that_stands_still_says_of_when_it_is() -> None:
    pill = health_text.paused_pill(view(), None)
    assert (pill.label, pill.status) == ("As of 08:00:00, not live", "warning")


def test_the_ledger_is_known_up_to_the_pipelines_last_sign_of_life() -> None:
    assert health_text.ledger_ms(view()) == NOW_MS
    assert health_text.ledger_ms(view(process("pipeline", age_ms=60_000))) == NOW_MS - 60_000
    waiting = {"lag_records": None, "lag_ms": None, "caught_up_ms": NOW_MS - 30_000}
    assert health_text.ledger_ms(view(process("pipeline", state="waiting", detail=waiting))) == NOW_MS - 30_000
    assert health_text.ledger_ms(aged(view(), NOW_MS + 40_000, "away")) == NOW_MS


def test_writes_are_blocked_with_the_first_reason_that_holds() -> None:
    block = health_text.write_block
    assert block(view(), True, "Read-only.") is None
    assert block(view(), False, "Read-only.") == "Read-only."
    assert block(view(own=False, cluster=cluster(name="other")), True, "") == (
        "Read-only: other is not the cluster of this `ebbline up`."
    )
    assert block(aged(view(), NOW_MS + 1, "x"), True, "") == "The database is away: a change could not be recorded."
    assert "backend is down" in str(block(view(process("backend", age_ms=60_000)), True, ""))
    assert block(view(process("backend"), age_ms=300_000), True, "") == "Data is 5 m old."


def test_when_it_was_checked_is_the_observer_s_word_as_for_the_commands() -> None:
    observer = process("observer", detail={"checked_ms": NOW_MS - 150_000})
    text = health_text.checked_text(view(observer, age_ms=1_000), 10_000)
    assert text == "Nothing needs attention. Checked 10\u202f000 partitions, 2 m 30 s ago."
    never = "Nothing has been checked yet: the observer has not finished a round."
    assert health_text.checked_text(view(process("observer")), 10_000) == never
