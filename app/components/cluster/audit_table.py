"""Entries of the audit, refusals included, as a table for people. Rows of the audit → HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pandas as pd

from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.audit import AuditRow

MUTED_UNTIL: Final = "muted_until_ms"
RESULT_STATUS: Final = {"verified": "ok", "accepted": "ok", "refused": "warning", "failed": "critical"}


def audit_html(entries: Sequence[AuditRow], clock: Callable[[int], str]) -> str:
    """The table; ``clock`` writes a time."""
    columns = [
        ("When", "left"),
        ("Who", "left"),
        ("Action", "left"),
        ("On", "left"),
        ("Change", "left"),
        ("Result", "left"),
        ("Plan", "right"),
        ("Reason and detail", "left"),
    ]
    lines = [
        [
            Cell(clock(row.at_ms), css="eb-nowrap"),
            Cell(row.actor if row.actor.endswith(row.role) else f"{row.actor} ({row.role})"),
            Cell(row.action.replace("_", " ")),
            Cell(row.object),
            Cell(html=f"<code>{markup.text(_change_text(row))}</code>", css="eb-nowrap"),
            Cell(html=_result_html(row.result)),
            Cell("" if row.operation_id is None else f"#{row.operation_id}"),
            Cell(html=_detail_html(row)),
        ]
        for row in entries
    ]
    return markup.table(columns, lines, caption="Audit")


def _result_html(result: str) -> str:
    status = RESULT_STATUS.get(result, "notice")
    css = "eb-quiet" if status in ("ok", "notice") else f"eb-{status}"
    return f'<span class="{css} eb-nowrap">{markup.mark(status)} {markup.text(result)}</span>'


def _detail_html(row: AuditRow) -> str:
    detail = f'<span class="eb-quiet">{markup.text(row.detail)}</span>' if row.detail else ""
    return " · ".join(part for part in (markup.text(row.reason) if row.reason else "", detail) if part)


def _change_text(row: AuditRow) -> str:
    changes = (row.diff or {}).get("changes", [])
    return "; ".join(f"{_value_text(change, 'before')} → {_value_text(change, 'after')}" for change in changes)


def _value_text(change: Mapping[str, Any], side: str) -> str:
    """The end of a silence as people write a time; all else as it stands."""
    value: str | None = change.get(side)
    if value and change.get("name") == MUTED_UNTIL:
        return f"{datetime.fromtimestamp(int(value) / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    return value or "not set"


def rows(entries: Sequence[AuditRow]) -> pd.DataFrame:
    """The same as a table, with the command that does it by hand."""
    return pd.DataFrame(
        [
            {
                "time": pd.Timestamp(row.at_ms, unit="ms", tz="UTC"),
                "person": row.actor,
                "role": row.role,
                "action": row.action,
                "object": row.object,
                "change": _change_text(row),
                "result": row.result,
                "plan": row.operation_id,
                "reason": row.reason,
                "detail": row.detail,
                "command": " ".join(row.cli or []),
            }
            for row in entries
        ]
    )


def select(entries: Sequence[AuditRow], search: str, result: str | None) -> list[AuditRow]:
    """Rows with this result (None: any) that have every one of ``search``; ``#91`` and ``plan 91`` find a plan."""
    needles = [word for word in search.lower().replace("plan ", "#").split() if word]
    return [row for row in entries if result in (None, row.result) and all(word in _haystack(row) for word in needles)]


def _haystack(row: AuditRow) -> str:
    plan = "" if row.operation_id is None else f"#{row.operation_id} "
    texts = (row.actor, row.role, row.action, row.action.replace("_", " "), row.object, row.reason, row.detail)
    return (plan + " ".join(text for text in texts if text)).lower()


def csv(entries: Sequence[AuditRow]) -> str:
    """As a file for a spreadsheet. A text that one would take for a formula gets an apostrophe before it."""
    return str(rows(entries).map(_harmless).to_csv(index=False))


def _harmless(value: object) -> object:
    dangerous = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if dangerous else value
