"""Findings in the database: opened, kept, closed, muted, paged, removed at last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from backend.store.connection.database import create_engine, writing
from backend.store.queries import findings as queries
from backend.store.queries.overview import muted_findings, open_findings
from backend.store.writes import finding_rows as writes
from tests.databases import new_sqlite


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    url = new_sqlite(tmp_path / "ebbline.db")
    engine = create_engine(url)
    with writing(engine) as connection:
        yield connection
    engine.dispose()


def row(object_: str, **more: Any) -> dict[str, Any]:
    values = {
        "cluster_id": "c1",
        "slug": "copy-hung",
        "object": object_,
        "topic": object_.rpartition("-")[0],
        "partition": 0,
        "broker_id": 1,
        "severity": "warning",
        "sentence": "Copy hung",
        "action": "Look.",
        "evidence": {"sentence": "Long."},
        "opened_ms": 100,
        "seen_ms": 100,
        "muted_until_ms": None,
    }
    return values | more


def objects(findings: list[queries.Finding]) -> list[str]:
    return [finding.object for finding in findings]


def test_a_finding_is_opened_kept_and_closed(connection: Connection) -> None:
    writes.open_findings(connection, [row("orders-0"), row("orders-1")])
    first, second = sorted(queries.all_open(connection, "c1"), key=lambda finding: finding.id)
    now = {"severity": "critical", "sentence": "Worse", "action": "Run.", "evidence": {"n": 1}, "seen_ms": 200}
    writes.refresh_findings(connection, [{"finding_id": first.id, **now}])
    writes.close_findings(connection, [second.id], 300)
    kept = queries.finding(connection, "c1", first.id)
    assert kept is not None
    assert (kept.severity, kept.sentence, kept.evidence, kept.seen_ms) == ("critical", "Worse", {"n": 1}, 200)
    assert (kept.opened_ms, kept.closed_ms) == (100, None)
    closed = queries.finding(connection, "c1", second.id)
    assert closed is not None
    assert (closed.severity, closed.closed_ms) == ("warning", 300)
    assert objects(queries.all_open(connection, "c1")) == ["orders-0"]
    assert [finding.object for finding in open_findings(connection, "c1")] == ["orders-0"]


def test_other_clusters_findings_are_not_seen(connection: Connection) -> None:
    writes.open_findings(connection, [row("orders-0", cluster_id="c2")])
    (finding,) = queries.all_open(connection, "c2")
    assert queries.all_open(connection, "c1") == []
    assert queries.finding(connection, "c1", finding.id) is None
    assert queries.findings(connection, "c1", state="all") == []


def test_findings_are_filtered_and_come_newest_first(connection: Connection) -> None:
    writes.open_findings(connection, [row("orders-0"), row("bills-0", severity="critical"), row("orders-1")])
    oldest = queries.findings(connection, "c1")[-1]
    writes.close_findings(connection, [oldest.id], 300)
    assert objects(queries.findings(connection, "c1")) == ["orders-1", "bills-0"]
    assert objects(queries.findings(connection, "c1", state="closed")) == ["orders-0"]
    assert objects(queries.findings(connection, "c1", state="all", topic="orders")) == ["orders-1", "orders-0"]
    assert objects(queries.findings(connection, "c1", severity="critical")) == ["bills-0"]
    assert objects(queries.findings(connection, "c1", slug="offline")) == []
    newest = queries.findings(connection, "c1", limit=1)[0]
    assert objects(queries.findings(connection, "c1", before_id=newest.id)) == ["bills-0"]


def test_what_a_finding_explains_is_listed_by_its_slug_and_object(connection: Connection) -> None:
    of_3 = {"cause_slug": "broker-away", "cause_object": "broker 3"}
    writes.open_findings(
        connection,
        [
            row("orders-0", **of_3),
            row("orders-1", cause_slug="broker-away", cause_object="broker 2"),
            row("orders-2", cause_slug="disk-offline", cause_object="broker 3"),
            row("orders-3", cause_slug=None, cause_object=None),
        ],
    )
    assert objects(queries.findings(connection, "c1", cause=("broker-away", "broker 3"))) == ["orders-0"]
    assert objects(queries.findings(connection, "c1", cause=("broker-away", "broker 9"))) == []


def test_a_silence_is_of_the_slug_and_object_and_ends(connection: Connection) -> None:
    writes.open_findings(connection, [row("orders-0"), row("orders-1")])
    writes.mute_findings(connection, "c1", "copy-hung", "orders-0", 500)
    assert queries.muted_until(connection, "c1", 499) == {("copy-hung", "orders-0"): 500}
    assert queries.muted_until(connection, "c1", 500) == {}
    assert objects(queries.findings(connection, "c1", not_muted_at_ms=499)) == ["orders-1"]
    assert objects(queries.findings(connection, "c1", not_muted_at_ms=500)) == ["orders-1", "orders-0"]
    writes.mute_findings(connection, "c1", "copy-hung", "orders-0", None)
    assert queries.muted_until(connection, "c1", 0) == {}


def test_each_muted_finding_is_listed_once_also_one_that_is_closed(connection: Connection) -> None:
    first = row("orders-0")
    writes.open_findings(connection, [first, row("orders-1"), row("orders-2")])
    by_object = {finding.object: finding.id for finding in queries.all_open(connection, "c1")}
    writes.close_findings(connection, [by_object["orders-0"], by_object["orders-1"]], 300)
    writes.open_findings(connection, [first | {"opened_ms": 400}])
    writes.mute_findings(connection, "c1", "copy-hung", "orders-0", 600)
    writes.mute_findings(connection, "c1", "copy-hung", "orders-1", 500)
    muted = muted_findings(connection, "c1", 499)
    assert [(finding.object, finding.opened_ms, finding.closed_ms) for finding in muted] == [
        ("orders-1", 100, 300),
        ("orders-0", 400, None),
    ]
    assert [finding.object for finding in muted_findings(connection, "c1", 500)] == ["orders-0"]
    assert muted_findings(connection, "c2", 0) == []


def test_only_what_was_closed_long_ago_is_removed(connection: Connection) -> None:
    writes.open_findings(connection, [row(f"orders-{number}") for number in range(3)])
    by_object = {finding.object: finding.id for finding in queries.all_open(connection, "c1")}
    writes.close_findings(connection, [by_object["orders-0"]], 300)
    writes.close_findings(connection, [by_object["orders-1"]], 400)
    assert writes.prune_findings(connection, "c1", 400) == 1
    assert objects(queries.findings(connection, "c1", state="all")) == ["orders-2", "orders-1"]
