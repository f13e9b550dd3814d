"""Groups that read a partition from the remote tier, as the backend's heartbeat tells them. Pure: JSON → HTML, rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell

NOT_LOOKED: Final = "The groups have not been looked at yet; the backend does so every 15 s."
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Reads:
    """A group below the leader's local log; ``bytes_left`` None: not known."""

    group: str
    committed_offset: int
    offsets_left: int
    bytes_left: int | None
    moved: bool


@dataclass(frozen=True, slots=True)
class Readers:
    """``seen_ms`` None: nobody has looked; ``cause``: why there is no newer look; ``cut``: only the most are told."""

    rows: tuple[Reads, ...]
    seen_ms: int | None
    cause: str | None
    cut: bool


def of(detail: Mapping[str, Any] | None, topic: str, number: int) -> Readers:
    """What the backend tells of this partition, the most to read first."""
    told: Mapping[str, Any] = (detail or {}).get("readers") or {}
    every: Sequence[Mapping[str, Any]] = told.get("rows") or []
    mine = tuple(
        Reads(row["group"], row["committed_offset"], row["offsets_left"], row["bytes_left"], row["moved"])
        for row in every
        if (row["topic"], row["partition"]) == (topic, number)
    )
    return Readers(mine, told.get("seen_ms"), told.get("cause"), int(told.get("count") or 0) > len(every))


def clause(found: Readers, now_ms: int) -> str:
    if found.seen_ms is None:
        return ""
    return f"committed below local start, {fmt.duration(max(0, now_ms - found.seen_ms) / 1000)} ago"


def html(found: Readers) -> str:
    """The groups, or what it means that there is none."""
    if found.seen_ms is None:
        return markup.empty(f"? {found.cause or NOT_LOOKED}")
    note = f'<div class="eb-note">? {markup.text(found.cause)}</div>' if found.cause else ""
    if not found.rows:
        more = " Of those that read the most; others may." if found.cut else ""
        return f'<div class="eb-lines">No group with members is below the leader\'s local start.{more}</div>{note}'
    columns = [("Group", "left"), ("Committed", "right"), ("Remote bytes left", "right"), ("Reads on", "left")]
    body = [
        (
            Cell(one.group),
            Cell(fmt.count(one.committed_offset), css="eb-nowrap"),
            Cell(f"{fmt.size(one.bytes_left)} · {fmt.axis_count(one.offsets_left)}", css="eb-nowrap"),
            "yes" if one.moved else "stands still",
        )
        for one in found.rows[:SHOWN]
    ]
    hidden = len(found.rows) - SHOWN
    rest = f'<div class="eb-lines">{fmt.count(hidden)} more in the table.</div>' if hidden > 0 else ""
    return markup.table(columns, body, caption="Groups that read from the remote tier") + rest + note


def rows(found: Readers) -> pd.DataFrame:
    """The same as a table, all of it."""
    return pd.DataFrame(
        {
            "group": [one.group for one in found.rows],
            "committed": [one.committed_offset for one in found.rows],
            "records left": [one.offsets_left for one in found.rows],
            "bytes left": pd.array([one.bytes_left for one in found.rows], dtype="Int64"),
            "moved since the look before": [one.moved for one in found.rows],
        }
    )
