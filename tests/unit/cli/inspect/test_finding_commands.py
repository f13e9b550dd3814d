"""`ebbline findings` against an HTTP server that answers as the API does: its list, the rest, the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.alerts.test_alert_commands import EXAMPLES, Api

NOW_MS = 1_800_000_000_000
FINDING = EXAMPLES["FindingAnswer"]["finding"] | {
    "severity": "warning",
    "cause_slug": None,
    "closed_ms": None,
    "muted_until_ms": None,
    "maintenance_until_ms": None,
}
OLDEST = FINDING | {"id": 1, "severity": "critical", "object": "orders-1", "sentence": "No leader: orders-1"}
CLUSTER = EXAMPLES["ClusterAnswer"] | {"now_ms": NOW_MS, "answers": True, "blind_spots": []}


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.server.shutdown()
    made.server.server_close()


def answers(api: Api, items: list[dict[str, Any]], limit: int = 100, more: str = "", **cluster: object) -> None:
    """`items`: all that are open, the newest first; the API gives them in pages of 1,000."""
    api.answers["GET /v1/cluster"] = 200, CLUSTER | cluster
    listed = {"items": items[:limit], "next_before_id": 1 if len(items) > limit else None}
    api.answers[f"GET /v1/findings?state=open{more}&limit={limit}"] = 200, listed
    before = ""
    for at in range(0, max(1, len(items)), 1_000):
        page = items[at : at + 1_000]
        following = page[-1]["id"] if at + 1_000 < len(items) else None
        answer = {"items": page, "next_before_id": following}
        api.answers[f"GET /v1/findings?state=open&limit=1000{before}"] = 200, answer
        before = f"&before_id={following}"


def newer(number: int) -> list[dict[str, Any]]:
    return [FINDING | {"id": 9_000 - i, "object": f"bills-{i}", "cause_slug": "broker-away"} for i in range(number)]


def test_a_critical_finding_that_is_not_listed_ends_the_command_with_1(api: Api, tmp_path: Path) -> None:
    answers(api, [*newer(1_500), OLDEST])
    code, text = api.run(tmp_path, "findings")
    assert "+1401 more with --limit; these are the newest 100." in text
    assert (code, "orders-1" in text) == (1, False)


def test_it_ends_with_1_whatever_is_listed(api: Api, tmp_path: Path) -> None:
    answers(api, [*newer(3), OLDEST])
    api.answers["GET /v1/findings?state=open&severity=warning&topic=bills&limit=100"] = (
        200,
        {
            "items": [],
            "next_before_id": None,
        },
    )
    code, text = api.run(tmp_path, "findings", "--severity", "warning", "--topic", "bills")
    assert (code, text.strip()) == (1, "No such finding.")


def test_a_muted_finding_is_listed_and_needs_no_attention(api: Api, tmp_path: Path) -> None:
    answers(api, [OLDEST | {"muted_until_ms": NOW_MS + 1}])
    code, text = api.run(tmp_path, "findings")
    assert (code, "orders-1" in text) == (0, True)
    answers(api, [OLDEST | {"muted_until_ms": NOW_MS}])
    assert api.run(tmp_path, "findings")[0] == 1


def test_a_cause_that_is_older_than_the_list_stands_above_what_it_explains(api: Api, tmp_path: Path) -> None:
    away = OLDEST | {"slug": "broker-away", "object": "broker 3", "sentence": "Broker 3 does not answer"}
    answers(api, [*(row | {"cause_object": "broker 3"} for row in newer(150)), away])
    code, text = api.run(tmp_path, "findings")
    assert (code, "Broker 3 does not" in text) == (1, True)
    assert text.index("broker-away") < text.index("└")
    assert "+51 more with --limit; these are the newest 100." in text


def test_what_a_finding_explains_is_listed_by_its_cause(api: Api, tmp_path: Path) -> None:
    explained = [row | {"cause_object": "broker 3"} for row in newer(3)]
    answers(api, [*explained, OLDEST])
    listed = {"items": explained[:2], "next_before_id": explained[1]["id"]}
    api.answers["GET /v1/findings?state=open&cause=broker-away%3Abroker+3&limit=2"] = 200, listed
    text = api.run(tmp_path, "findings", "--cause", "broker-away:broker 3", "--limit", "2")[1]
    assert [number in text for number in ("9000", "8999", "8998", "\n1 ")] == [True, True, False, False]
    assert "+1 more with --limit" in text


def test_a_cluster_that_does_not_answer_is_no_quiet_one(api: Api, tmp_path: Path) -> None:
    answers(api, [])
    code, text = api.run(tmp_path, "findings")
    assert (code, "Nothing needs attention." in text) == (0, True)
    answers(api, [], answers=False)
    assert api.run(tmp_path, "findings")[0] == 1
