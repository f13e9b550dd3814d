"""The tables that commands print of the API's responses."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from backend.cli.inspect.cluster_commands import parse_partition
from backend.cli.plans.confirm import ending, plan_lines, refusal
from backend.cli.shared import tables, value_text
from backend.control.formatting import in_time

NOW_MS = 1_800_000_000_000
PARTITION: dict[str, Any] = {
    "topic": "orders",
    "partition": 3,
    "leader": 1,
    "replicas": [1, 2, 3],
    "isr": [1, 2],
    "log_start_offset": 0,
    "local_log_start_offset": 500,
    "latest_tiered_offset": 799,
    "earliest_pending_upload_offset": 800,
    "pending_reason": None,
    "log_end_offset": 1_234_567,
    "local_log_bytes": 2_000_000,
    "remote_log_bytes": 5,
    "ledger_bytes": None,
    "pending_from": 800,
    "pending_source": "exact",
}


def lines(table: Table) -> list[list[str]]:
    """Cells that are not empty, by line."""
    out = Console(width=250, no_color=True, highlight=False, markup=False)
    with out.capture() as captured:
        out.print(table)
    return [[cell for cell in line.split("  ") if cell.strip()] for line in captured.get().splitlines()]


def texts(table: Table) -> list[list[str]]:
    return [[cell.strip() for cell in line] for line in lines(table)]


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (-5, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 m"),
        (61_000, "1 m 1 s"),
        (601_000, "10 m"),
        (3_600_000, "1 h"),
        (10_500_000, "2 h 55 m"),
        (86_400_000, "1 d"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_durations_have_their_two_largest_units(duration_ms: int, text: str) -> None:
    assert in_time(duration_ms) == text


def test_what_is_not_known_is_a_question_mark_and_minus_one_is_none() -> None:
    assert [value_text.offset(value) for value in (None, -1, 0, 1_000)] == ["?", "-", "0", "1\u202f000"]
    assert [value_text.size(None), value_text.size(0), value_text.age(None, 1), value_text.moment(None)] == [
        "?",
        "0 B",
        "?",
        "?",
    ]
    assert value_text.moment(NOW_MS) == "2027-01-15 08:00:00"


def test_a_name_cannot_drive_the_terminal() -> None:
    evil = "a\x1b[31mb\r\nc\x9b2J"
    assert value_text.printable_text(evil) == "a·[31mb··c·2J"
    row = PARTITION | {"topic": "[bold]x[/bold]"}
    assert texts(tables.partitions([row]))[1][0] == "[bold]x[/bold]-3"


def test_a_partition_shows_its_offsets_and_who_is_missing() -> None:
    header, row = texts(tables.partitions([PARTITION]))
    assert dict(zip(header, row, strict=True)) == {
        "PARTITION": "orders-3",
        "LEADER": "1",
        "ISR": "2/3",
        "LOG START": "0",
        "LOCAL START": "500",
        "TIERED TO": "799",
        "PENDING FROM": "800",
        "LOG END": "1\u202f234\u202f567",
        "LOCAL": "2.0 MB",
        "REMOTE": "5 B",
    }


def test_a_pending_offset_that_no_leader_tells_is_marked() -> None:
    row = PARTITION | {"earliest_pending_upload_offset": None, "pending_source": "inferred"}
    assert "800 (inferred)" in texts(tables.partitions([row]))[1]
    unknown = PARTITION | {"pending_from": None, "pending_source": None}
    assert "?" in texts(tables.partitions([unknown]))[1]


def test_an_open_transaction_is_told_beside_the_high_watermark() -> None:
    assert value_text.committed_end(1000, 1000) == "High watermark 1\u202f000, last stable 1\u202f000."
    assert value_text.committed_end(1000, None) == "High watermark 1\u202f000, last stable ?."
    assert "last stable 7: a transaction is open from there on" in value_text.committed_end(1000, 7)


def test_a_pending_offset_of_minus_one_says_what_it_means() -> None:
    row = PARTITION | {"earliest_pending_upload_offset": -1, "pending_reason": "all_copied", "leader": -1}
    cells = texts(tables.partitions([row]))[1]
    assert "all copied" in cells
    assert "none" in cells


def finding(**more: Any) -> dict[str, Any]:
    row = {
        "id": 7,
        "slug": "copy-hung",
        "object": "orders-3",
        "cause_slug": None,
        "cause_object": None,
        "severity": "warning",
        "sentence": "Copy hung: orders-3",
        "action": "Look.",
        "evidence": {"sentence": "Open for 9 m."},
        "opened_ms": NOW_MS - 60_000,
        "seen_ms": NOW_MS,
        "closed_ms": None,
        "acknowledged_by": None,
        "muted_until_ms": None,
        "maintenance_until_ms": None,
    }
    return row | more


def test_the_worst_finding_comes_first_and_of_those_the_oldest() -> None:
    rows = [
        finding(id=1, severity="notice"),
        finding(id=2, severity="critical"),
        finding(id=3, severity="critical", opened_ms=NOW_MS - 120_000),
    ]
    assert [line[0] for line in texts(tables.findings(rows, NOW_MS))] == ["ID", "3", "2", "1"]


def test_a_finding_tells_why_and_what_was_done_about_it() -> None:
    cells = texts(tables.findings([finding()], NOW_MS))[1]
    assert cells == ["7", "warning", "1 m", "copy-hung", "Copy hung: orders-3. Open for 9 m.", "Look."]
    unseen = texts(tables.findings([finding(seen_ms=NOW_MS - 90_000)], NOW_MS))[1]
    assert unseen[4] == "Copy hung: orders-3. Open for 9 m. Last seen 1 m 30 s ago."
    assert texts(tables.findings([finding(acknowledged_by="Ada")], NOW_MS))[1][-1] == "Ada"
    assert texts(tables.findings([finding(muted_until_ms=NOW_MS + 1)], NOW_MS))[1][-1] == "muted"
    covered = texts(tables.findings([finding(maintenance_until_ms=NOW_MS + 60_000)], NOW_MS))[1][-1]
    assert covered == "in maintenance until 2027-01-15 08:01:00 UTC"
    assert texts(tables.findings([finding(closed_ms=NOW_MS)], NOW_MS))[1][2] == "closed 2027-01-15 08:00:00"


def test_what_a_finding_explains_is_indented_below_it() -> None:
    away = {"slug": "broker-away", "object": "broker 3", "opened_ms": NOW_MS - 90_000}
    of_3 = {"cause_slug": "broker-away", "cause_object": "broker 3", "slug": "below-min-isr"}
    rows = [
        finding(id=1, severity="critical", **of_3),
        finding(id=2, severity="critical", slug="divergence"),
        finding(id=3, severity="warning", **away),
        finding(id=4, severity="notice", **of_3),
        finding(id=5, severity="warning", cause_slug="disk-offline", cause_object="broker 9"),
    ]
    lines = texts(tables.findings(rows, NOW_MS))[1:]
    # The last one says that its cause is elsewhere; it is a line of its severity.
    assert [(line[0], line[3]) for line in lines] == [
        ("2", "divergence"),
        ("3", "broker-away"),
        ("1", "└ below-min-isr"),
        ("4", "└ below-min-isr"),
        ("5", "copy-hung"),
    ]
    assert lines[4][4].endswith("Open for 9 m. Explained by disk-offline: broker 9.")
    assert "Explained" not in lines[2][4]


def test_an_explained_finding_stands_under_the_time_in_which_its_cause_was_open() -> None:
    first = {"slug": "broker-away", "object": "broker 3", "opened_ms": NOW_MS - 9_000, "closed_ms": NOW_MS - 8_000}
    again = {"slug": "broker-away", "object": "broker 3", "opened_ms": NOW_MS - 5_000}
    of_3 = {"cause_slug": "broker-away", "cause_object": "broker 3", "opened_ms": NOW_MS - 4_000}
    rows = [finding(id=1, **first), finding(id=2, **again), finding(id=3, **of_3)]
    assert [line[0] for line in texts(tables.findings(rows, NOW_MS))[1:]] == ["1", "2", "3"]
    rows[2]["opened_ms"], rows[2]["closed_ms"] = NOW_MS - 8_500, NOW_MS - 7_000
    assert [line[0] for line in texts(tables.findings(rows, NOW_MS))[1:]] == ["1", "3", "2"]


def test_a_sensitive_value_is_never_shown() -> None:
    row = {
        "resource_type": "broker",
        "resource": "",
        "name": "ssl.key.password",
        "value": None,
        "source": "DYNAMIC_DEFAULT_BROKER_CONFIG",
        "is_sensitive": True,
    }
    cells = texts(tables.config([row]))[1]
    assert cells == ["all brokers", "ssl.key.password", "(sensitive)", "dynamic default broker config"]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("orders-3", ("orders", 3)),
        ("orders-eu-12", ("orders-eu", 12)),
        ("orders", None),
        ("orders-", None),
        ("-3", None),
        ("orders-x", None),
        ("orders-٣", None),
        ("orders-99999999999", None),
        ("", None),
    ],
)
def test_a_partition_is_a_topic_a_dash_and_a_number(text: str, parsed: tuple[str, int] | None) -> None:
    assert parse_partition(text) == parsed


PLAN: dict[str, Any] = {
    "id": 4,
    "state": "verified",
    "diff": {"words": {"title": "Turn on", "intro": "In.", "effect": "Eff."}, "lines": ["- a", "+ b"]},
    "checks": [
        {"outcome": "warning", "sentence": "Careful."},
        {"outcome": "ok", "sentence": "Fine."},
    ],
    "cli": ["kafka-configs.sh"],
    "result": {"steps": [{"state": "verified", "sentence": "Every broker shows it."}]},
}


def test_a_plan_is_shown_with_its_difference_its_warnings_and_its_command() -> None:
    assert plan_lines(PLAN) == [
        "Turn on",
        "  - a",
        "  + b",
        "In.",
        "Eff.",
        "  warning: Careful.",
        "  $ kafka-configs.sh",
    ]
    assert refusal(PLAN["checks"]) == "see its checks."
    assert refusal([{"outcome": "refused", "sentence": "No."}]) == "No."
    assert ending(PLAN) == "Plan 4 is verified. Every broker shows it."
    assert ending(PLAN | {"result": None}) == "Plan 4 is verified."
