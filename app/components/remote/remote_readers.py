"""Groups that read a partition from the remote tier, as the backend's heartbeat has them. Pure: JSON → HTML, rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell

NOT_READ: Final = "The groups have not been looked at yet; the backend does so every 15 s."
NONE_READS: Final = (
    "No group is below the leader's local start, of those with members or with a commit in the last ten minutes."
)
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Reads:
    """A group below the leader's local log; ``bytes_left`` None: not known. One without members assigns and commits."""

    group: str
    committed_offset: int
    offsets_left: int
    bytes_left: int | None
    moved: bool
    members: bool = True


@dataclass(frozen=True, slots=True)
class Readers:
    """``seen_ms`` None: never read; ``cause``: why there is no newer one; ``truncated``: only the largest are here;
    ``left_out``: the groups that are not looked at, in words."""

    rows: tuple[Reads, ...]
    seen_ms: int | None
    cause: str | None
    truncated: bool
    left_out: str | None = None


def of(detail: Mapping[str, Any] | None, topic: str, number: int) -> Readers:
    """The groups that the backend reports for this partition, the most to read first."""
    reported: Mapping[str, Any] = (detail or {}).get("readers") or {}
    every: Sequence[Mapping[str, Any]] = reported.get("rows") or []
    reads = tuple(
        Reads(
            row["group"],
            row["committed_offset"],
            row["offsets_left"],
            row["bytes_left"],
            row["moved"],
            row.get("members", True),  # a heartbeat of the release before has it not
        )
        for row in every
        if (row["topic"], row["partition"]) == (topic, number)
    )
    truncated = int(reported.get("count") or 0) > len(every)
    return Readers(reads, reported.get("seen_ms"), reported.get("cause"), truncated, reported.get("left_out"))


def clause(readers: Readers, now_ms: int) -> str:
    if readers.seen_ms is None:
        return ""
    return f"committed below local start, {fmt.duration(max(0, now_ms - readers.seen_ms) / 1000)} ago"


def html(readers: Readers) -> str:
    """The groups, or what it means that there is none."""
    if readers.seen_ms is None:
        return markup.empty(f"? {readers.cause or NOT_READ}")
    notes = [f"? {text}" for text in (readers.cause, readers.left_out) if text]
    note = "".join(f'<div class="eb-note">{markup.text(text)}</div>' for text in notes)
    if not readers.rows:
        more = " Of those that read the most; others may." if readers.truncated else ""
        return f'<div class="eb-lines">{NONE_READS}{more}</div>{note}'
    columns = [("Group", "left"), ("Committed", "right"), ("Remote bytes left", "right"), ("Reads on", "left")]
    body = [
        (
            Cell(reader.group if reader.members else f"{reader.group} · no members"),
            Cell(fmt.count(reader.committed_offset), css="eb-nowrap"),
            Cell(f"{fmt.size(reader.bytes_left)} · {fmt.axis_count(reader.offsets_left)}", css="eb-nowrap"),
            "yes" if reader.moved else "stands still",
        )
        for reader in readers.rows[:SHOWN]
    ]
    hidden = len(readers.rows) - SHOWN
    rest = f'<div class="eb-lines">{fmt.count(hidden)} more in the table.</div>' if hidden > 0 else ""
    return markup.table(columns, body, caption="Groups that read from the remote tier") + rest + note


def rows(readers: Readers) -> pd.DataFrame:
    """The same as a table, all of it."""
    return pd.DataFrame(
        {
            "group": [reader.group for reader in readers.rows],
            "members": [reader.members for reader in readers.rows],
            "committed": [reader.committed_offset for reader in readers.rows],
            "records left": [reader.offsets_left for reader in readers.rows],
            "bytes left": pd.array([reader.bytes_left for reader in readers.rows], dtype="Int64"),
            "moved since the look before": [reader.moved for reader in readers.rows],
        }
    )
