"""Unused replica folders that brokers keep: strays, and damaged ones that were copied again. Pure.

Brokers of other vendors do not report theirs; each broker's list is cut to the first ones, with the full count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.overview import BrokerRow

SETTING: Final = "ebbline.remove.set.aside"
# Rows of the table; 20 of each log directory are stored at most.
ROWS_MAX: Final = 100
# Characters of a folder's name in the choice: the partition and the first of the 32 that make it unique.
_UNIQUE_CHARS: Final = 8


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder; `name` is that of the folder in its log directory."""

    broker_id: int
    log_dir: str
    name: str
    size_bytes: int
    since_ms: int
    reason: str

    @property
    def partition(self) -> str:
        """``orders-3``, of ``orders-3.<32 hex>-stray``; a very long topic's name is shortened by the broker."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def label(self) -> str:
        """For a choice: names of one partition differ by their unique part."""
        unique = self.name.rpartition(".")[2][:_UNIQUE_CHARS]
        return f"broker {self.broker_id} · {self.partition} · {unique} · {fmt.size(self.size_bytes)}"


@dataclass(frozen=True, slots=True)
class Listing:
    """`count` and `total_bytes` of all folders, listed or not; `silent`: brokers whose directories are not known."""

    folders: tuple[Folder, ...]
    count: int
    total_bytes: int
    silent: tuple[int, ...]


def of(brokers: Iterable[BrokerRow]) -> Listing:
    """All that is known, by broker, the oldest first."""
    folders: list[Folder] = []
    count = total_bytes = 0
    silent = []
    for broker in brokers:
        if broker.log_dirs is None:
            silent.append(broker.broker_id)
        for directory in broker.log_dirs or []:
            kept = directory.get("set_aside") or []
            count += directory.get("set_aside_count") or 0
            total_bytes += directory.get("set_aside_bytes") or 0
            folders += [Folder(broker.broker_id, str(directory.get("path", "?")), **fields) for fields in kept]
    folders.sort(key=lambda folder: (folder.broker_id, folder.since_ms, folder.name))
    return Listing(tuple(folders), count, total_bytes, tuple(silent))


def clause(listing: Listing) -> str:
    """``2 folders, 12.0 MB · kept until a plan removes them``."""
    if not listing.folders:
        return ""
    noun = "folder" if listing.count == 1 else "folders"
    return f"{fmt.count(listing.count)} {noun}, {fmt.size(listing.total_bytes)} · kept until a plan removes them"


def html(listing: Listing, now_ms: int, *, embedded: bool) -> str:
    """The table, or what it means that there is nothing; then what is not known."""
    if not embedded:
        return markup.empty("? Brokers of Apache Kafka do not tell what they have set aside.", "Look for …-stray.")
    note = ""
    if listing.silent:
        who = ", ".join(str(broker_id) for broker_id in listing.silent)
        note = f'<div class="eb-lines">? Broker {who} has not told what it keeps.</div>'
    if not listing.folders:
        return markup.empty("No broker keeps a replica folder that nobody uses.") + note
    columns = [
        ("Partition", "left"),
        ("Broker", "right"),
        ("Folder", "left"),
        ("Why", "left"),
        ("Size", "right"),
        ("Age", "right"),
    ]
    body = [
        (
            Cell(folder.partition, css="eb-break"),
            str(folder.broker_id),
            Cell(html=f"<code>{markup.text(f'{folder.log_dir}/{folder.name}')}</code>", css="eb-break"),
            Cell(folder.reason, css="eb-why"),
            Cell(fmt.size(folder.size_bytes), css="eb-nowrap"),
            Cell(_age(folder, now_ms), css="eb-nowrap"),
        )
        for folder in listing.folders[:ROWS_MAX]
    ]
    hidden = listing.count - min(len(listing.folders), ROWS_MAX)
    if hidden > 0:
        more = markup.with_commands(f"{fmt.count(hidden)} more: `ebbline set-aside` lists all.")
        note += f'<div class="eb-lines">{more}</div>'
    return markup.table(columns, body, caption="Replica folders that are set aside") + note


def rows(folders: Sequence[Folder], now_ms: int) -> pd.DataFrame:
    """The same as a table, all that is known."""
    return pd.DataFrame(
        [
            {
                "partition": folder.partition,
                "broker": folder.broker_id,
                "log directory": folder.log_dir,
                "folder": folder.name,
                "why": folder.reason,
                "bytes": folder.size_bytes,
                "age": _age(folder, now_ms),
            }
            for folder in folders
        ]
    )


def inputs(folder: Folder) -> dict[str, object]:
    """Of the plan (kind `broker_config`) that removes it."""
    return {"scope": "broker", "broker_id": folder.broker_id, "settings": {SETTING: folder.name}}


def _age(folder: Folder, now_ms: int) -> str:
    return fmt.duration(max(0, now_ms - folder.since_ms) / 1000)
