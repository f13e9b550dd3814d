"""Maintenance windows as lines of a card. Pure: rows of the database in, texts and HTML out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from backend.store.maintenance_window import MaintenanceWindow


def covered(window: MaintenanceWindow) -> str:
    """`topics logs-*, broker 2`; a window that limits nothing covers everything."""
    parts = [window.slug or "", f"topics {window.topic}" if window.topic else ""]
    parts.append("" if window.broker_id is None else f"broker {window.broker_id}")
    return ", ".join(part for part in parts if part) or "everything"


def phase(window: MaintenanceWindow, now_ms: int) -> str:
    """`for 1 h more`, `in 2 h`, or `ended`."""
    if window.ends_ms <= now_ms:
        return "ended"
    if window.begins_ms > now_ms:
        return f"in {fmt.duration((window.begins_ms - now_ms) / 1000)}"
    return f"for {fmt.duration((window.ends_ms - now_ms) / 1000)} more"


def line_html(window: MaintenanceWindow, now_ms: int) -> str:
    """One window: what it covers, how long, by whom and why."""
    what = f"{covered(window)} · {phase(window, now_ms)}"
    return (
        f'<div class="eb-plan"><div>{markup.text(what)}</div>'
        f'<div class="eb-clause">{markup.text(f"{window.created_by} · {window.reason}")}</div></div>'
    )


def rows(windows: Sequence[MaintenanceWindow], now_ms: int, clock: Callable[[int | None], str]) -> pd.DataFrame:
    """The windows as a table."""
    return pd.DataFrame(
        {
            "window": [window.id for window in windows],
            "covers": [covered(window) for window in windows],
            "state": [phase(window, now_ms) for window in windows],
            "begins": [clock(window.begins_ms) for window in windows],
            "ends": [clock(window.ends_ms) for window in windows],
            "by": [window.created_by for window in windows],
            "reason": [window.reason for window in windows],
        }
    )
