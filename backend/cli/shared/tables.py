"""Answers of the API as tables. Pure: rows in, rich table out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from backend.cli.shared.finding_groups import grouped
from backend.cli.shared.value_text import (
    SEVERITY_STYLE,
    age,
    finding_note,
    moment,
    offset,
    printable_text,
    size,
    yes,
)
from backend.store.finding_age import unseen_ms

TableRow = dict[str, Any]
SEGMENT_STATES: Final = ("copy started", "copy finished", "delete started", "delete finished")


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = ()) -> Table:
    """A table without frames; columns named in `right` are numbers. Nothing in a cell is read as markup."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(printable_text(cell)) for cell in row))
    return made


def readers(rows: Iterable[TableRow]) -> Table:
    return table(
        ["GROUP", "MEMBERS", "PARTITION", "COMMITTED", "LOCAL START", "LEFT", "BYTES LEFT"],
        (
            (
                r["group"],
                yes(r["members"]),
                f"{r['topic']}-{r['partition']}",
                offset(r["committed_offset"]),
                offset(r["local_log_start_offset"]),
                offset(r["offsets_left"]),
                size(r["bytes_left"]),
            )
            for r in rows
        ),
        right=["COMMITTED", "LOCAL START", "LEFT", "BYTES LEFT"],
    )


def processes(rows: Iterable[TableRow], *, without: str = "") -> Table:
    """Processes with their messages, `without` a text that stands above the table."""

    def state(row: TableRow) -> Text:
        text = row["state"] + ("" if row["alive"] or row["state"] in ("stopped", "failed") else ", silent")
        return Text(printable_text(text), style="" if row["alive"] else "yellow")

    return table(
        ["PROCESS", "STATE", "LAST SIGN", "MESSAGE"],
        (
            (r["process"], state(r), age(0, r["age_ms"]), (r["message"] or "").replace(without, "").strip())
            for r in rows
        ),
    )


def broker_list(rows: Iterable[TableRow], now_ms: int) -> Table:
    def state(row: TableRow) -> Text:
        if not row["reachable"]:
            return Text("does not answer", style="bold red")
        return Text("fenced", style="yellow") if row["fenced"] else Text("up")

    def free(row: TableRow) -> str:
        usable = [d["usable_bytes"] for d in row["log_dirs"] or [] if d.get("usable_bytes") is not None]
        return size(min(usable) if usable else None)

    return table(
        ["BROKER", "ADDRESS", "STATE", "DISK FREE", "ANSWERED"],
        (
            (str(r["broker_id"]), f"{r['host']}:{r['port']}", state(r), free(r), age(r["seen_ms"], now_ms) + " ago")
            for r in rows
        ),
        right=["DISK FREE"],
    )


def partitions(rows: Iterable[TableRow]) -> Table:
    return table(
        ["PARTITION", "LEADER", "ISR", "LOG START", "LOCAL START", "TIERED TO", "PENDING FROM", "LOG END", "LOCAL",
         "REMOTE"],
        (
            (
                f"{r['topic']}-{r['partition']}",
                Text("none", style="bold red") if r["leader"] == -1 else str(r["leader"]),
                isr(r),
                offset(r["log_start_offset"]),
                offset(r["local_log_start_offset"]),
                offset(r["latest_tiered_offset"]),
                pending(r),
                offset(r["log_end_offset"]),
                size(r["local_log_bytes"]),
                size(remote_bytes(r)),
            )
            for r in rows
        ),
        right=["LOG START", "LOCAL START", "TIERED TO", "PENDING FROM", "LOG END", "LOCAL", "REMOTE"],
    )  # fmt: skip


def isr(row: TableRow) -> Text:
    """In-sync of all replicas; yellow when one is missing."""
    text = f"{len(row['isr'])}/{len(row['replicas'])}"
    return Text(text, style="yellow" if len(row["isr"]) < len(row["replicas"]) else "")


def pending(row: TableRow) -> str:
    """The first offset that is not in the remote tier, or what a -1 means; inferred where no leader tells it."""
    reason = row["pending_reason"]
    if reason is not None:
        return str(reason).replace("_", " ")
    return offset(row["pending_from"]) + (" (inferred)" if row["pending_source"] == "inferred" else "")


def remote_bytes(row: TableRow) -> int | None:
    """The ledger's sum, else the observer's."""
    size_bytes: int | None = row["ledger_bytes"] if row.get("ledger_bytes") is not None else row["remote_log_bytes"]
    return size_bytes


