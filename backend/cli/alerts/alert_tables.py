"""Answers of the API about alerts as tables. Pure: rows in, rich table out."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from backend.cli.shared.tables import TableRow, table
from backend.cli.shared.value_text import age, moment, printable_text


def receivers(rows: Iterable[TableRow], now_ms: int) -> Table:
    def state(row: TableRow) -> Text:
        if row["failing_since_ms"] is None:
            return Text("works" if row["last_delivered_ms"] else "not tried yet")
        since, cause = age(row["failing_since_ms"], now_ms), printable_text(row["last_error"])
        return Text(f"fails for {since}: {cause}", style="bold red")

    return table(
        ["RECEIVER", "KIND", "ADDRESS", "WAITING", "DELIVERED", "REFUSED", "OPEN THERE", "STATE"],
        (
            (
                r["name"],
                r["kind"],
                r["address"],
                str(r["waiting"]),
                str(r["delivered"]),
                str(r["refused"]),
                str(r["open_there"]),
                state(r),
            )
            for r in rows
        ),
        right=["WAITING", "DELIVERED", "REFUSED", "OPEN THERE"],
    )


def thresholds(rows: Iterable[TableRow]) -> Table:
    def value(row: TableRow) -> Text:
        return Text(f"{row['value']:g} {row['unit']}", style="" if row["value"] == row["default"] else "yellow")

    return table(
        ["RULE", "NAME", "TOPICS", "VALUE", "DEFAULT", "WHY THAT DEFAULT"],
        (
            (r["slug"], r["name"], r["topics"] or "", value(r), f"{r['default']:g} {r['unit']}", r["reason"])
            for r in rows
        ),
        right=["VALUE", "DEFAULT"],
    )


def rule_settings(rows: Iterable[TableRow]) -> Table:
    return table(
        ["RULE", "TOPICS", "HOLD", "SEVERITY", "OFF"],
        (
            (
                r["slug"],
                r["topics"] or "all",
                "the rule's" if r["for_s"] is None else f"{r['for_s']:g} s",
                r["severity"] or "the rule's",
                "off" if r["off"] else "",
            )
            for r in rows
        ),
        right=["HOLD"],
    )


def maintenance(rows: Iterable[TableRow], now_ms: int) -> Table:
    def state(row: TableRow) -> str:
        if row["ends_ms"] <= now_ms:
            return "ended"
        return "planned" if row["begins_ms"] > now_ms else f"for {age(now_ms, row['ends_ms'])} more"

    def covers(row: TableRow) -> str:
        parts = [row["slug"] or "", f"topics {row['topic']}" if row["topic"] else ""]
        parts.append("" if row["broker_id"] is None else f"broker {row['broker_id']}")
        return ", ".join(part for part in parts if part) or "everything"

    return table(
        ["ID", "STATE", "BEGINS (UTC)", "ENDS (UTC)", "COVERS", "BY", "REASON"],
        (
            (
                str(r["id"]),
                state(r),
                moment(r["begins_ms"]),
                moment(r["ends_ms"]),
                covers(r),
                r["created_by"],
                r["reason"],
            )
            for r in rows
        ),
        right=["ID"],
    )
