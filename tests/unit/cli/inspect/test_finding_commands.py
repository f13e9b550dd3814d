"""`ebbline findings` and `status` against a server that answers as the API does: the list, the rest, the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from backend.store.blind_spots import (
    OF_A_SILENT_CLUSTER,
    BlindSpot,
    DatabaseSilence,
    blind_spots,
    observer_sight,
)
from backend.store.queries.health import ProcessHealth
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
    code, text = api.run(tmp_path, "findings")
    assert (code, "Nothing needs attention." in text) == (1, False)
    assert "Nothing else is known to need attention. Checked" in text


def spots() -> list[dict[str, Any]]:
    """Each blind spot there is, as the API gives it."""
    away = DatabaseSilence(NOW_MS - 9_000, "It is locked.")
    observer = observer_sight(["Describe on Topic `*`"], tiers_hidden=True, unjudged_since_ms=NOW_MS - 900_000)
    meters = {"readers": {"meters": {"stopped": [2], "never": [], "since_ms": NOW_MS - 60_000}}}
    given = [
        *listed({"backend": process("backend", age_ms=60_000)}),
        *listed({"observer": process("observer", age_ms=60_000)}),
        *listed({}, offsets_age_ms=60_000),
        *listed({"observer": process("observer", detail=observer)}),
        *listed({"backend": process("backend", detail=meters)}),
        *listed({"pipeline": process("pipeline", age_ms=60_000)}),
        *listed({"pipeline": process("pipeline", state="waiting", detail={"waiting_since_ms": NOW_MS - 60_000})}),
        *listed({}, database=away),
    ]
    return [asdict(spot) for spot in given]


def process(name: str, *, age_ms: int = 0, state: str = "running", detail: Any = None) -> ProcessHealth:
    return ProcessHealth(name, 1, NOW_MS - 600_000, NOW_MS - age_ms, 2_000, state, None, detail, 1, age_ms)


def listed(
    changed: Mapping[str, ProcessHealth], *, offsets_age_ms: int = 0, database: DatabaseSilence | None = None
) -> list[BlindSpot]:
    alive = {name: process(name) for name in ("backend", "observer", "pipeline")}
    return blind_spots(
        alive | dict(changed), offsets_age_ms=offsets_age_ms, interval_ms=2_000, now_ms=NOW_MS, database=database
    )


def test_the_blind_spots_below_are_of_every_kind() -> None:
    assert {spot["slug"] for spot in spots()} == {
        "backend-down", "database-away", "meters-stopped", "observer-down", "pipeline-down", "pipeline-waiting",
        "rights-missing", "rounds-unjudged", "samples-stale",
    }  # fmt: skip


@pytest.mark.parametrize("command", ["findings", "status"])
@pytest.mark.parametrize("spot", spots(), ids=lambda spot: str(spot["slug"]))
def test_a_product_that_does_not_see_says_so_and_never_that_all_is_well(
    api: Api, tmp_path: Path, command: str, spot: dict[str, Any]
) -> None:
    answers(api, [], blind_spots=[spot])
    api.answers["GET /v1/brokers"] = 200, EXAMPLES["BrokersAnswer"]
    code, text = api.run(tmp_path, command)
    flat = " ".join(text.split())
    assert code == 1
    assert "Nothing needs attention" not in flat
    assert "Nothing else is known to need attention. Checked" in flat
    assert flat.count(f"{spot['headline']}") == 1
    assert " ".join(spot["text"].split()) in flat
    assert spot["note"] in flat


@pytest.mark.parametrize("command", ["findings", "status"])
def test_a_notice_of_what_is_not_seen_is_no_reason_to_get_up(api: Api, tmp_path: Path, command: str) -> None:
    (never,) = [asdict(spot) for spot in blind_spots({}, offsets_age_ms=0, interval_ms=2_000, now_ms=NOW_MS)]
    assert (never["slug"], never["severity"]) == ("pipeline-never", "notice")
    answers(api, [], blind_spots=[never])
    api.answers["GET /v1/brokers"] = 200, EXAMPLES["BrokersAnswer"]
    code, text = api.run(tmp_path, command)
    assert (code, "Nothing needs attention. Checked" in text, never["headline"] in text) == (0, True, True)


def test_status_says_once_that_no_broker_answers(api: Api, tmp_path: Path) -> None:
    reason = "No broker answers. The broker at localhost:9092 cannot be reached."
    of_the_silence = [spot for spot in spots() if spot["slug"] in OF_A_SILENT_CLUSTER]
    assert len(of_the_silence) == 2
    observer = CLUSTER["processes"][0] | {"message": f"The cluster does not answer. {reason}"}
    away: dict[str, Any] = {
        "answers": False,
        "away_since_ms": NOW_MS - 90_000,
        "away_reason": reason,
        "processes": [observer],
    }
    answers(api, [], blind_spots=of_the_silence, **away)
    api.answers["GET /v1/brokers"] = 200, EXAMPLES["BrokersAnswer"]
    code, text = api.run(tmp_path, "status")
    flat = " ".join(text.split())
    assert (code, flat.count("cannot be reached"), "Not live" in flat) == (1, 1, False)
