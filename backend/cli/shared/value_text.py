"""How values look in tables: `?` for what is not known, -1 as what Kafka means by it, times in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from backend.control.formatting import grouped, in_bytes, in_time
from backend.runtime.redact import printable

UNKNOWN: Final = "?"
SEVERITY_STYLE: Final = {"critical": "bold red", "warning": "yellow", "notice": "dim"}
SEVERITIES: Final = ("critical", "warning", "notice")


def printable_text(value: object) -> str:
    """Text of another's making, safe to print: control characters are shown as `·`."""
    return UNKNOWN if value is None else printable(str(value))


def no_readers(with_members: int, without_members: int) -> str:
    """The sentence that no group reads from the remote tier, with the groups that were read for it."""
    return (
        f"No group is below the local log of a tiered partition, of {plural(with_members, 'group')} with members and"
        f" {without_members} without, which count when they have committed in the last 10 minutes."
    )


def committed_end(high_watermark: int | None, last_stable: int | None) -> str:
    """How far records are acknowledged, and how far readers of committed records and copies may go."""
    text = f"High watermark {offset(high_watermark)}, last stable {offset(last_stable)}"
    if high_watermark is None or last_stable is None or last_stable >= high_watermark:
        return f"{text}."
    return f"{text}: a transaction is open from there on, and nothing from there on is copied."


def offset(value: int | None) -> str:
    """`9 120 447`; `-` for Kafka's -1: there is none."""
    if value is None:
        return UNKNOWN
    return "-" if value == -1 else grouped(value)


def size(value: int | None) -> str:
    return UNKNOWN if value is None else in_bytes(value)


def age(then_ms: int | None, now_ms: int) -> str:
    return UNKNOWN if then_ms is None else in_time(now_ms - then_ms)


def moment(at_ms: int | None) -> str:
    """`2026-11-21 18:43:00`, UTC."""
    if at_ms is None:
        return UNKNOWN
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def yes(value: Any) -> str:
    return UNKNOWN if value is None else "yes" if value else "no"


def finding_note(finding: dict[str, Any], now_ms: int) -> str:
    """The person who looks after a finding, or the reason why nobody is notified of it."""
    if finding["acknowledged_by"]:
        return str(finding["acknowledged_by"])
    if finding["maintenance_until_ms"] is not None:
        return f"in maintenance until {moment(finding['maintenance_until_ms'])} UTC"
    return "muted" if (finding["muted_until_ms"] or 0) > now_ms else ""


def who_may_lead(isr: list[int], eligible: dict[str, Any]) -> str:
    """`ISR: 1, 2. Eligible leader replicas (ELR): none. Last known ELR: none.`, then why something is not known."""

    def listed(broker_ids: list[int] | None) -> str:
        return UNKNOWN if broker_ids is None else ", ".join(map(str, sorted(broker_ids))) or "none"

    elr, last_known = listed(eligible["eligible_leader_replicas"]), listed(eligible["last_known_elr"])
    cause = f" {eligible['cause']}" if eligible["cause"] else ""
    return f"ISR: {listed(isr)}. Eligible leader replicas (ELR): {elr}. Last known ELR: {last_known}.{cause}"


def plural(number: int, noun: str) -> str:
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"