def replicas(rows: Iterable[TableRow], now_ms: int) -> Table:
    return table(
        ["BROKER", "ROLE", "IN SYNC", "LOG START", "LOCAL START", "LOG END", "LOCAL", "PHASE", "FOR", "HOW KNOWN"],
        (
            (
                str(r["broker_id"]),
                r["role"],
                Text(yes(r["in_isr"]), style="" if r["in_isr"] else "yellow"),
                offset(r["log_start_offset"]),
                offset(r["local_log_start_offset"]),
                offset(r["log_end_offset"]),
                size(r["local_log_bytes"]),
                printable_text(r["phase"]).lower().replace("_", " "),
                age(r["phase_since_ms"], now_ms) if r["phase_since_ms"] else "",
                r["phase_source"] or r["error"] or "",
            )
            for r in rows
        ),
        right=["LOG START", "LOCAL START", "LOG END", "LOCAL"],
    )


def segments(rows: Iterable[TableRow], now_ms: int) -> Table:
    return table(
        ["OFFSETS", "SIZE", "STATE", "EPOCHS", "BY BROKER", "BEGUN", "SEGMENT"],
        (
            (
                f"[{offset(r['start_offset'])}, {offset(r['next_offset'])})",
                size(r["segment_size_bytes"]),
                SEGMENT_STATES[r["state"]],
                ",".join(str(epoch) for epoch, _ in r["leader_epochs"]),
                str(r["copy_broker_id"]),
                age(r["copy_started_ms"], now_ms) + " ago",
                r["segment_id"],
            )
            for r in rows
        ),
        right=["SIZE", "BY BROKER"],
    )


def findings(rows: Iterable[TableRow], now_ms: int) -> Table:
    """The worst first, of those the oldest; what a finding explains is indented below it."""

    def description(row: TableRow, under: bool) -> str:
        why = (row["evidence"] or {}).get("sentence", "")
        age_ms = unseen_ms(row["seen_ms"], row["closed_ms"], now_ms)
        seen = "" if age_ms is None else f"Last seen {age(row['seen_ms'], now_ms)} ago."
        explained = row["cause_slug"] is not None and not under
        cause = f"Explained by {row['cause_slug']}: {row['cause_object']}." if explained else ""
        return " ".join(part for part in (f"{row['sentence']}.", why, seen, cause) if part)

    return table(
        ["ID", "SEVERITY", "SINCE", "RULE", "WHAT", "DO", "TAKEN BY"],
        (
            (
                str(r["id"]),
                Text(r["severity"], style=SEVERITY_STYLE[r["severity"]]),
                age(r["opened_ms"], now_ms) if r["closed_ms"] is None else f"closed {moment(r['closed_ms'])}",
                f"  └ {r['slug']}" if under else r["slug"],
                description(r, under),
                r["action"],
                finding_note(r, now_ms),
            )
            for r, under in grouped(rows)
        ),
        right=["ID"],
    )


def audit(rows: Iterable[TableRow]) -> Table:
    def result(row: TableRow) -> Text:
        style = {"failed": "bold red", "refused": "yellow"}.get(row["result"], "")
        return Text(printable_text(row["result"]), style=style)

    return table(
        ["TIME (UTC)", "WHO", "ROLE", "ACTION", "OBJECT", "RESULT", "PLAN", "REASON"],
        (
            (
                moment(r["at_ms"]),
                r["actor"],
                r["role"],
                r["action"],
                r["object"],
                result(r),
                "" if r["operation_id"] is None else str(r["operation_id"]),
                r["reason"] or r["detail"] or "",
            )
            for r in rows
        ),
        right=["PLAN"],
    )


def config(rows: Iterable[TableRow]) -> Table:
    def value(row: TableRow) -> str:
        return "(sensitive)" if row["is_sensitive"] else "(none)" if row["value"] is None else row["value"]

    return table(
        ["RESOURCE", "NAME", "VALUE", "SET BY"],
        (
            (
                f"{r['resource_type']} {r['resource']}" if r["resource"] else "all brokers",
                r["name"],
                value(r),
                r["source"].lower().replace("_", " "),
            )
            for r in rows
        ),
    )


def bootstrap_races(rows: Iterable[TableRow]) -> Table:
    """The replicas of a bootstrap race, one a row."""
    columns = ["FLAG", "COPIED", "SECONDS", "STARTS AT", "LOG END", "LOCAL RECORDS"]
    return table(
        columns,
        (
            (
                "on" if r["flag"] else "off",
                size(r["copied_bytes"]),
                f"{r['seconds']:.2f}",
                offset(r["start_offset"]),
                offset(r["log_end"]),
                offset(r["log_end"] - r["start_offset"]),
            )
            for r in rows
        ),
        right=columns[1:],
    )


def bootstrap_phases(race: TableRow) -> Table:
    """The phases of one new replica with the seconds since it was asked for."""
    return table(
        ["AFTER", "PHASE", "TARGET", "WHY"],
        (
            (
                f"{(seen['at_ms'] - race['began_ms']) / 1000:.3f} s",
                seen["phase"],
                "" if seen["target_offset"] is None else offset(seen["target_offset"]),
                seen["reason"] or "",
            )
            for seen in race["phases"]
        ),
        right=["AFTER", "TARGET"],
    )
