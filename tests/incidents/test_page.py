"""The page of results: each incident has its row, what was not played its reason, and what fell short is listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.incidents import results
from tests.incidents.catalogue import INCIDENTS
from tests.incidents.expectations import WARNING, Expected, Incident, Where
from tests.incidents.page import cell, page
from tests.incidents.results import Result, newest, result_of, write
from tests.incidents.rigs.apache_cluster import KAFKA_VARIABLE
from tests.incidents.steps import breaks, mends
from tests.incidents.verdicts import FalseFinding, Verdict

EXPECTED = Expected(slug="broker-away", objects=("broker 2",), severity=WARNING, says=("a",), action=("b",))
INCIDENT = Incident(
    name="killed",
    title="A broker | is killed",
    steps=(breaks("kill", broker=2), mends("start", broker=2)),
    expected=(EXPECTED,),
    on=frozenset({Where.EMBEDDED}),
    why_not={Where.KAFKA: "for this test"},
)
VERDICT = Verdict(expected=1, seconds={"broker-away broker 2": 3.21}, notices=2, notices_expected=2, right_action=True)
RIGHT = result_of(INCIDENT, Where.EMBEDDED, "abc", VERDICT)


def text(result: Result | None) -> str:
    return page((INCIDENT,), {} if result is None else {(result.incident, result.where): result})


def test_a_row_has_time_notices_false_findings_action_and_commit() -> None:
    assert "| A broker \\| is killed | `broker-away` 3.2 s | 2 of 2 | 0 | yes | `abc` |" in text(RIGHT)
    assert "| played | 1 of 1 | 0 of 0 |" in text(RIGHT)
    assert "Nowhere, in what was played." in text(RIGHT)


def test_no_action_is_right_that_nobody_has_carried_out_also_in_older_results() -> None:
    unmended = replace(INCIDENT, expected=(replace(EXPECTED, cleared_within_s=None),))
    by_itself = replace(INCIDENT, expected=(replace(EXPECTED, ends_by_itself=True),))
    for incident, shown in ((INCIDENT, "yes"), (unmended, "–"), (by_itself, "–")):
        row = page((incident,), {(RIGHT.incident, RIGHT.where): RIGHT})
        assert f"| 2 of 2 | 0 | {shown} | `abc` |" in row
    wrong = replace(RIGHT, right_action=False)
    assert "| **no** |" in page((unmended,), {(RIGHT.incident, RIGHT.where): wrong})


def test_an_incident_that_nobody_played_has_a_row_and_one_that_cannot_be_played_its_reason() -> None:
    assert "| A broker \\| is killed | not played yet |" in text(None)
    assert "| A broker \\| is killed | kafka | for this test |" in text(None)
    not_here = Result(incident="killed", where="embedded", commit="abc", not_played="no Java")
    assert "| embedded | on the machine of this run: no Java |" in text(not_here)
    assert "| played | 0 of 1 |" in text(not_here)


def test_what_fell_short_is_listed() -> None:
    verdict = replace(
        VERDICT,
        seconds={},
        missed=("broker-away broker 2",),
        false_findings=(FalseFinding("divergence", "a-0", "critical", "nobody expects it"),),
        right_action=False,
        complaints=("`ebbline status` ended with 0",),
    )
    shown = text(result_of(INCIDENT, Where.EMBEDDED, "abc", verdict))
    assert "| **never** `broker-away` | 2 of 2 | **1** | **no** | `abc` |" in shown
    assert "| recall | 0% |" in shown
    assert "| false criticals | 1 |" in shown
    parts = "never found: `broker-away broker 2`; false: divergence a-0 (critical): nobody expects it; `ebbline status`"
    assert f", embedded: {parts} ended with 0" in shown
    assert "Nowhere" not in shown


def test_the_newest_result_of_each_incident_is_kept(tmp_path: Path) -> None:
    older, other = replace(RIGHT, commit="old"), replace(RIGHT, incident="other")
    write([older, other], "20260101T000000", 1.0, tmp_path)
    write([RIGHT], "20260102T000000", 1.0, tmp_path)
    assert {key: result.commit for key, result in newest(tmp_path).items()} == {
        ("killed", "embedded"): "abc",
        ("other", "embedded"): "abc",
    }
    assert page((INCIDENT,), newest(tmp_path)) == text(RIGHT)


def test_results_of_an_older_kafka_are_not_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KAFKA_VARIABLE, "4.2.0")
    write([RIGHT], "20261127T120000", 5.0, tmp_path)
    assert newest(tmp_path) == {}


def test_every_incident_has_a_row_on_the_page_as_it_is() -> None:
    shown = page(INCIDENTS, newest(results.FOLDER))
    for incident in INCIDENTS:
        rows = [line for line in shown.splitlines() if line.startswith(f"| {cell(incident.title)} |")]
        assert len(rows) >= len(incident.on) + len(incident.why_not), incident.name
